// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_questions.h"

#include <algorithm>
#include <utility>

#include "loci/memory/shared/s3_verdict.h"

namespace loci {

void S3Questions::begin(S3Question question) {
  const auto open = std::make_shared<Open>();
  open->groups.assign(question.keys.size(), 0);
  open->left = question.keys.size() * values_.format.group_count();
  open->question = std::move(question);
  const bool may_ask = values_.account.is_up() && clock_.now() < open->question.deadline &&
                       client_.waiting(S3Request::Lane::kQuestions) + open->left <= kWaitingMax;
  if (!may_ask) open->has_failed = true;
  if (!may_ask || open->left == 0) return answer(*open);
  client_.later(open->question.deadline, [this, open] { answer(*open); });
  for (std::size_t i = 0; i < open->question.keys.size(); ++i) {
    for (std::uint32_t group = 0; group < values_.format.group_count(); ++group) ask(open, i, group);
  }
}

void S3Questions::ask(const std::shared_ptr<Open>& open, std::size_t index, std::uint32_t group) {
  client_.begin(
      {.verb = S3Request::Verb::kHead,
       .lane = S3Request::Lane::kQuestions,
       .name = s3_object_name(values_.format, open->question.keys[index], group),
       .waits_until = open->question.deadline,
       .time_limit = time_limit_,
       .done = [this, open, index, group](const S3Reply& reply) { take_reply(*open, index, group, reply); }});
}

void S3Questions::take_reply(Open& open, std::size_t index, std::uint32_t group, const S3Reply& reply) {
  const Status health = s3_health(reply);
  // A store that asks for fewer questions is not away.
  const bool is_throttled = reply.head.code == 429 || reply.head.code == 503;
  if (reply.was_sent && !is_throttled) values_.account.note(health);
  if (!health.ok()) open.has_failed = true;
  const bool is_there = health.ok() && reply.head.code == 200 &&
                        reply.head.object_bytes() == values_.format.value_bytes(group) &&
                        !values_.is_expired(reply.head);
  if (is_there && !open.is_answered) open.groups[index] |= static_cast<std::uint8_t>(1u << group);
  if (--open.left == 0) answer(open);
}

void S3Questions::answer(Open& open) {
  if (open.is_answered) return;
  open.is_answered = true;
  if (open.has_failed || open.left > 0) values_.account.count(&SharedStoreStats::asks_failed_total, 1);
  std::uint64_t found = 0;
  for (const std::uint8_t bits : open.groups) found += static_cast<std::uint64_t>(__builtin_popcount(bits));
  values_.account.count(&SharedStoreStats::parts_found_total, found);
  open.question.answer(std::move(open.groups));
}

}  // namespace loci
