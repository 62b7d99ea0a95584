// SPDX-License-Identifier: Apache-2.0
// libFuzzer: the bytes are the choices of a world (core_world.h).
#include <cstddef>
#include <cstdint>

#include "loci/sim/core_world.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t next = 0;
  const loci::Chooser choose = [&](std::uint64_t bound) -> std::uint64_t {
    const std::size_t width = bound <= 256 ? 1 : 2;
    if (next + width > size) return bound - 1;  // the end: nothing unlikely happens any more
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < width; ++i) word = word << 8 | data[next++];
    return word % bound;
  };
  const std::uint64_t kind = choose(6);
  const loci::CoreWorldOptions options = kind == 0   ? loci::random_world(choose)
                                         : kind == 1 ? loci::random_window_world(choose)
                                         : kind == 2 ? loci::random_tier_world(choose)
                                         : kind == 4 ? loci::random_shared_world(choose)
                                         : kind == 5 ? loci::random_cut_world(choose)
                                                     : loci::random_ahead_world(choose);
  loci::World(options, choose).run();
  return 0;
}
