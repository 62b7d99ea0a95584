// SPDX-License-Identifier: Apache-2.0
// Whether programs stand still because memory is short (the kernel's pressure stall information). It is about
// this process's control group if the group reports it, else about the whole machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible, except stop(). Move-only.
class MemoryPressure {
 public:
  // Opens the kernel's files under `root` ("" except in tests).
  explicit MemoryPressure(const std::string& root);
  MemoryPressure(MemoryPressure&& other) noexcept;
  MemoryPressure& operator=(MemoryPressure&&) = delete;
  ~MemoryPressure();

  // The file that is read. Empty: the system reports nothing, and stalled_us() is always 0.
  const std::string& source() const { return source_; }
  // True: stalls are those of this process's control group, not of the whole machine.
  bool is_own() const { return is_own_; }

  // Returns after `time`, or sooner when programs begin to stand still or stop() was called.
  void wait(Nanos time);
  // wait() returns at once from now on. Thread-safe.
  void stop();
  // For how long some program stood still since the last call, in microseconds.
  std::uint64_t stalled_us();

 private:
  std::string source_;
  bool is_own_ = false;
  int trigger_ = -1;  // what the kernel wakes wait() by; -1: it refuses to, as in some containers
  int stop_ = -1;
  std::optional<std::uint64_t> total_us_;  // the value that was read last
};

}  // namespace loci
