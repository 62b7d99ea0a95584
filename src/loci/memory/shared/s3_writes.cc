// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_writes.h"

#include <utility>

#include "loci/memory/shared/s3_verdict.h"

namespace loci {
namespace {

constexpr std::uint32_t kWriteTries = 4;
constexpr std::size_t kRenewalsMax = 64;  // that wait with writes

}  // namespace

void S3Writes::begin(S3Write job) {
  const Write write = std::make_shared<S3Write>(std::move(job));
  if (!state_.account.is_up()) {
    write->done(SharedAccount::not_asked());
    return;
  }
  open_.begin(write->key);
  client_.begin({.verb = S3Request::Verb::kHead,
                 .lane = S3Request::Lane::kWrites,
                 .name = s3_object_name(state_.format, write->key, write->group),
                 .waits_until = write->waits_until,
                 .time_limit = state_.limit_of(0),
                 .tries = kWriteTries,
                 .done = [this, write](const S3Reply& reply) { take_head(write, reply); }});
}

void S3Writes::take_head(const Write& write, const S3Reply& reply) {
  // It asks for patience. (What else it says to a question may be about the login: a HEAD is answered without
  // a text.)
  if (reply.head.code == 429 || reply.head.code >= 500) {
    const std::string refusal = s3_refusal(reply);
    if (!refusal.empty()) return refuse(write, refusal, true);
  }
  const Status health = s3_health(reply);
  if (reply.was_sent) state_.account.note(health);
  if (!health.ok()) {
    open_.end(write->key, true, false);
    return write->done(health);
  }
  const bool is_there = reply.head.code == 200 &&
                        reply.head.object_bytes() == state_.format.value_bytes(write->group) &&
                        !state_.is_aged(reply.head);
  if (!is_there) return send(write);
  open_.end(write->key, true, true);
  state_.account.count(&SharedStoreStats::parts_present_total, 1);
  write->done({});
}

void S3Writes::send(const Write& write) {
  std::vector<std::byte> value = state_.format.seal(write->key, write->group, write->bytes);
  std::vector<std::byte>().swap(write->bytes);  // gives its memory back
  const std::uint64_t bytes = value.size();
  client_.begin({.verb = S3Request::Verb::kWrite,
                 .lane = S3Request::Lane::kWrites,
                 .name = s3_object_name(state_.format, write->key, write->group),
                 .body = std::move(value),
                 .waits_until = kNever,
                 .time_limit = state_.limit_of(bytes),
                 .tries = kWriteTries,
                 .done = [this, write, bytes](const S3Reply& reply) { take_reply(write, bytes, reply); }});
}

void S3Writes::take_reply(const Write& write, std::uint64_t bytes, const S3Reply& reply) {
  const std::string refusal = s3_refusal(reply);
  if (!refusal.empty()) return refuse(write, refusal, !reply.is_open);
  const Status health = s3_health(reply);
  open_.end(write->key, !reply.is_open, health.ok());
  // Some stores that are full do not answer. The question before has shown that this one is there.
  if (health.code() != StatusCode::kDeadlineExceeded) state_.account.note(health);
  if (health.ok()) {
    state_.account.count(&SharedStoreStats::parts_written_total, 1);
    state_.account.count(&SharedStoreStats::bytes_written_total, bytes);
  }
  write->done(health);
}

// A store that refuses, or asks for patience, is in good health.
void S3Writes::refuse(const Write& write, const std::string& refusal, bool is_over) {
  open_.end(write->key, is_over, false);
  state_.account.note({});
  state_.account.count(&SharedStoreStats::parts_refused_total, 1);
  write->done(resource_exhausted(refusal));
}

void S3Writes::renew(const ChainKey& key, std::uint32_t group) {
  if (!state_.account.is_up() || client_.waiting(S3Request::Lane::kWrites) >= kRenewalsMax) return;
  // (What becomes of it is no matter: the value is as old as it was, or gone.)
  open_.begin(key);
  client_.begin({.verb = S3Request::Verb::kRenew,
                 .lane = S3Request::Lane::kWrites,
                 .name = s3_object_name(state_.format, key, group),
                 .waits_until = kNever,
                 .time_limit = state_.limit_of(0),
                 .done = [this, key](const S3Reply& reply) { open_.end(key, !reply.is_open, false); }});
}

}  // namespace loci
