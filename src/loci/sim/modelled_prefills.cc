// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_prefills.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/sim/prefill_id.h"

namespace loci::sim {
namespace {

// Whoever waits looks at the time so often, so that a run ends soon after its last request.
constexpr Nanos kLooks = kNanosPerSecond;

}  // namespace

void ModelledPrefills::send(const Message& message, Nanos after) {
  messages_.emplace(++last_, message);
  agenda_.add({agenda_.now() + after, Happens::kPrefill, 0, last_});
}

void ModelledPrefills::ask(Arrival asked, PromptNames names, std::uint32_t prefill, Nanos begin_limit) {
  const RequestId request = asked.request, id = prefill_id(request, ++tries_);
  asked.request = id;
  asked.max_new_tokens = 1;
  asked.deadline = kNever;
  const bool is_new = waiting_
                          .emplace(request.value, Waiting{.which_try = tries_,
                                                          .prefill = prefill,
                                                          .process = instances_[prefill]->process(),
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
  send({.says = Says::kLeave,
        .id = prefill_id(request, waiting.which_try),
        .prefill = waiting.prefill,
        .process = waiting.process},
       latency_);
}

void ModelledPrefills::take_from(std::uint32_t instance) {
  for (const ModelledInstance::Prefilled& one : instances_[instance]->take_prefilled()) {
    if (find(one.id) == nullptr) continue;
    if (one.end)
      send({.says = Says::kEnd, .id = one.id, .end = *one.end, .computed = one.computed}, latency_);
    else
      send({.says = Says::kBegun, .id = one.id}, latency_);
  }
}

void ModelledPrefills::died(std::uint32_t instance) {
  for (const auto& [request, waiting] : waiting_) {
    if (waiting.prefill == instance && waiting.is_there)
      send({.says = Says::kEnd,
            .id = prefill_id(RequestId(request), waiting.which_try),
            .end = PrefillEnd::kLost},
           latency_);
  }
}

void ModelledPrefills::ask_now(Waiting& waiting, RequestId id) {
  ModelledInstance& prefill = *instances_[waiting.prefill];
  if (!prefill.lives() || prefill.process() != waiting.process) {
    send({.says = Says::kEnd, .id = id, .end = PrefillEnd::kUnreached}, latency_);
    return;
  }
  waiting.is_there = true;
  prefill.arrive(waiting.arrival, waiting.names);
}

std::optional<ModelledPrefills::Ended> ModelledPrefills::arrive(std::uint64_t number) {
  const auto node = messages_.extract(number);
  LOCI_CHECK(!node.empty(), "a message arrives once");
  const Message& message = node.mapped();
  const RequestId request = request_of(message.id);
  if (message.says == Says::kLeave) {
    ModelledInstance& prefill = *instances_[message.prefill];
    if (prefill.lives() && prefill.process() == message.process) prefill.step(Cancel{message.id});
    return std::nullopt;
  }
  Waiting* const waiting = find(message.id);
  if (waiting == nullptr) return std::nullopt;
  switch (message.says) {
    case Says::kAsk: ask_now(*waiting, message.id); return std::nullopt;
    case Says::kBegun: waiting->until = agenda_.now() + kPrefillLimitMax; return std::nullopt;
    case Says::kLook:
      if (const Nanos left = waiting->until - agenda_.now(); left > 0) {
        send({.says = Says::kLook, .id = message.id}, std::min(left, kLooks));
        return std::nullopt;
      }
      leave(request);
      return Ended{.request = request, .end = PrefillEnd::kLate};
    case Says::kEnd:
    case Says::kLeave: break;
  }
  waiting_.erase(request.value);
  return Ended{.request = request, .end = message.end, .computed = message.computed};
}

}  // namespace loci::sim
