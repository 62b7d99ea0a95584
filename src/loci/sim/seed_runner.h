// SPDX-License-Identifier: Apache-2.0
// Runs many seeds on several threads. If a seed ends the program, by a broken invariant or a signal, the
// command that repeats this seed is printed first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace loci {

struct SeedRange {
  std::uint64_t first = 1;
  std::uint64_t count = 0;
};

// Runs one seed and returns a digest of the run. The same seed gives the same digest on every machine and in
// every build.
using SeedRun = std::function<std::uint64_t(std::uint64_t seed)>;
// Called after each seed with the number of seeds done; by any thread, but never by two at once.
using SeedListener = std::function<void(std::uint64_t done)>;

// Returns a digest of all digests, which does not depend on their order. `command`, followed by a seed's
// number, repeats that seed. Must not run twice at once, because it takes over the program's signal handlers.
std::uint64_t run_seeds(SeedRange seeds, unsigned threads, const std::string& command, const SeedRun& run,
                        const SeedListener& listener);

}  // namespace loci
