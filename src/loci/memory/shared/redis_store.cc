// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_store.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/memory/shared/job_queue.h"
#include "loci/memory/shared/redis_cluster.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_dialer.h"
#include "loci/memory/shared/redis_health.h"
#include "loci/memory/shared/redis_read.h"
#include "loci/memory/shared/redis_topology.h"

namespace loci {
namespace {

constexpr std::size_t kAsksMax = 1024;        // that wait; beyond it nothing is there
constexpr std::size_t kForgetsMax = 262'144;  // deletions that wait; beyond it one is dropped
constexpr std::uint64_t kSmallReplyBytes = 1024;
constexpr std::size_t kAskedAhead = 512;  // questions that are sent before an answer is taken

struct AskJob {
  std::vector<ChainKey> keys;
  Nanos deadline = 0;
  SharedStore::Answer answer;
};

struct Write {
  ChainKey key;
  std::uint32_t group = 0;
  std::vector<std::byte> bytes;
  std::function<void(Status)> done;
  Nanos waits_until = 0;
};
// Deletes the key's parts in all groups.
struct Forget {
  ChainKey key;
};
// A cluster's map may be old, or a node of it is away.
struct Tend {};
using WriteJob = std::variant<Write, Forget, Tend>;

constexpr Nanos kNever = INT64_MAX;
constexpr Nanos kTendPause = 2 * kNanosPerSecond;  // while a node is away
constexpr Nanos kTendAfter = kNanosPerSecond;      // the last time, at the earliest

// The connection of one thread, made when it is needed.
class Line {
 public:
  Line(RedisTopology& topology, const Clock& clock, const RedisStop& stop)
      : topology_(topology), clock_(clock), stop_(stop) {}

  Result<RedisConnection*> get(Nanos deadline) {
    if (connection_ != nullptr && connection_->is_open()) return connection_.get();
    connection_.reset();
    LOCI_ASSIGN_OR_RETURN(connection_,
                          open_redis(topology_, RedisDialing::kAsNeeded, clock_, stop_, deadline));
    return connection_.get();
  }
  // Replies that nobody wants may be on their way.
  void drop() { connection_.reset(); }

