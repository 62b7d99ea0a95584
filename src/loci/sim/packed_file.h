// SPDX-License-Identifier: Apache-2.0
// Files of text, plain or gzip: whole or line by line; and where the data lies that several projects share.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"

struct gzFile_s;  // zlib's

namespace loci::sim {

// A file that is read from its begin to its end. For one thread at a time. Errors name the path: kNotFound;
// kDataLoss, where gzip data is damaged or ends early.
class PackedFile {
 public:
  static Result<PackedFile> open(const std::string& path);
  // The next bytes, as many as there is room for; fewer at the end alone.
  Result<std::size_t> read(std::span<char> out);
  // The next line without its end, of any length; nothing after the last one.
  Result<std::optional<std::string>> line();

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  PackedFile(const std::string& path, gzFile_s* file) : path_(path), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::vector<char> part_;  // what line() has read ahead, from at_ on
  std::size_t at_ = 0;
};

// The text of a file.
Result<std::string> read_text(const std::string& path);

// Where a file of the shared data is: below $LOCI_SHARED_DATA, else ../shared/data beside the sources
// ($LOCI_SOURCE_DIR, else the working directory). Nothing where there is no such file.
std::optional<std::string> shared_data(const std::string& name);

}  // namespace loci::sim
