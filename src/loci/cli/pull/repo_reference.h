// SPDX-License-Identifier: Apache-2.0
// The name of a model on a registry of Hugging Face's layout: OWNER/NAME[@REVISION][:FILE].
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

struct RepoReference {
  std::string repo;               // "owner/name"
  std::string revision = "main";  // a branch, a tag or a commit
  std::string file;  // a file's name, or a quantisation's ("Q4_K_M"); empty: what the repo is for

  std::string text() const;  // as parse_repo_reference() reads it; "@main" is left out
};

// Errors: kInvalidArgument naming what was expected.
Result<RepoReference> parse_repo_reference(std::string_view text);

// Checks a path that a server calls a file of a repo: it must stay inside the repo's folder, and must not
// name a file of Loci's own there (".loci..."). Errors: kDataLoss naming the path.
Status check_repo_path(std::string_view path);

// What url_encode() does with slashes.
enum class Slashes : std::uint8_t { kKeep, kEncode };
// Percent-encodes all characters that are not unreserved in a URL; `slashes` says whether slashes too.
std::string url_encode(std::string_view text, Slashes slashes);

}  // namespace loci
