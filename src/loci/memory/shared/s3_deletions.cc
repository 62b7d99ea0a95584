// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_deletions.h"

#include <algorithm>
#include <utility>

#include "loci/memory/shared/s3_verdict.h"

namespace loci {
namespace {

constexpr std::size_t kUnderWayMax = 8;

}  // namespace

void S3Deletions::take(const ChainKey& key) {
  if (count_.fetch_add(1) >= kMax) {
    --count_;
    state_.account.note_dropped("too many deletions wait");
    return;
  }
  const bool is_taken = client_.post([this, key] { queue(key); });
  if (!is_taken) state_.account.note_dropped("this server ends");
}

void S3Deletions::queue(const ChainKey& key) {
  waiting_.push_back(key);
  keys_.insert(key);
  go_on();
}

void S3Deletions::go_on() {
  if (is_over_) return drop_all();
  if (!state_.account.is_up() || clock_.now() < paused_until_) return;
  for (std::size_t left = waiting_.size(); left > 0 && under_way_ < kUnderWayMax; --left) {
    const ChainKey key = waiting_.front();
    waiting_.pop_front();
    if (open_.is_open(key))
      waiting_.push_back(key);
    else
      begin(key);
  }
}

void S3Deletions::begin(const ChainKey& key) {
  ++under_way_;
  open_.begin_deletion(key);
  const std::uint32_t groups = state_.format.group_count();
  const auto deletion = std::make_shared<Deletion>(
      Deletion{.key = key, .late = open_.late_until(key), .left = groups, .refusal = {}});
  for (std::uint32_t group = 0; group < groups; ++group) {
    client_.begin({.verb = S3Request::Verb::kDelete,
                   .lane = S3Request::Lane::kDeletions,
                   .name = s3_object_name(state_.format, key, group),
                   .waits_until = kNever,
                   .time_limit = state_.limit_of(0),
                   .done = [this, deletion](const S3Reply& reply) { take_reply(*deletion, reply); }});
  }
}

void S3Deletions::take_reply(Deletion& deletion, const S3Reply& reply) {
  // A store that refuses is in good health.
  const std::uint32_t code = reply.head.code;
  const bool asks_for_patience =
      code == 429 || code == 503 || code == 408 || reply.error.code == "RequestTimeout";
  const std::string refusal = asks_for_patience || code >= 500 ? "" : s3_refusal(reply);
  const Status health = refusal.empty() ? s3_health(reply) : Status();
  if (!asks_for_patience) state_.account.note(health);
  if (!refusal.empty()) deletion.refusal = refusal;
  if (!health.ok()) deletion.has_failed = true;
  if (--deletion.left == 0) end(deletion);
}

void S3Deletions::end(const Deletion& deletion) {
  --under_way_;
  const bool is_wanted = open_.end_deletion(deletion.key);
  if (deletion.has_failed && !is_over_) {
    waiting_.push_back(deletion.key);
    paused_until_ = clock_.now() + kPause;
    client_.later(paused_until_, [this] { go_on(); });
    return;
  }
  --count_;
  keys_.erase(keys_.find(deletion.key));
  // What the store may write yet is deleted after it.
  if (deletion.late != 0 && !is_wanted && !is_over_) {
    open_.repeat_deletion(deletion.key, deletion.late);
    client_.later(deletion.late, [this, key = deletion.key, late = deletion.late] { repeat(key, late); });
  }
  if (deletion.has_failed)
    state_.account.note_dropped("this server ends");
  else if (!deletion.refusal.empty())
    state_.account.note_dropped(deletion.refusal);
  else
    state_.account.note_deleted();
  go_on();
}

void S3Deletions::repeat(const ChainKey& key, Nanos late) {
  if (is_over_ || !open_.has_repeat(key, late)) return;  // it was dropped with the others, or is not wanted
  if (open_.is_open(key)) {
    // What is being written may be wanted.
    client_.later(clock_.now() + kPause, [this, key, late] { repeat(key, late); });
  } else if (open_.take_repeat(key, late)) {
    take(key);
  }
}

void S3Deletions::drop_all() {
  const std::size_t repeats = std::exchange(is_over_, true) ? 0 : open_.repeats();
  for (; !waiting_.empty(); waiting_.pop_front()) {
    --count_;
    keys_.erase(keys_.find(waiting_.front()));
    state_.account.note_dropped("this server ends");
  }
  for (std::size_t i = 0; i < repeats; ++i) state_.account.note_dropped("this server ends");
}

}  // namespace loci
