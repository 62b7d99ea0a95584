// SPDX-License-Identifier: Apache-2.0
// A file for a command's result. It is opened before the work, so that a name that cannot be written is
// refused at once and no result is lost. Thread-compatible.
#pragma once

#include <string>
#include <utility>

#include "loci/base/status.h"

namespace loci {

class ResultFile {
 public:
  // Makes the file if it is not there; what is in it stays until write(). `path` may be empty: nothing is
  // written then. Errors: kInvalidArgument "expected a file that can be written, found ..." of the field
  // `option`.
  static Result<ResultFile> open(const std::string& path, const char* option);
  // Replaces what is in it. Errors: kUnavailable, such as a full disk.
  Status write(const std::string& text);

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace loci
