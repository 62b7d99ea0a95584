// SPDX-License-Identifier: Apache-2.0
// What a command's MODEL stands for.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/cli/pull/progress.h"

namespace loci {

enum class WhenMissing { kFail, kPull };

// A path, `default`, or OWNER/NAME[@REVISION][:FILE]: the file or directory behind it. A path that exists
// goes before a repo of that name. kPull fetches a repo that is not here (pull()), with HF_ENDPOINT and
// HF_TOKEN, and tells `say` of it (PullOptions). Errors: kNotFound, saying what to do; pull()'s.
Result<std::string> resolve_model(const std::string& model, WhenMissing when_missing, PullProgress::Say say);

}  // namespace loci
