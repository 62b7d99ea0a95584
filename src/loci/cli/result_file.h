// SPDX-License-Identifier: Apache-2.0
// A file for a command's result. That it can be written is looked at before the work, so that no result is
// lost; it is there, or another than before, only once the result is there, however the command ends.
// Thread-compatible.
#pragma once

#include <string>
#include <utility>

#include "loci/base/status.h"

namespace loci {

class ResultFile {
 public:
  // Leaves what is there as it is until write(). `path` may be empty: nothing is written then. Errors:
  // kInvalidArgument "expected a file that can be written, found ..." of the field `option`.
  static Result<ResultFile> open(const std::string& path, const char* option);
  // Replaces the file in one step. A device or a pipe is written to, and so is a file in a folder where none
  // can be made. Errors: kUnavailable, or kResourceExhausted, such as a full disk.
  Status write(const std::string& text);

 private:
  explicit ResultFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  bool in_place_ = false;
};

}  // namespace loci