 private:
  RedisTopology& topology_;
  const Clock& clock_;
  const RedisStop& stop_;
  std::unique_ptr<RedisConnection> connection_;
};

class RedisStore final : public SharedStore {
 public:
  RedisStore(RedisStoreOptions options, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        format_(options_.keys, options_.groups),
        topology_(options_.address, clock, [this] { writes_.push(Tend{}); }) {
    time_to_live_ = options_.time_to_live == 0
                        ? ""
                        : fmt::format("{}", (options_.time_to_live + kNanosPerSecond - 1) / kNanosPerSecond);
  }

  // Once, before anything else.
  Status begin() {
    const auto dial = [this] {
      return open_redis(topology_, RedisDialing::kAtOnce, clock_, stop_,
                        clock_.now() + options_.connect_limit);
    };
    Result<std::unique_ptr<RedisConnection>> first = dial();
    const Status& status = first.status();
    if (status.code() == StatusCode::kInvalidArgument) return status;
    if (!status.ok()) {
      health_.begin_down(clock_.now());
      options_.warn(fmt::format("the shared store {} cannot be reached, and is tried again later: {}",
                                options_.address.shown(), status.message()));
    }
    if (first.ok()) asking_ = std::move(first).value();
    const auto told = [this](const Status& made) {
      // (That it may be connected to does not make good that it does not answer.)
      if (!made.ok()) note_health(made);
    };
    dialer_ = std::make_unique<RedisDialer>(dial, told, clock_);
    threads_.emplace_back([this] { run("loci-shared-ask", asks_, &RedisStore::ask_now); });
    threads_.emplace_back([this] { run_writer(); });
    for (std::uint32_t i = 0; i < std::max(1u, options_.readers); ++i)
      reads_.push_back(std::make_unique<JobQueue<RedisRead>>());
    for (const auto& queue : reads_)
      threads_.emplace_back([this, &queue] { run("loci-shared-get", *queue, &RedisStore::read_now); });
    return {};
  }

  ~RedisStore() override {
    stopping_ = true;
    stop_.stop();
    topology_.stop();
    asks_.close();
    writes_.close();
    for (const auto& queue : reads_) queue->close();
    for (std::thread& thread : threads_) thread.join();
    dialer_.reset();
  }

  void ask(std::vector<ChainKey> keys, Nanos time_limit, Answer answer) override {
    count(&SharedStoreStats::asks_total, 1);
    count(&SharedStoreStats::parts_asked_total, keys.size() * format_.group_count());
    AskJob job{.keys = std::move(keys), .deadline = clock_.now() + time_limit, .answer = std::move(answer)};
    if (asks_.size() >= kAsksMax) job.deadline = 0;
    asks_.push(std::move(job));
  }

  void read(std::vector<BlockRead> items, std::uint32_t, std::shared_ptr<BlockReadSink> sink) override {
    const Nanos waits_until = clock_.now() + options_.transfer_limit;
    const std::size_t jobs = std::min(items.size(), reads_.size());
    for (std::size_t j = 0; j < jobs; ++j) {
      std::vector<RedisRead::Item> own;
      for (std::size_t i = j; i < items.size(); i += jobs)
        own.push_back({.place = i, .key = items[i].key, .group = items[i].group});
      const std::size_t queue = (next_reader_.fetch_add(1, std::memory_order_relaxed)) % reads_.size();
      reads_[queue]->push(RedisRead(std::move(own), sink, waits_until));
    }
  }

  void write(std::uint32_t group, SlotId, DiskEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    writes_.push(Write{.key = entry.key,
                       .group = group,
                       .bytes = std::move(bytes),
                       .done = std::move(done),
                       .waits_until = clock_.now() + options_.transfer_limit});
  }

  void note(const DiskNote& note) override {
    if (note.kind == DiskNote::Kind::kForget) forget(note.entry.key);
  }

  SharedStoreStats stats() const override {
    const bool is_up = health_.up();
    const MutexLock lock(stats_mutex_);
    SharedStoreStats stats = stats_;
    stats.up = is_up;
    return stats;
  }

 private:
  void count(std::uint64_t SharedStoreStats::* what, std::uint64_t by) {
    const MutexLock lock(stats_mutex_);
    stats_.*what += by;
  }

  // Else what waits is ended without it.
  bool asked() const { return health_.up() && !stopping_; }

  void forget(const ChainKey& key) {
    if (forgets_.fetch_add(1) >= kForgetsMax) {
      --forgets_;
      note_dropped("too many deletions wait");
      return;
    }
    writes_.push(Forget{.key = key});
  }

  // A deletion that is not tried again: the values stay for their time to live. Told once until one succeeds.
  void note_dropped(std::string_view why) {
    count(&SharedStoreStats::deletions_dropped_total, 1);
    if (drops_told_.exchange(true)) return;
    options_.warn(
        fmt::format("the shared store {} did not take a deletion; the deleted state stays there {}: {}",
                    options_.address.shown(),
                    time_to_live_.empty() ? "until the store evicts it" : "for its time to live", why));
  }

  // The store's answers say how it is; what a caller's stop cut short says nothing.
  void note_health(const Status& status) {
    if (status.code() == StatusCode::kCancelled) return;
    if (status.ok()) {
      if (health_.succeeded())
        options_.warn(fmt::format("the shared store {} is asked again", options_.address.shown()));
      return;
    }
    count(&SharedStoreStats::failures_total, 1);
    if (!health_.failed(clock_.now())) return;
    options_.warn(
        fmt::format("the shared store {} is not asked until it answers again, and the state that it has is "
                    "computed here: {}",
                    options_.address.shown(), status.message()));
  }

  template <class Job>
  void run(const char* name, JobQueue<Job>& queue, void (RedisStore::*work)(Job&, Line&)) {
    pthread_setname_np(pthread_self(), name);
    Line line(topology_, clock_, stop_);
    while (!queue.closed()) {
      std::optional<Job> job = queue.pop(JobQueue<Job>::kForEver);
      if (job) (this->*work)(*job, line);
    }
  }

  // --- asking ---

  void ask_now(AskJob& job, Line&) {
    std::vector<std::uint8_t> groups(job.keys.size(), 0);
    Status status(StatusCode::kUnavailable, "the store did not answer before, and is not asked now");
    const Nanos begin = clock_.now();
    if (asked() && begin < job.deadline) {
      if (asking_ == nullptr || !asking_->is_open()) asking_ = dialer_->take(job.deadline);
      // (What becomes of a connection the dialer tells.)
      if (asking_ != nullptr) {
        status = ask_lengths(job, *asking_, groups);
        const bool is_fair =
            status.code() != StatusCode::kDeadlineExceeded || job.deadline - begin >= kRedisFairWait;
        if (is_fair) note_health(status);
        if (!status.ok()) {
          // Replies that nobody waits for are on their way.
          asking_.reset();
          dialer_->begin();
        }
      }
    }
    if (!status.ok()) {
      count(&SharedStoreStats::asks_failed_total, 1);
      groups.assign(job.keys.size(), 0);
    }
    std::uint64_t found = 0;
    for (const std::uint8_t bits : groups) found += static_cast<std::uint64_t>(__builtin_popcount(bits));
    count(&SharedStoreStats::parts_found_total, found);
    job.answer(std::move(groups));
  }

  Status ask_lengths(const AskJob& job, RedisConnection& connection, std::vector<std::uint8_t>& groups) {
    const std::size_t questions = job.keys.size() * format_.group_count();
    RedisReply reply;
    for (std::size_t sent = 0, taken = 0; taken < questions; ++taken) {
      for (; sent < questions && sent < taken + kAskedAhead; ++sent) {
        const std::string name = name_of(job, sent);
        LOCI_RETURN_IF_ERROR(connection.send({"STRLEN", name}, job.deadline));
      }
      LOCI_RETURN_IF_ERROR(connection.receive(kSmallReplyBytes, job.deadline, reply));
      if (reply.kind == RedisReply::Kind::kError) return refusal(reply);
      const auto group = static_cast<std::uint32_t>(taken % format_.group_count());
      const bool there = reply.kind == RedisReply::Kind::kInteger &&
                         reply.integer == static_cast<std::int64_t>(format_.value_bytes(group));
      if (there) groups[taken / format_.group_count()] |= static_cast<std::uint8_t>(1u << group);
    }
    return {};
  }

  std::string name_of(const AskJob& job, std::size_t question) const {
    return format_.name(job.keys[question / format_.group_count()],
                        static_cast<std::uint32_t>(question % format_.group_count()));
  }

  static std::string said(const RedisReply& reply) {
    return fmt::format("the store says: {}", reply.text().substr(0, 200));
  }
  static Status refusal(const RedisReply& reply) { return {StatusCode::kUnavailable, said(reply)}; }
  static Status refused(const RedisReply& reply) { return resource_exhausted(said(reply)); }

  // --- reading ---

  void read_now(RedisRead& job, Line& line) {
    if (!asked()) {
      // Refused at once: nobody waits for a deadline of which it is known how it ends.
      job.end(
          Status(StatusCode::kUnavailable, "the shared store did not answer before, and is not asked now"));
      return;
    }
    if (clock_.now() >= job.waits_until()) {
      // It waited behind others, which says nothing of the store.
      job.end(behind());
      return;
    }
    Result<RedisConnection*> connection = line.get(clock_.now() + options_.connect_limit);
    Status status = connection.status();
    if (status.ok()) {
      status = job.carry_out(**connection, format_, {options_.window_bytes, time_to_live_},
                             limit_of(job.bytes(format_)));
      if (!status.ok()) line.drop();
    }
    // A store that is slow is not one that is silent.
    if (status.code() != StatusCode::kDeadlineExceeded || job.counts().bytes == 0) note_health(status);
    const RedisRead::Counts& counts = job.counts();
    count(&SharedStoreStats::parts_read_total, counts.read);
    count(&SharedStoreStats::parts_gone_total, counts.gone);
    count(&SharedStoreStats::parts_damaged_total, counts.damaged.size());
    count(&SharedStoreStats::bytes_read_total, counts.bytes);
    // What is not what was written is in the way of what is.
    for (const ChainKey& key : counts.damaged) forget(key);
    job.end(status.ok() ? Status() : status);
  }

  // When a transfer of so many bytes that begins now has taken too long.
  Nanos limit_of(std::uint64_t bytes) const {
    const auto takes = static_cast<unsigned __int128>(bytes) * kNanosPerSecond /
                       std::max<std::uint64_t>(1, options_.rate_min);
    return clock_.now() + options_.transfer_limit + static_cast<Nanos>(takes);
  }
  static Status behind() {
    return {StatusCode::kDeadlineExceeded, "the shared store takes less than it is given"};
  }

  // --- writing ---

  void run_writer() {
    pthread_setname_np(pthread_self(), "loci-shared-set");
    Line line(topology_, clock_, stop_);
    while (!writes_.closed()) {
      const bool down = !health_.up();
      const Nanos due =
          std::min({tend_at_, down ? health_.probe_at() : kNever, down || kept_.empty() ? kNever : kept_at_});
      std::optional<WriteJob> job =
          writes_.pop(due == kNever ? JobQueue<WriteJob>::kForEver : std::max<Nanos>(0, due - clock_.now()));
      if (tend_at_ <= clock_.now()) tend();
      if (down && health_.probe_at() <= clock_.now()) probe(line);
      if (job) write_now(*job, line);
      if (!down && !kept_.empty() && kept_at_ <= clock_.now()) forget_kept(line);
    }
    while (!kept_.empty()) drop_kept("this server ends");
  }

  // One of those that the store did not take when it was down.
  void forget_kept(Line& line) {
    if (kept_left_ == 0) kept_left_ = kept_.size();
    const Forget job = kept_.front();
    kept_.pop_front();
    carry_out(job, line);
    // All have been tried before there is a pause: those for nodes that live do not wait for one that is
    // away.
    if (--kept_left_ == 0) kept_at_ = clock_.now() + kTendPause;
  }
  void drop_kept(std::string_view why) {
    kept_.pop_front();
    --forgets_;
    note_dropped(why);
  }

  void probe(Line& line) {
    line.drop();
    note_health(line.get(clock_.now() + options_.connect_limit).status());
  }

  void tend() {
    const bool is_well = tend_redis_cluster(topology_, clock_, stop_);
    tended_at_ = clock_.now();
    tend_at_ = is_well ? kNever : tended_at_ + kTendPause;
  }
  void carry_out(const Tend&, Line&) {
    tend_at_ = std::min(tend_at_, std::max(clock_.now(), tended_at_ + kTendAfter));
  }

  void write_now(WriteJob& job, Line& line) {
    std::visit([&](auto& one) { carry_out(one, line); }, job);
  }

  void carry_out(Write& job, Line& line) {
    Status status(StatusCode::kUnavailable, "the shared store did not answer before, and is not asked now");
    if (asked() && clock_.now() >= job.waits_until) {
      status = behind();
    } else if (asked()) {
      status = write_to(job, line, limit_of(job.bytes.size()));
      note_answer(status, line);
    }
    job.done(status);
  }

  // It is kept until the store takes or refuses it.
  void carry_out(const Forget& job, Line& line) {
    if (!asked()) {
      kept_.push_back(job);
      return;
    }
    const Status status = forget_in(job, line, limit_of(0));
    if (status.code() == StatusCode::kNotFound) {
      kept_.push_back(job);
      return;
    }
    note_answer(status, line);
    if (!status.ok() && status.code() != StatusCode::kResourceExhausted) {
      kept_.push_back(job);
      return;
    }
    --forgets_;
    if (status.ok())
      drops_told_ = false;
    else
      note_dropped(status.message());
  }

  // A store that refuses is in good health.
  void note_answer(const Status& status, Line& line) {
    const bool answered = status.ok() || status.code() == StatusCode::kResourceExhausted;
    if (!answered) line.drop();
    note_health(answered ? Status() : status);
  }

  // Errors: kResourceExhausted (the store refuses), kNotFound (the node that has it is away), and the
  // connection's.
  Status forget_in(const Forget& job, Line& line, Nanos deadline) {
    LOCI_ASSIGN_OR_RETURN(RedisConnection* const connection, line.get(clock_.now() + options_.connect_limit));
    RedisReply reply;
    bool is_away = false;
    for (std::uint32_t group = 0; group < format_.group_count(); ++group) {
      const std::string name = format_.name(job.key, group);
      LOCI_RETURN_IF_ERROR(connection->send({"DEL", name}, deadline));
      LOCI_RETURN_IF_ERROR(connection->receive(kSmallReplyBytes, deadline, reply));
      if (reply.kind == RedisReply::Kind::kError) return refused(reply);
      is_away = is_away || reply.kind == RedisReply::Kind::kAway;
    }
    return is_away ? not_found("a node that has a part of it is away") : Status();
  }

  Status write_to(const Write& job, Line& line, Nanos deadline) {
    LOCI_ASSIGN_OR_RETURN(RedisConnection* const connection, line.get(clock_.now() + options_.connect_limit));
    RedisReply reply;
    const std::string name = format_.name(job.key, job.group);
    LOCI_ASSIGN_OR_RETURN(const Found found, find(*connection, name, job.group, deadline));
    if (found == Found::kThere) count(&SharedStoreStats::parts_present_total, 1);
    if (found == Found::kThere) return {};
    if (found == Found::kAway) return refuse_away();
    const std::vector<std::byte> value = format_.seal(job.key, job.group, job.bytes);
    RedisConnection::Words words = {
        "SET", name, std::string_view(reinterpret_cast<const char*>(value.data()), value.size())};
    if (!time_to_live_.empty()) {
      words.emplace_back("EX");
      words.emplace_back(time_to_live_);
    }
    LOCI_RETURN_IF_ERROR(connection->send(words, deadline));
    LOCI_RETURN_IF_ERROR(connection->receive(kSmallReplyBytes, deadline, reply));
    if (reply.kind == RedisReply::Kind::kError) {
      count(&SharedStoreStats::parts_refused_total, 1);
      return refused(reply);
    }
    if (reply.kind == RedisReply::Kind::kAway) return refuse_away();
    count(&SharedStoreStats::parts_written_total, 1);
    count(&SharedStoreStats::bytes_written_total, value.size());
    return {};
  }

  Status refuse_away() {
    count(&SharedStoreStats::parts_refused_total, 1);
    return resource_exhausted("the node of the store that would have it is away");
  }

  enum class Found : std::uint8_t { kThere, kNotThere, kAway };
  // If another server has written it, its time to live begins anew.
  Result<Found> find(RedisConnection& connection, const std::string& name, std::uint32_t group,
                     Nanos deadline) {
    RedisReply reply;
    LOCI_RETURN_IF_ERROR(connection.send({"STRLEN", name}, deadline));
    if (!time_to_live_.empty())
      LOCI_RETURN_IF_ERROR(connection.send({"EXPIRE", name, time_to_live_}, deadline));
    LOCI_RETURN_IF_ERROR(connection.receive(kSmallReplyBytes, deadline, reply));
    bool is_away = reply.kind == RedisReply::Kind::kAway;
    bool there = reply.kind == RedisReply::Kind::kInteger &&
                 reply.integer == static_cast<std::int64_t>(format_.value_bytes(group));
    if (!time_to_live_.empty()) {
      LOCI_RETURN_IF_ERROR(connection.receive(kSmallReplyBytes, deadline, reply));
      is_away = is_away || reply.kind == RedisReply::Kind::kAway;
      there = there && reply.kind == RedisReply::Kind::kInteger && reply.integer == 1;
    }
    return is_away ? Found::kAway : there ? Found::kThere : Found::kNotThere;
  }

  const RedisStoreOptions options_;
  const Clock& clock_;
  const SharedFormat format_;
  std::string time_to_live_;  // seconds; empty: none
  RedisTopology topology_;
  RedisStop stop_;
  std::atomic<bool> stopping_{false};
  RedisHealth health_;
  mutable Mutex stats_mutex_;
  SharedStoreStats stats_ GUARDED_BY(stats_mutex_);
  std::unique_ptr<RedisConnection> asking_;  // the asking thread's; null: none
  std::unique_ptr<RedisDialer> dialer_;
  std::deque<Forget> kept_;    // the writing thread's, as what follows; deletions until the store is back
  Nanos kept_at_ = 0;          // they are tried again then, all of them
  std::size_t kept_left_ = 0;  // how many of them have not been tried since
  Nanos tend_at_ = kNever, tended_at_ = 0;
  std::atomic<std::size_t> forgets_{0};  // that wait or are kept
  JobQueue<AskJob> asks_;
  JobQueue<WriteJob> writes_;
  std::vector<std::unique_ptr<JobQueue<RedisRead>>> reads_;  // one for each reader
  std::atomic<std::size_t> next_reader_{0};
  std::atomic<bool> drops_told_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<SharedStore>> open_redis_store(RedisStoreOptions options, const Clock& clock) {
  auto store = std::make_unique<RedisStore>(std::move(options), clock);
  LOCI_RETURN_IF_ERROR(store->begin());
  return std::unique_ptr<SharedStore>(std::move(store));
}

}  // namespace loci
