// SPDX-License-Identifier: Apache-2.0
// What is counted for as long as it goes on.
#pragma once

#include <atomic>
#include <cstddef>

namespace loci {

// One more in the count while this lives. The count must outlive it.
class Counted {
 public:
  explicit Counted(std::atomic<std::size_t>& count) : count_(count) { count_.fetch_add(1); }
  ~Counted() { count_.fetch_sub(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

}  // namespace loci
