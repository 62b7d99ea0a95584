// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_store.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "loci/memory/shared/job_queue.h"
#include "loci/memory/shared/redis_cluster.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_dialer.h"
#include "loci/memory/shared/redis_rate.h"
#include "loci/memory/shared/redis_read.h"
#include "loci/memory/shared/redis_store_state.h"
#include "loci/memory/shared/redis_writer.h"
#include "loci/memory/shared/shared_reads.h"

namespace loci {
namespace {

constexpr Nanos kMeasureLimit = 200 * kNanosPerMilli;  // by which the start is longer at most
constexpr std::size_t kAsksMax = 1024;                 // that wait; beyond it nothing is there
constexpr std::size_t kAskedAhead = 512;               // questions that are sent before an answer is taken

struct AskJob {
  std::vector<ChainKey> keys;
  Nanos deadline = 0;
  SharedStore::Answer answer;
};

// Routes calls to its threads; redis_writer.h has the one that writes.
class RedisStore final : public SharedStore {
 public:
  RedisStore(RedisStoreOptions options, const Clock& clock)
      : state_(std::move(options), clock, [this] { writer_.tend(); }), writer_(state_) {}

  // Once, before anything else.
  Status begin() {
    const auto dial = [this] {
      return open_redis(state_.topology(), RedisDialing::kAtOnce, state_.clock(), state_.stop(),
                        state_.connect_by());
    };
    Result<std::unique_ptr<RedisConnection>> first = dial();
    const Status& status = first.status();
    if (status.code() == StatusCode::kInvalidArgument) return status;
    if (!status.ok()) state_.account().begin_down(status);
    if (first.ok()) asking_ = std::move(first).value();
    if (asking_ != nullptr && !state_.topology().is_cluster()) {
      const RedisRate measured = measure_redis_rate(*asking_, state_.clock(), kMeasureLimit);
      first_rate_ = measured.rate;
      if (!measured.is_usable) asking_ = nullptr;
    }
    const auto told = [this](const Status& made) {
      // (That it may be connected to does not make good that it does not answer.)
      if (!made.ok()) note_status(made);
    };
    dialer_ = std::make_unique<RedisDialer>(dial, told, state_.clock());
    if (status.ok() && asking_ == nullptr)
      dialer_->begin();  // so that the first question need not wait for it
    threads_.emplace_back([this] { run("loci-shared-ask", asks_, &RedisStore::ask_now); });
    threads_.emplace_back([this] { writer_.run(); });
    for (std::uint32_t i = 0; i < std::max(1u, state_.options().readers); ++i)
      reads_.push_back(std::make_unique<JobQueue<RedisRead>>());
    for (const auto& queue : reads_)
      threads_.emplace_back([this, &queue] { run("loci-shared-get", *queue, &RedisStore::read_now); });
    return {};
  }

  ~RedisStore() override {
    state_.begin_stop();
    asks_.close();
    writer_.close();
    for (const auto& queue : reads_) queue->close();
    for (std::thread& thread : threads_) thread.join();
    dialer_.reset();
  }

  void ask(std::vector<ChainKey> keys, Nanos time_limit, Answer answer) override {
    state_.account().count(&SharedStoreStats::asks_total, 1);
    state_.account().count(&SharedStoreStats::parts_asked_total, keys.size() * state_.format().group_count());
    AskJob job{
        .keys = std::move(keys), .deadline = state_.clock().now() + time_limit, .answer = std::move(answer)};
    if (asks_.size() >= kAsksMax) job.deadline = 0;
    asks_.push(std::move(job));
  }

  void read(std::vector<BlockRead> items, std::uint32_t, std::shared_ptr<BlockReadSink> sink) override {
    const Nanos waits_until = state_.clock().now() + state_.options().transfer_limit;
    for (std::vector<RedisRead::Item>& own : divide_reads<RedisRead::Item>(items, reads_.size())) {
      const std::size_t queue = (next_reader_.fetch_add(1, std::memory_order_relaxed)) % reads_.size();
      reads_[queue]->push(RedisRead(std::move(own), sink, waits_until));
    }
  }

  void write(std::uint32_t group, SlotId, BlockEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    writer_.write({.key = entry.key,
                   .group = group,
                   .bytes = std::move(bytes),
                   .done = std::move(done),
                   .waits_until = state_.clock().now() + state_.options().transfer_limit});
  }

  void change(const RecordChange& change) override {
    if (change.kind == RecordChange::Kind::kForget) writer_.forget(change.entry.key);
  }

  SharedStoreStats stats() const override { return state_.account().stats(); }
  std::optional<SharedRate> first_rate() const override { return first_rate_; }

 private:
  template <class Job>
  void run(const char* name, JobQueue<Job>& queue, void (RedisStore::*work)(Job&, RedisLine&)) {
    pthread_setname_np(pthread_self(), name);
    RedisLine line(state_);
    while (!queue.is_drained()) {
      std::optional<Job> job = queue.pop(kNever);
      if (job) (this->*work)(*job, line);
    }
  }

