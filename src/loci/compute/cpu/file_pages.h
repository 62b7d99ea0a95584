// SPDX-License-Identifier: Apache-2.0
// Gives pages of mapped model files back to the system, so that they do not count as this process's memory.
// They are read again when touched (from the system's cache, if it still has them).
#pragma once

#include <cstdint>
#include <vector>

#include "loci/model/tensor.h"

namespace loci::cpu {

// Thread-safe once made. Knows the mappings that existed when it was made.
class FilePages {
 public:
  FilePages();

  // Takes the whole pages of rows [begin, end) out of the process's memory. Only read-only mappings of files
  // are touched; other memory stays as it is.
  void release(const TensorView& tensor, std::uint64_t begin, std::uint64_t end) const;

 private:
  struct Mapping {
    std::uintptr_t begin, end;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace loci::cpu
