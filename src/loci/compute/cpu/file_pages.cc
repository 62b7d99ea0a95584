// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/file_pages.h"

#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace loci::cpu {

FilePages::FilePages() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    unsigned long inode = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &begin, &end, access, &inode) == 4 &&
        inode != 0 && std::string_view(access).starts_with("r--")) {
      mappings_.push_back({begin, end});
    }
  }
}

void FilePages::release(const TensorView& tensor, std::uint64_t begin, std::uint64_t end) const {
  constexpr std::uintptr_t kPage = 4096;
  const auto data = reinterpret_cast<std::uintptr_t>(tensor.data);
  const std::uintptr_t first = (data + begin * tensor.row_bytes() + kPage - 1) / kPage * kPage;
  const std::uintptr_t last = (data + end * tensor.row_bytes()) / kPage * kPage;
  if (first >= last) return;
  for (const Mapping& mapping : mappings_) {
    if (mapping.begin <= first && last <= mapping.end)
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

}  // namespace loci::cpu
