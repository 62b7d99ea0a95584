// SPDX-License-Identifier: Apache-2.0
// One thread makes copies in memory, or begins them in the backend, and gives the disk store its work. The
// store's threads bring the bytes that they read, and the backend's threads report when its copies are done.
// In each round loads come first, then one step of a save.
//
// No two mutexes are held at once.
#include "loci/engine/mover/mover.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <utility>

#include "loci/base/mutex.h"
#include "loci/engine/mover/host_tier.h"
#include "loci/engine/mover/mover_desk.h"
#include "loci/engine/mover/mover_link.h"
#include "loci/engine/mover/mover_loads.h"
#include "loci/engine/mover/mover_reads.h"
#include "loci/engine/mover/mover_saves.h"
#include "loci/engine/mover/mover_serves.h"

namespace loci {
namespace {

constexpr Nanos kWarningPause = 60 * kNanosPerSecond;

// What one start() gave, sorted.
struct Work {
  Nanos taken = 0;
  std::vector<Move> loads;  // from memory
  std::vector<Move> reads;
  std::vector<Move> shared_reads;
  std::vector<Move> prefetches;
  std::vector<Move> saves;
  std::vector<Move> serves;
  std::vector<RecordChange> record_changes;
};

std::vector<Move>& place_of(const Move& move, Work& work) {
  LOCI_CHECK(!move.parts.empty() && (move.from != move.to || move.to == Tier::kDevice),
             "a move goes from one tier to another, or to another place on the device");
  if (move.peer) return work.serves;
  if (move.from == Tier::kShared) return work.shared_reads;
  if (move.to == Tier::kDevice) return move.from == Tier::kDisk ? work.reads : work.loads;
  return move.from == Tier::kDisk ? work.prefetches : work.saves;
}

// Divides the moves into batches, in order: the layers of one batch take turns, and the next one comes behind
// it.
std::vector<std::vector<Move>> batches_of(std::vector<Move> moves) {
  std::vector<std::vector<Move>> batches;
  for (Move& move : moves) {
    if (batches.empty() || batches.back().front().together != move.together) batches.emplace_back();
    batches.back().push_back(std::move(move));
  }
  return batches;
}

class MoverThread final : public Mover {
 public:
  MoverThread(MoverOptions options, HostTier host, Backend& backend, const Clock& clock, Ended ended)
      : options_(std::move(options)),
        host_(std::move(host)),
        backend_(backend),
        ended_(std::move(ended)),
        desk_(backend.info(), clock),
        link_{backend, host_, desk_, options_},
        loads_(link_),
        reads_(link_, options_.disk.get()),
        shared_reads_(link_, options_.shared.get()),
        saves_(link_, options_.disk.get(), options_.shared.get()),
        serves_(link_, options_.disk.get(), options_.peers.get()),
        thread_([this] { run(); }) {}

  ~MoverThread() override {
    stopping_.store(true, std::memory_order_release);
    desk_.wake();
    thread_.join();
    for (const Work& work : work_) {
      for (const std::vector<Move>* moves : {&work.loads, &work.reads, &work.shared_reads}) {
        for (const Move& move : *moves) fail_targets(move);
      }
    }
    loads_.abandon();
    reads_.abandon();
    shared_reads_.abandon();
    options_.shared.reset();  // ends what is under way
    options_.disk.reset();    // waits for what is in flight
    await_copies();
  }

  void start(std::vector<Move> moves, std::vector<RecordChange> record_changes) override {
    if (moves.empty() && record_changes.empty()) return;
    Work work{.taken = desk_.now()};
    desk_.taken(moves);
    for (Move& move : moves) {
      if (move.to == Tier::kDevice) {
        for (const MovePart& part : move.parts) {
          backend_.begin_fill(part.group, part.to);
          if (options_.captures != nullptr) options_.captures->forget(part.to);
        }
      }
      std::vector<Move>& place = place_of(move, work);
      place.push_back(std::move(move));
    }
    work.record_changes = std::move(record_changes);
    {
      const MutexLock lock(mutex_);
      work_.push_back(std::move(work));
    }
    desk_.wake();
  }

  void recover(std::function<void(Recovered)> found) override {
    if (options_.disk == nullptr) {
      found({.entries = {}, .now = seconds_since_1970() * 1000, .last = true});
      return;
    }
    options_.disk->recover([found = std::move(found)](std::vector<RecoveredEntry> entries, bool last) {
      found({.entries = std::move(entries), .now = seconds_since_1970() * 1000, .last = last});
    });
  }

  void ask(SharedAsk ask, std::function<void(SharedAnswer)> answer) override {
    LOCI_CHECK(options_.shared != nullptr, "a question needs a store");
    options_.shared->ask(
        std::move(ask.keys), ask.time_limit,
        [answer = std::move(answer), request = ask.request](std::vector<std::uint8_t> groups) {
          answer({.request = request, .groups = std::move(groups)});
        });
  }

  void forget_shared(const std::vector<ChainKey>& keys) override {
    LOCI_CHECK(options_.shared != nullptr || keys.empty(), "what forgets is a store");
    for (const ChainKey& key : keys) {
      RecordChange change{.kind = RecordChange::Kind::kForget};
      change.entry.key = key;
      options_.shared->change(change);
    }
  }

