// SPDX-License-Identifier: Apache-2.0
// Reads text files, plain or gzip, whole or line by line. Also finds the data that several projects share.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"

struct gzFile_s;  // zlib's

namespace loci::sim {

// A file that is read from beginning to end. Thread-compatible. Errors name the path: kNotFound; kDataLoss if
// gzip data is damaged or ends early.
class PackedFile {
 public:
  static Result<PackedFile> open(const std::string& path);
  // Reads the next bytes until `out` is full; fewer only at the file's end.
  Result<std::size_t> read(std::span<char> out);
  // The next line without its end, of any length; absent after the last one.
  Result<std::optional<std::string>> line();

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  PackedFile(const std::string& path, gzFile_s* file) : path_(path), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> part_;  // bytes that line() has read ahead begin at at_
  std::size_t at_ = 0;
};

// The text of a file.
Result<std::string> read_text(const std::string& path);

// The path of a file of the shared data: below $LOCI_SHARED_DATA, else ../shared/data beside the sources
// ($LOCI_SOURCE_DIR, else the working directory). Absent: there is no such file.
std::optional<std::string> shared_data(const std::string& name);

}  // namespace loci::sim