  // Of an operation of other threads than the writer's.
  void note_status(const Status& status) {
    state_.account().note(status);
    // (Whatever it was before: a probe may have succeeded between a look at that and this note.)
    if (!status.ok() && !state_.account().is_up()) writer_.wake();
  }

  // --- asking ---

  void ask_now(AskJob& job, RedisLine&) {
    std::vector<std::uint8_t> groups(job.keys.size(), 0);
    Status status = SharedAccount::not_asked();
    const Nanos begin = state_.clock().now();
    if (state_.asked() && begin < job.deadline) {
      if (asking_ == nullptr || !asking_->is_open()) asking_ = dialer_->take(job.deadline);
      // (What becomes of a connection the dialer tells.)
      if (asking_ != nullptr) {
        status = ask_lengths(job, *asking_, groups);
        const bool is_fair =
            status.code() != StatusCode::kDeadlineExceeded || job.deadline - begin >= kRedisFairWait;
        if (is_fair) note_status(status);
        if (!status.ok()) {
          // Replies that nobody waits for are on their way.
          asking_.reset();
          dialer_->begin();
        }
      }
    }
    if (!status.ok()) {
      state_.account().count(&SharedStoreStats::asks_failed_total, 1);
      groups.assign(job.keys.size(), 0);
    }
    std::uint64_t found = 0;
    for (const std::uint8_t bits : groups) found += static_cast<std::uint64_t>(__builtin_popcount(bits));
    state_.account().count(&SharedStoreStats::parts_found_total, found);
    job.answer(std::move(groups));
  }

  Status ask_lengths(const AskJob& job, RedisConnection& connection, std::vector<std::uint8_t>& groups) {
    const std::size_t questions = job.keys.size() * state_.format().group_count();
    RedisReply reply;
    for (std::size_t sent = 0, taken = 0; taken < questions; ++taken) {
      for (; sent < questions && sent < taken + kAskedAhead; ++sent) {
        const std::string name = name_of(job, sent);
        LOCI_RETURN_IF_ERROR(connection.send({"STRLEN", name}, job.deadline));
      }
      LOCI_RETURN_IF_ERROR(connection.receive(kRedisSmallReplyBytes, job.deadline, reply));
      if (reply.kind == RedisReply::Kind::kError) return {StatusCode::kUnavailable, reply.said()};
      const auto group = static_cast<std::uint32_t>(taken % state_.format().group_count());
      const bool there = reply.kind == RedisReply::Kind::kInteger &&
                         reply.integer == static_cast<std::int64_t>(state_.format().value_bytes(group));
      if (there) groups[taken / state_.format().group_count()] |= static_cast<std::uint8_t>(1u << group);
    }
    return {};
  }

  std::string name_of(const AskJob& job, std::size_t question) const {
    return state_.format().name(job.keys[question / state_.format().group_count()],
                                static_cast<std::uint32_t>(question % state_.format().group_count()));
  }

  // --- reading ---

  void read_now(RedisRead& job, RedisLine& line) {
    if (!state_.asked()) {
      // Refused at once: nobody waits for a deadline of which it is known how it ends.
      job.end(SharedAccount::not_asked());
      return;
    }
    if (state_.clock().now() >= job.waits_until()) {
      // It waited behind others, which says nothing of the store.
      job.end(SharedAccount::behind());
      return;
    }
    Result<RedisConnection*> connection = line.get(state_.connect_by());
    Status status = connection.status();
    if (status.ok()) {
      status =
          job.carry_out(**connection, state_.format(), {state_.options().window_bytes, state_.time_to_live()},
                        state_.limit_of(job.bytes(state_.format())));
      if (!status.ok()) line.drop();
    }
    // A store that is slow is not one that is silent.
    if (status.code() != StatusCode::kDeadlineExceeded || job.counts().bytes == 0) note_status(status);
    const RedisRead::Counts& counts = job.counts();
    state_.account().count(&SharedStoreStats::parts_read_total, counts.read);
    state_.account().count(&SharedStoreStats::parts_gone_total, counts.gone);
    state_.account().count(&SharedStoreStats::parts_damaged_total, counts.damaged.size());
    state_.account().count(&SharedStoreStats::bytes_read_total, counts.bytes);
    // What is not what was written is in the way of what is.
    for (const ChainKey& key : counts.damaged) writer_.forget(key);
    job.end(status.ok() ? Status() : status);
  }

  RedisStoreState state_;
  std::optional<SharedRate> first_rate_;  // written before it is used
  RedisWriter writer_;
  std::unique_ptr<RedisConnection> asking_;  // the asking thread's; null: none
  std::unique_ptr<RedisDialer> dialer_;
  JobQueue<AskJob> asks_;
  std::vector<std::unique_ptr<JobQueue<RedisRead>>> reads_;  // one for each reader
  std::atomic<std::size_t> next_reader_{0};
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<SharedStore>> open_redis_store(RedisStoreOptions options, const Clock& clock) {
  auto store = std::make_unique<RedisStore>(std::move(options), clock);
  LOCI_RETURN_IF_ERROR(store->begin());
  return std::unique_ptr<SharedStore>(std::move(store));
}

}  // namespace loci
