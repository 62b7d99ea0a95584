// SPDX-License-Identifier: Apache-2.0
// What the threads of a shared store count, and what they tell: whether the store is asked at all, and each
// thing that a person should know once until it has changed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/memory/shared/shared_health.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

// How long a transfer of so many bytes may take, at the slowest rate that is waited for.
inline Nanos shared_transfer_limit(Nanos beside, std::uint64_t bytes, std::uint64_t rate_min) {
  const auto takes =
      static_cast<unsigned __int128>(bytes) * kNanosPerSecond / std::max<std::uint64_t>(1, rate_min);
  return beside + static_cast<Nanos>(takes);
}

// Thread-safe.
class SharedAccount {
 public:
  // `name`: the store's, for people. `keeps`: for how long it keeps what was not deleted, for people. `warn`:
  // may be called on any thread. `clock` must outlive it.
  SharedAccount(std::string name, std::string keeps, std::function<void(const std::string&)> warn,
                const Clock& clock);

  void count(std::uint64_t SharedStoreStats::* what, std::uint64_t by) {
    const MutexLock lock(mutex_);
    stats_.*what += by;
  }
  SharedStoreStats stats() const;

  bool is_up() const { return health_.up(); }
  Nanos probe_at() const { return health_.probe_at(); }
  // What became of an operation: the store's answers say how it is. What a caller's stop cut short says
  // nothing.
  void note(const Status& status);
  // Nobody is there to begin with.
  void begin_down(const Status& status);
  // What trying a store that is left alone came to. While it fails, each reason is told once.
  void note_probe(const Status& status);

  // Of what was not asked, and of what waited behind others until it was too late.
  static Status not_asked();
  static Status behind();

  // A deletion that is not tried again: the values stay.
  void note_dropped(std::string_view why);
  // The store took one: the next that is dropped is told again.
  void note_deleted();

 private:
  static constexpr std::size_t kReasonsMax = 8;

  // False: it was told since the store was last asked.
  bool is_new_reason(const Status& status) EXCLUDES(mutex_);

  const std::string name_, keeps_;
  const std::function<void(const std::string&)> warn_;
  const Clock& clock_;
  SharedHealth health_;
  mutable Mutex mutex_;
  SharedStoreStats stats_ GUARDED_BY(mutex_);
  bool drops_told_ GUARDED_BY(mutex_) = false;
  std::vector<std::string> reasons_ GUARDED_BY(mutex_);  // why the store is not asked, without numbers
};

}  // namespace loci
