// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_prefills.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/sim/aside_id.h"

namespace loci::sim {
namespace {

// Whoever waits looks at the time so often, so that a run ends soon after its last request.
constexpr Nanos kLooks = kNanosPerSecond;

}  // namespace

void ModelledPrefills::send(const Message& message, Nanos after) {
  messages_.emplace(++last_, message);
  agenda_.add({agenda_.now() + after, Happens::kPrefill, 0, last_});
}

void ModelledPrefills::ask(Arrival asked, PromptNames names, Places places, Nanos begin_limit) {
  const RequestId request = asked.request, id = prefill_id(request, ++tries_);
  asked.request = id;
  asked.max_new_tokens = 1;
  asked.deadline = kNever;
  const bool is_new =
      waiting_
          .emplace(request.value, Waiting{.which_try = tries_,
                                          .at = places,
                                          .process = instances_[places.prefill]->process(),
                                          .decode_process = instances_[places.decode]->process(),
                                          .arrival = std::move(asked),
                                          .names = std::move(names),
                                          .until = agenda_.now() + begin_limit})
          .second;
  LOCI_CHECK(is_new, "a prompt is computed at one prefill member");
  send({.says = Says::kAsk, .id = id}, latency_);
  send({.says = Says::kLook, .id = id}, std::min(begin_limit, kLooks));
}

ModelledPrefills::Waiting* ModelledPrefills::find(RequestId id) {
  const auto at = waiting_.find(request_of(id).value);
  const bool is_it = at != waiting_.end() && prefill_id(request_of(id), at->second.which_try) == id;
  return is_it ? &at->second : nullptr;
}

void ModelledPrefills::leave(RequestId request) {
  const auto left = waiting_.extract(request.value);
  LOCI_CHECK(!left.empty(), "who leaves has waited");
  const Waiting& waiting = left.mapped();
  const RequestId id = prefill_id(request, waiting.which_try);
  cancel_read(waiting, id);
  send_leave(waiting, id);
}

void ModelledPrefills::send_leave(const Waiting& waiting, RequestId id) {
  send({.says = Says::kLeave, .id = id, .prefill = waiting.at.prefill, .process = waiting.process}, latency_);
}

void ModelledPrefills::take_from(std::uint32_t instance) {
  for (const Asides::News& one : instances_[instance]->take_prefill_news()) {
    if (find(one.id) == nullptr) continue;
    Message message{.says = Says::kGoesOn, .id = one.id, .tokens = one.tokens};
    if (one.end) {
      message.says = Says::kEnd;
      message.end = *one.end;
    }
    send(message, latency_);
  }
}

void ModelledPrefills::died(std::uint32_t instance) {
  for (const auto& [request, waiting] : waiting_) {
    if (waiting.at.prefill == instance && waiting.is_there)
      send({.says = Says::kEnd,
            .id = prefill_id(RequestId(request), waiting.which_try),
            .end = PrefillEnd::kLost},
           latency_);
  }
}

void ModelledPrefills::ask_now(Waiting& waiting, RequestId id) {
  ModelledInstance& prefill = *instances_[waiting.at.prefill];
  if (!prefill.lives() || prefill.process() != waiting.process) {
    send({.says = Says::kEnd, .id = id, .end = PrefillEnd::kUnreached}, latency_);
    return;
  }
  waiting.is_there = true;
  prefill.arrive(waiting.arrival, waiting.names);
}

// (What of the prompt is dropped has no place in what another one computed.)
void ModelledPrefills::read(Waiting& waiting, RequestId id, std::uint32_t ready) {
  ModelledInstance& decode = *instances_[waiting.at.decode];
  if (waiting.reads->is_over()) cancel_read(waiting, id);
  const CoreStats stats = decode.core().stats();
  const bool has_room = stats.queued == 0 && stats.running < reads_below_;
  const std::optional<std::uint32_t> next =
      waiting.reads->next(ready, static_cast<std::uint32_t>(waiting.arrival.prompt.size()));
  if (!waiting.arrival.dropped.empty() || !next || !has_room) return;
  waiting.reads->begin(*next);
  Arrival arrival = waiting.arrival;
  arrival.request = read_id(id);
  arrival.prompt.resize(*next + 1);
  decode.read_early(std::move(arrival), waiting.reads);
}

void ModelledPrefills::cancel_read(const Waiting& waiting, RequestId id) {
  ModelledInstance& decode = *instances_[waiting.at.decode];
  const bool lives = decode.lives() && decode.process() == waiting.decode_process;
  if (lives && waiting.reads->is_open()) decode.step(Cancel{read_id(id)});
}

std::optional<ModelledPrefills::Ended> ModelledPrefills::arrive(std::uint64_t number) {
  const auto node = messages_.extract(number);
  LOCI_CHECK(!node.empty(), "a message arrives once");
  const Message& message = node.mapped();
  if (message.says == Says::kLeave) {
    ModelledInstance& prefill = *instances_[message.prefill];
    if (prefill.lives() && prefill.process() == message.process) prefill.step(Cancel{message.id});
    return std::nullopt;
  }
  Waiting* const waiting = find(message.id);
  if (waiting == nullptr) return std::nullopt;
  switch (message.says) {
    case Says::kAsk: ask_now(*waiting, message.id); return std::nullopt;
    case Says::kGoesOn:
      waiting->until = agenda_.now() + kPrefillLimitMax;
      read(*waiting, message.id, message.tokens);
      return std::nullopt;
    case Says::kLook:
      if (const Nanos left = waiting->until - agenda_.now(); left > 0) {
        send({.says = Says::kLook, .id = message.id}, std::min(left, kLooks));
        return std::nullopt;
      }
      send_leave(*waiting, message.id);
      return end(message.id, PrefillEnd::kLate, 0);
    case Says::kEnd:
    case Says::kLeave: break;
  }
  return end(message.id, message.end, message.tokens);
}

// A read that waits gives its place to the request.
ModelledPrefills::Ended ModelledPrefills::end(RequestId id, PrefillEnd end, std::uint32_t computed) {
  const RequestId request = request_of(id);
  const auto ended = waiting_.extract(request.value);
  const Waiting& waiting = ended.mapped();
  if (waiting.reads->is_queued() || waiting.reads->is_over()) cancel_read(waiting, id);
  return {.request = request, .end = end, .computed = computed, .reads = *waiting.reads};
}

}  // namespace loci::sim
