// SPDX-License-Identifier: Apache-2.0
// Keeps one model's state within its share of its directories (disk_budget.h), while it is served: it looks
// at the share once a second, asks for more before it is full, and gives up what others are to have. Between
// the looks it drops what is unused of models that nobody serves (disk_unused.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_budget.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/memory/disk/disk_unused.h"

namespace loci {

struct KeeperOptions {
  std::vector<DiskDirectory> directories;  // those of all models, and the budget of each
  std::string model;                       // its id
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for the log
  std::function<void(const std::string&)> warn = [](const std::string&) {};
  std::function<Nanos()> now = [] { return SystemClock().now(); };
  std::function<std::int64_t()> date = [] { return seconds_since_1970() * 1000; };  // of the time of day
};

// After start() its own thread alone looks, and nobody else may; before, whoever has it.
class DiskKeeper {
 public:
  explicit DiskKeeper(KeeperOptions options);
  // Stops looking.
  ~DiskKeeper();

  // What the model may fill in each directory now, in bytes. `oldest_used_at`: of its own state, as the store
  // says; absent: as it was when it was last served. Models that no server has open may lose state by this.
  // A model whose state could not be dropped (the disk does not read or write it now) is left alone for five
  // minutes, and after each failure for twice as long, up to an hour: a try reads all its records, and
  // meanwhile whoever wants to serve or forget it waits, and nobody can divide the directory.
  std::uint64_t look(std::optional<std::int64_t> oldest_used_at);

  // From now on, on a thread of its own, with the unused state of other models. `oldest` and `changed` (the
  // new room) are called there.
  void start(std::function<std::int64_t()> oldest, std::function<void(std::uint64_t room)> changed);

 private:
  struct Stuck {
    Nanos pause = 0, until = 0;
  };
  using StuckModels = std::map<std::string, Stuck>;  // by id

  std::uint64_t look_at(const DiskDirectory& directory, std::optional<std::int64_t> oldest_used_at);
  // Marks the shares that are left alone.
  void mark_stuck(StuckModels& stuck, std::vector<ModelShare>& shares) const;
  // The model's state could not be dropped. Returns how long it is left alone.
  Nanos leave_alone(Stuck& model) const;
  void run();

  const KeeperOptions options_;
  UnusedState unused_;
  std::function<std::int64_t()> oldest_;
  std::function<void(std::uint64_t)> changed_;
  bool pressed_ = false;                      // others want room, or it does
  std::optional<std::uint64_t> room_;         // as last decided
  std::string said_;                          // why no room could be made
  std::map<std::string, StuckModels> stuck_;  // by directory: those that are there and that nobody serves
  Mutex mutex_;
  Condition wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loci
