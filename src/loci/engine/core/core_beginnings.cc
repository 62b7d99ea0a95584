// SPDX-License-Identifier: Apache-2.0
// What happens before the queue: the store that servers share is asked (shared_questions.h), and the ends of
// sequences are brought back (docs/decisions/partial-blocks.md). What a request leaves of its last block,
// which is not whole, is saved as a partial block. A request that goes on from one that a slower tier alone
// has waits until that is on the device; there it is a sibling like others, and its tokens are copied.
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

// True: it waits for the first tokens of a block, and is in no queue.
bool Core::State::await_beginning(CoreRequest& request) {
  if (windows_.any() || request.is_public || request.paused || !config_.reuse || device_memory_.limited())
    return false;
  const Tier slowest = restores_.slowest_for(request);
  if (slowest == Tier::kDevice || before_queue_.full()) return false;
  if (!prefixes_.may_have_beginning(request, slowest)) return false;
  const CoreProbes probes = restores_.choose(request, {.slowest = slowest, .in_flight = !flights_.empty()});
  const std::optional<CoreBeginning> found = prefixes_.find_beginning(request, probes, slowest);
  if (!found || !restores_.worth_loading(*found)) return false;
  if (!transfers_.loading(found->block)) {
    const std::vector<BlockPin> there = admission_.hold_there(probes);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.available(group) < 1 + admission_.reserve(group)) return false;
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
  if (room_.is_blocked(request.id)) room_.changed();
  if (!request.before_queue_until) return;  // it came late; whoever still waits may use it
  before_queue_.leave(request);
  if (!await_beginning(request)) enqueue(request);
}

}  // namespace loci
