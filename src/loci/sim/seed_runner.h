// SPDX-License-Identifier: Apache-2.0
// Runs many seeds on several threads. When one of them ends the program, by a broken invariant or a signal,
// the command that repeats it is printed first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace loci {

struct SeedRange {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
};

// What a seed did, as a digest: the same seed gives the same one on every machine and in every build.
using SeedRun = std::function<std::uint64_t(std::uint64_t seed)>;
// After each seed, by any thread, one at a time: how many are done.
using SeedListener = std::function<void(std::uint64_t done)>;

// The digests together, whatever their order was. `command` repeats one seed, whose number is put behind it.
// Not to be called twice at a time, as it takes the program's handlers of signals.
std::uint64_t run_seeds(SeedRange seeds, unsigned threads, const std::string& command, const SeedRun& run,
                        const SeedListener& listener);

}  // namespace loci
