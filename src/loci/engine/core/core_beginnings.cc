// SPDX-License-Identifier: Apache-2.0
// The ends of sequences (docs/decisions/partial-blocks.md). What a request leaves of its last block, which is
// not whole, is saved as a partial block. A request that goes on from one that a slower tier alone has waits
// until that is on the device; there it is a sibling like others, and its tokens are copied.
//
// An example, of blocks of four tokens. The turn "abcdef" ended, and the process with it. What the disk has:
//
//     root - abcd - ef..       ef..: a partial block, which holds two tokens
//
// The next turn is "abcdefghi". Its block "efgh" is not known; the partial block has its first two tokens.
//
//     arrival        load ef..; wait                     (no longer than half a second)
//     load ended     enter the queue
//     admission      load abcd; "efgh" gets a slot, and a copy of "ef"
//     pass           compute "gh", "i"
//
// When "efgh" is saved the partial block goes: at most one is kept of a sequence.
#include <optional>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

constexpr Nanos kWaitMax = 500 * kNanosPerMilli;  // as a pass waits for loads where nobody decodes

}  // namespace

// Of a request that ends. (Of groups with a window a sequence's end alone is of no use.)
void Core::State::wish_save_tail(const CoreRequest& request) {
  if (!through_ || windows_.any() || request.is_public || !request.tail) return;
  const BlockId id = request.tail->block();
  const Block& tail = index_.block(id);
  if (tail.filled == 0) return;
  const BlockTokens tokens = partial_tokens(std::span<const TokenId>(tail.tokens).first(tail.filled));
  transfers_.wish_save_tail(id, prefixes_.hasher().child(index_.block(tail.parent).key, tokens));
}

// Pins what the device has of what the request goes on from, while slots for loads are found, so that none of
// it is evicted for them.
std::vector<BlockPin> Core::State::hold_there(const CoreProbes& probes) {
  std::vector<BlockPin> there;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (found.node == kNoBlock || (found.load && !windows_.any() && !transfers_.loading(found.node)))
      continue;
    const GroupSet groups = windows_.any() ? groups_before_start(probes, i) : kEveryGroup;
    BlockPin& pin = there.emplace_back(index_.pin(found.node));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (has_group(groups, group) && index_.block(found.node).parts[group]) index_.hold(pin, group);
    }
  }
  return there;
}

// The rules that weigh do so for this block alone: it is waited for before anything else begins.
bool Core::State::worth_loading(const CoreBeginning& beginning) const {
  if (restore_rule_ == RestoreRule::kRecompute || transfers_.overdue(beginning.from)) return false;
  if (restore_rule_ == RestoreRule::kKv || restore_rule_ == RestoreRule::kHidden) return true;
  if (restore_rule_ == RestoreRule::kPensieve) return beginning.from == Tier::kHost;
  const CoreProbe probe{.key = {}, .node = beginning.block};
  const RestorableBlock block = transfers_.restorable(probe, beginning.number);
  const RestoreLink link = transfers_.link(beginning.from);
  const Nanos compute =
      pass_times_.compute(beginning.number * kBlockTokens + beginning.there, beginning.run - beginning.there);
  return link.booked + link.latency + block.load + block.charge < compute;
}

// True: it waits for the first tokens of a block, and is in no queue.
bool Core::State::await_beginning(CoreRequest& request) {
  if (windows_.any() || request.is_public || request.paused || !config_.reuse || device_memory_.limited())
    return false;
  const Tier slowest = slowest_for(request);
  if (slowest == Tier::kDevice || before_queue_.full()) return false;
  if (!prefixes_.may_have_beginning(request, slowest)) return false;
  const CoreProbes probes = choose(request, true, slowest);
  const std::optional<CoreBeginning> found = prefixes_.find_beginning(request, probes, slowest);
  if (!found || !worth_loading(*found)) return false;
  if (!transfers_.loading(found->block)) {
    const std::vector<BlockPin> there = hold_there(probes);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.available(group) < 1 + reserve_blocks_[group]) return false;
    }
    const Transfers::Ahead ahead{.found = {.key = found->key, .node = found->block}};
    transfers_.load_ahead({&ahead, 1});
  }
  request.beginning = found;
  request.awaits_beginning = true;
  before_queue_.enter(request, now_ + kWaitMax);
  return true;
}

// Who waited for what has come, or will not, goes on.
void Core::State::end_waits() {
  const auto is_over = [this](const CoreRequest& request) {
    const BlockId block = index_.find(request.beginning->key);
    return block == kNoBlock || !transfers_.loading(block);
  };
  for (CoreRequest* request : before_queue_.beginnings(is_over)) {
    before_queue_.leave(*request);
    enqueue(*request);
  }
}

// --- what the store that servers share has ---

// True: the request waits to hear what the store has of it.
bool Core::State::ask(CoreRequest& request, Plan& plan) {
  if (before_queue_.full()) return false;
  std::optional<SharedAsk> ask = shared_questions_.ask(request);
  if (!ask) return false;
  before_queue_.enter(request, now_ + ask->time_limit);
  plan.asks.push_back(std::move(*ask));
  return true;
}

// Who was not answered in time goes on without.
void Core::State::end_asks() {
  while (!before_queue_.empty() && before_queue_.next() <= now_) {
    CoreRequest& request = before_queue_.first();
    before_queue_.leave(request);
    enqueue(request);
  }
}

void Core::State::on(const SharedAnswer& event, Plan&) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end() || found->second->runs()) return;
  CoreRequest& request = *found->second;
  if (!shared_questions_.take_answer(request, event.groups)) return;
  if (blocked_head_ == request.id) room_changed();
  if (!request.before_queue_until) return;  // it came late; whoever still waits may use it
  before_queue_.leave(request);
  if (!await_beginning(request)) enqueue(request);
}

// Beyond which nothing is loaded for the request.
Tier Core::State::slowest_for(const CoreRequest& request) const {
  const Tier slowest = request.answered ? transfers_.slowest_readable() : transfers_.slowest_own();
  if (!request.without_disk || slowest < Tier::kDisk) return slowest;
  return index_.has_tier(Tier::kHost) ? Tier::kHost : Tier::kDevice;
}

}  // namespace loci
