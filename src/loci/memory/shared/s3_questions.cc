// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_questions.h"

#include <algorithm>
#include <utility>

#include "loci/memory/shared/s3_verdict.h"

namespace loci {

void S3Questions::begin(S3Question question) {
  const auto open = std::make_shared<Open>();
  const std::size_t keys = question.keys.size();
  open->groups.assign(keys, 0);
  open->left.assign(keys, state_.format.group_count());
  open->question = std::move(question);
  const bool may_ask = state_.account.is_up() && clock_.now() < open->question.deadline &&
                       open_count_ < kOpenMax && open_keys_ + keys <= kKeysMax;
  ++open_count_;
  open_keys_ += keys;
  open->has_failed = !may_ask;
  if (!may_ask || keys == 0) return answer(*open);
  client_.later(open->question.deadline, [this, open] { answer(*open); });
  queue(open);
  go_on();
}

void S3Questions::queue(const Turn& open) {
  if (open->waits || !open->may_ask()) return;
  open->waits = true;
  turns_.push_back(open);
}

void S3Questions::go_on() {
  while (!turns_.empty() && under_way_ < at_once_) {
    const Turn open = std::move(turns_.front());
    turns_.pop_front();
    open->waits = false;
    if (!open->may_ask()) continue;  // it was answered meanwhile
    if (state_.account.is_up()) {
      ask(open);
    } else {
      open->has_failed = true;
      answer(*open);
    }
    queue(open);
  }
}

void S3Questions::ask(const Turn& open) {
  const std::size_t index = open->next++;
  const std::uint32_t groups = state_.format.group_count();
  under_way_ += groups;
  state_.account.count(&SharedStoreStats::parts_asked_total, groups);
  for (std::uint32_t group = 0; group < groups; ++group) {
    client_.begin({.verb = S3Request::Verb::kHead,
                   .lane = S3Request::Lane::kQuestions,
                   .name = s3_object_name(state_.format, open->question.keys[index], group),
                   .waits_until = open->question.deadline,
                   .time_limit = time_limit_,
                   .done = [this, open, index, group](const S3Reply& reply) {
                     take_reply(open, index, group, reply);
                   }});
  }
}

void S3Questions::take_reply(const Turn& open, std::size_t index, std::uint32_t group, const S3Reply& reply) {
  --under_way_;
  const Status health = s3_health(reply);
  // A store that asks for fewer questions is not away.
  const bool is_throttled = reply.head.code == 429 || reply.head.code == 503;
  if (reply.was_sent && !is_throttled) state_.account.note(health);
  if (!health.ok()) open->has_failed = true;
  const bool is_there = health.ok() && reply.head.code == 200 &&
                        reply.head.object_bytes() == state_.format.value_bytes(group) &&
                        !state_.is_expired(reply.head);
  if (open->is_answered) return go_on();
  if (is_there) open->groups[index] |= static_cast<std::uint8_t>(1u << group);
  --open->left[index];
  while (open->known < open->next && open->left[open->known] == 0 && open->misses < kMissesMax) {
    const bool is_found = open->groups[open->known++] != 0;
    open->misses = is_found ? 0 : open->misses + 1;
    open->window = is_found ? std::min(open->window + 1, kWindowMax) : kMissesMax;
  }
  if (open->known == open->question.keys.size() || open->misses == kMissesMax) answer(*open);
  queue(open);
  go_on();
}

void S3Questions::answer(Open& open) {
  if (open.is_answered) return;
  open.is_answered = true;
  --open_count_;
  open_keys_ -= open.question.keys.size();
  const bool is_whole = open.known == open.question.keys.size() || open.misses == kMissesMax;
  if (open.has_failed || !is_whole) state_.account.count(&SharedStoreStats::asks_failed_total, 1);
  std::uint64_t found = 0;
  for (const std::uint8_t bits : open.groups) found += static_cast<std::uint64_t>(__builtin_popcount(bits));
  state_.account.count(&SharedStoreStats::parts_found_total, found);
  open.question.answer(std::move(open.groups));
}

}  // namespace loci
