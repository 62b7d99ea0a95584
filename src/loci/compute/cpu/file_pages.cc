// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/file_pages.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "loci/base/memory_pages.h"

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
  const WholePages pages =
      whole_pages(tensor.data + begin * tensor.row_bytes(), (end - begin) * tensor.row_bytes());
  for (const Mapping& mapping : mappings_) {
    if (mapping.begin <= pages.begin && pages.begin + pages.bytes <= mapping.end) give_back(pages);
  }
}

}  // namespace loci::cpu
