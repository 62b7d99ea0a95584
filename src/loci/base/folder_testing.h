// SPDX-License-Identifier: Apache-2.0
// A folder for one test, which is removed with all its contents at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "loci/base/check.h"

namespace loci {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "loci_test_XXXXXX";
    LOCI_CHECK(::mkdtemp(pattern.data()) != nullptr, "a test needs a writable temporary folder");
    path_ = pattern;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace loci