  MoverStats stats() const override { return desk_.stats(); }
  DiskStoreStats disk_stats() const override {
    return options_.disk == nullptr ? DiskStoreStats{} : options_.disk->stats();
  }
  SharedStoreStats shared_stats() const override {
    return options_.shared == nullptr ? SharedStoreStats{} : options_.shared->stats();
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "loci-mover");
    while (!stopping_.load(std::memory_order_acquire)) {
      take_work();
      change_records();
      Nanos wanted_at = std::min({reads_.step(), shared_reads_.step(), serves_.give_up_late()});
      tell_ended();
      if (loads_.step()) continue;
      // The link's directions disturb one another (Pensieve §5): saves wait for loads.
      if (!loads_.copying()) {
        const bool served = serves_.step();
        if (saves_.step() || served) continue;
        wanted_at = std::min(wanted_at, saves_.wanted_at());
      }
      desk_.wait(wanted_at);
    }
    change_last_records();
    saves_.abandon();
  }

  void take_work() {
    std::vector<Work> works;
    {
      const MutexLock lock(mutex_);
      std::swap(works, work_);
    }
    for (Work& work : works) {
      for (std::vector<Move>& batch : batches_of(std::move(work.reads)))
        reads_.load(std::move(batch), work.taken);
      for (std::vector<Move>& batch : batches_of(std::move(work.shared_reads)))
        shared_reads_.load(std::move(batch), work.taken);
      for (std::vector<Move>& batch : batches_of(std::move(work.loads)))
        loads_.add(std::move(batch), work.taken);
      reads_.prefetch(std::move(work.prefetches), work.taken);
      saves_.add(std::move(work.saves));
      serves_.add(std::move(work.serves));
      record_changes_.insert(record_changes_.end(), std::make_move_iterator(work.record_changes.begin()),
                             std::make_move_iterator(work.record_changes.end()));
    }
  }

  // Before any save of the same step: what it says of a slot is older than what is saved there. It does not
  // wait for loads, because they may come without end, and what is deleted is to go from the disk.
  void change_records() {
    if (record_changes_.empty()) return;
    LOCI_CHECK(options_.disk != nullptr, "changes of records need a disk");
    for (const RecordChange& change : record_changes_) options_.disk->change(change);
    record_changes_.clear();
  }

  // The core deletes until its end: what came since the last round reaches the disk. The moves that came with
  // it are dropped, the saves by MoverSaves::abandon().
  void change_last_records() {
    {
      const MutexLock lock(mutex_);
      for (Work& work : work_) {
        record_changes_.insert(record_changes_.end(), std::make_move_iterator(work.record_changes.begin()),
                               std::make_move_iterator(work.record_changes.end()));
        work.record_changes.clear();
        saves_.add(std::exchange(work.saves, {}));
      }
    }
    change_records();
  }

  void tell_ended() {
    std::vector<MoveOutcome> moves = desk_.take_ended();
    if (moves.empty()) return;
    ended_({.moves = std::move(moves)});
    warn_of_failures();
  }

  // One line for many failures: a disk that is broken fails often.
  void warn_of_failures() {
    const MoverStats stats = desk_.stats();
    const std::uint64_t loads = stats.disk_load.failures_total + stats.prefetch.failures_total;
    const std::uint64_t saves = stats.disk_save.failures_total;
    if (loads + saves == warned_of_ || desk_.now() < warn_at_) return;
    warned_of_ = loads + saves;
    warn_at_ = desk_.now() + kWarningPause;
    spdlog::warn(
        "the disk tier has failed {} reads and {} writes since the start; what they held is computed again",
        loads, saves);
  }

  // Until nothing is copied from or to host memory.
  void await_copies() const {
    std::latch left(2);
    backend_.after_loads([&](const Status&) { left.count_down(); });
    backend_.after_saves([&](const Status&) { left.count_down(); });
    left.wait();
  }

  void fail_targets(const Move& move) const {
    for (const MovePart& part : move.parts) backend_.fill_failed(part.group, part.to);
  }

  MoverOptions options_;
  const HostTier host_;
  Backend& backend_;
  const Ended ended_;
  MoverDesk desk_;
  const MoverLink link_;

  Mutex mutex_;
  std::vector<Work> work_ GUARDED_BY(mutex_);
  // What follows is the thread's.
  MoverLoads loads_;
  MoverReads reads_;
  MoverReads shared_reads_;
  MoverSaves saves_;
  MoverServes serves_;
  std::vector<RecordChange> record_changes_;
  std::uint64_t warned_of_ = 0;  // failures
  Nanos warn_at_ = 0;

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Mover>> Mover::make(MoverOptions options, Backend& backend, const Clock& clock,
                                           Ended ended) {
  LOCI_ASSIGN_OR_RETURN(HostTier host, HostTier::make(backend, options.host_blocks));
  std::unique_ptr<Mover> mover =
      std::make_unique<MoverThread>(std::move(options), std::move(host), backend, clock, std::move(ended));
  return mover;
}

}  // namespace loci
