// SPDX-License-Identifier: Apache-2.0
// Requests of an instance's core for which no client waits (aside_id.h): prompts that it computes for another
// instance, and its own early reads of such prompts. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/plan.h"
#include "loci/serve/generation/early_read_pace.h"
#include "loci/serve/generation/prefill.h"
#include "loci/sim/ledger.h"

namespace loci::sim {

class Asides {
 public:
  // What another instance is told of a prompt that is computed for it.
  struct News {
    RequestId id;
    std::optional<PrefillEnd> end;  // absent: it has begun, and goes on
    // Absent an end, how many of its first tokens have state; else those that were computed, without what was
    // there before.
    std::uint32_t tokens = 0;
  };

  // It is about to arrive. `pace`: of a read.
  void add(RequestId id, std::uint32_t prompt_tokens, std::shared_ptr<EarlyReadPace> pace);
  bool contains(RequestId id) const { return live_.contains(id.value); }
  void see(const Output& output, Ledger& ledger);
  // A pass has computed so much of it.
  void computed(RequestId id, std::uint32_t tokens);
  std::vector<News> take_news() { return std::exchange(news_, {}); }
  void clear();

 private:
  struct Live {
    std::uint32_t prompt_tokens = 0, to_compute = 0;
    std::shared_ptr<EarlyReadPace> pace;  // null: a prompt for another instance
  };

  std::unordered_map<std::uint64_t, Live> live_;  // by id
  std::vector<News> news_;
};

}  // namespace loci::sim
