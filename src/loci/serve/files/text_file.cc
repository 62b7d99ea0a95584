// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/text_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>

namespace loci {

Result<std::string> read_text_file(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 && errno == ENOENT)
    return not_found(fmt::format("{} is not there", path));
  std::ifstream in(path, std::ios::binary);
  if (!in || S_ISDIR(facts.st_mode))
    return Status(StatusCode::kUnavailable, fmt::format("{} can't be read", path));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return Status(StatusCode::kUnavailable, fmt::format("{} can't be read", path));
  return text;
}

}  // namespace loci
