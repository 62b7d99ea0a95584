// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_writer.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "loci/memory/shared/redis_cluster.h"

namespace loci {
namespace {

constexpr std::size_t kForgetsMax = 262'144;       // deletions that wait; beyond it one is dropped
constexpr std::size_t kBatchMax = 256;             // deletions that are asked for together
constexpr Nanos kTendPause = 2 * kNanosPerSecond;  // while a node is away
constexpr Nanos kTendAfter = kNanosPerSecond;      // the last time, at the earliest

Status refused(const RedisReply& reply) { return resource_exhausted(reply.said()); }

}  // namespace

void RedisWriter::forget(const ChainKey& key) {
  if (forgets_.fetch_add(1) >= kForgetsMax) {
    --forgets_;
    store_.account().note_dropped("too many deletions wait");
    return;
  }
  jobs_.push(Forget{.key = key});
}

// --- the writing thread ---

void RedisWriter::run() {
  pthread_setname_np(pthread_self(), "loci-shared-set");
  RedisLine line(store_);
  while (!jobs_.is_drained() || !batch_.empty()) {
    const bool down = !store_.account().is_up();
    const Nanos at = batch_.empty() ? due(down) : 0;
    std::optional<Job> job = jobs_.pop(at == kNever ? kNever : std::max<Nanos>(0, at - store_.clock().now()));
    if (tend_at_ <= store_.clock().now()) tend_now();
    if (down && store_.account().probe_at() <= store_.clock().now()) {
      line.drop();
      store_.account().note_probe(line.get(store_.connect_by()).status());
    }
    if (!job || !std::holds_alternative<Forget>(*job)) forget_batch(line);
    if (job) std::visit([&](auto& one) { carry_out(one, line); }, *job);
    if (batch_.size() >= kBatchMax) forget_batch(line);
    if (!down && !kept_.empty() && kept_at_ <= store_.clock().now()) forget_kept(line);
  }
  while (!kept_.empty()) drop_kept("this server ends");
}

// When there is something to do without a job.
Nanos RedisWriter::due(bool down) const {
  return std::min(
      {tend_at_, down ? store_.account().probe_at() : kNever, down || kept_.empty() ? kNever : kept_at_});
}

// Some of those that the store did not take when it was down.
void RedisWriter::forget_kept(RedisLine& line) {
  if (kept_left_ == 0) kept_left_ = kept_.size();
  for (; kept_left_ > 0 && batch_.size() < kBatchMax; --kept_left_) {
    batch_.push_back(kept_.front());
    kept_.pop_front();
  }
  forget_batch(line);
  // All have been tried before there is a pause: those for nodes that live do not wait for one that is away.
  if (kept_left_ == 0) kept_at_ = store_.clock().now() + kTendPause;
}

void RedisWriter::drop_kept(std::string_view why) {
  kept_.pop_front();
  --forgets_;
  store_.account().note_dropped(why);
}

void RedisWriter::tend_now() {
  const bool is_well = tend_redis_cluster(store_.topology(), store_.clock(), store_.stop());
  tended_at_ = store_.clock().now();
  tend_at_ = is_well ? kNever : tended_at_ + kTendPause;
}

void RedisWriter::carry_out(const Tend&, RedisLine&) {
  tend_at_ = std::min(tend_at_, std::max(store_.clock().now(), tended_at_ + kTendAfter));
}

void RedisWriter::carry_out(Write& job, RedisLine& line) {
  Status status = SharedAccount::not_asked();
  if (store_.asked() && store_.clock().now() >= job.waits_until) {
    status = SharedAccount::behind();
  } else if (store_.asked()) {
    status = write_to(job, line, store_.limit_of(job.bytes.size()));
    note_answer(status, line);
  }
  job.done(status);
}

// They are kept until the store takes or refuses them.
void RedisWriter::forget_batch(RedisLine& line) {
  const std::vector<Forget> batch = std::exchange(batch_, {});
  std::vector<Deletion> ends(batch.size(), Deletion::kUnanswered);
  std::string refusal;
  if (!batch.empty() && store_.asked()) {
    const Status status = forget_in(batch, line, ends, refusal);
    // If all nodes that have them are away, that says nothing of the store.
    const auto is_answer = [](Deletion end) { return end == Deletion::kDone || end == Deletion::kRefused; };
    if (!status.ok() || std::any_of(ends.begin(), ends.end(), is_answer)) note_answer(status, line);
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (ends[i] == Deletion::kUnanswered || ends[i] == Deletion::kAway) {
      kept_.push_back(batch[i]);
      continue;
    }
    --forgets_;
    if (ends[i] == Deletion::kDone)
      store_.account().note_deleted();
    else
      store_.account().note_dropped(refusal);
  }
}

// A store that refuses is in good health.
void RedisWriter::note_answer(const Status& status, RedisLine& line) {
  const bool answered = status.ok() || status.code() == StatusCode::kResourceExhausted;
  if (!answered) line.drop();
  store_.account().note(answered ? Status() : status);
}

// Sets how each ends, kUnanswered from the one on at which the connection failed; `refusal`: the last one's
// text. Errors: the connection's.
Status RedisWriter::forget_in(const std::vector<Forget>& batch, RedisLine& line, std::vector<Deletion>& ends,
                              std::string& refusal) {
  const std::uint32_t groups = store_.format().group_count();
  const Nanos deadline = store_.limit_of(0);
  LOCI_ASSIGN_OR_RETURN(RedisConnection* const connection, line.get(store_.connect_by()));
  for (const Forget& job : batch) {
    for (std::uint32_t group = 0; group < groups; ++group)
      LOCI_RETURN_IF_ERROR(connection->send({"DEL", store_.format().name(job.key, group)}, deadline));
  }
  RedisReply reply;
  for (Deletion& end : ends) {
    Deletion said = Deletion::kDone;
    for (std::uint32_t group = 0; group < groups; ++group) {
      LOCI_RETURN_IF_ERROR(connection->receive(kRedisSmallReplyBytes, deadline, reply));
      if (reply.kind == RedisReply::Kind::kAway && said == Deletion::kDone) said = Deletion::kAway;
      if (reply.kind != RedisReply::Kind::kError) continue;
      said = Deletion::kRefused;
      refusal = reply.said();
    }
    end = said;
  }
  return {};
}

Status RedisWriter::write_to(const Write& job, RedisLine& line, Nanos deadline) {
  LOCI_ASSIGN_OR_RETURN(RedisConnection* const connection, line.get(store_.connect_by()));
  RedisReply reply;
  const std::string name = store_.format().name(job.key, job.group);
  LOCI_ASSIGN_OR_RETURN(const Found found, find(*connection, name, job.group, deadline));
  if (found == Found::kThere) store_.account().count(&SharedStoreStats::parts_present_total, 1);
  if (found == Found::kThere) return {};
  if (found == Found::kAway) return refuse_away();
  const std::vector<std::byte> value = store_.format().seal(job.key, job.group, job.bytes);
  RedisConnection::Words words = {
      "SET", name, std::string_view(reinterpret_cast<const char*>(value.data()), value.size())};
  if (!store_.time_to_live().empty()) {
    words.emplace_back("EX");
    words.emplace_back(store_.time_to_live());
  }
  LOCI_RETURN_IF_ERROR(connection->send(words, deadline));
  LOCI_RETURN_IF_ERROR(connection->receive(kRedisSmallReplyBytes, deadline, reply));
  if (reply.kind == RedisReply::Kind::kError) {
    store_.account().count(&SharedStoreStats::parts_refused_total, 1);
    return refused(reply);
  }
  if (reply.kind == RedisReply::Kind::kAway) return refuse_away();
  store_.account().count(&SharedStoreStats::parts_written_total, 1);
  store_.account().count(&SharedStoreStats::bytes_written_total, value.size());
  return {};
}

Status RedisWriter::refuse_away() {
  store_.account().count(&SharedStoreStats::parts_refused_total, 1);
  return resource_exhausted("the node of the store that would have it is away");
}

// If another server has written it, its time to live begins anew.
Result<RedisWriter::Found> RedisWriter::find(RedisConnection& connection, const std::string& name,
                                             std::uint32_t group, Nanos deadline) {
  const std::string& time_to_live = store_.time_to_live();
  RedisReply reply;
  LOCI_RETURN_IF_ERROR(connection.send({"STRLEN", name}, deadline));
  if (!time_to_live.empty()) LOCI_RETURN_IF_ERROR(connection.send({"EXPIRE", name, time_to_live}, deadline));
  LOCI_RETURN_IF_ERROR(connection.receive(kRedisSmallReplyBytes, deadline, reply));
  bool is_away = reply.kind == RedisReply::Kind::kAway;
  bool there = reply.kind == RedisReply::Kind::kInteger &&
               reply.integer == static_cast<std::int64_t>(store_.format().value_bytes(group));
  if (!time_to_live.empty()) {
    LOCI_RETURN_IF_ERROR(connection.receive(kRedisSmallReplyBytes, deadline, reply));
    is_away = is_away || reply.kind == RedisReply::Kind::kAway;
    there = there && reply.kind == RedisReply::Kind::kInteger && reply.integer == 1;
  }
  return is_away ? Found::kAway : there ? Found::kThere : Found::kNotThere;
}

}  // namespace loci
