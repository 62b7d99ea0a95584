// SPDX-License-Identifier: Apache-2.0
// Keeps one model's state within its share of its directories (disk_budget.h), while it is served: it looks
// at the share once a second, asks for more before it is full, and gives up what others are to have.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_budget.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

struct KeeperOptions {
  std::vector<DiskDirectory> directories;  // those of all models, and the budget of each
  std::string model;                       // its id
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for the log
};

class DiskKeeper {
 public:
  explicit DiskKeeper(KeeperOptions options);
  // Stops looking.
  ~DiskKeeper();

  // What the model may fill in each directory now, in bytes. `oldest_used_at`: of its own state, as the store
  // says; absent: as it was when it was last served. Models that no server has open may lose state by this.
  std::uint64_t look(std::optional<std::int64_t> oldest_used_at);

  // From now on, on a thread of its own. `oldest` and `changed` (the new room) are called there.
  void start(std::function<std::int64_t()> oldest, std::function<void(std::uint64_t room)> changed);

 private:
  std::uint64_t look_at(const DiskDirectory& directory, std::optional<std::int64_t> oldest_used_at);
  void run();

  const KeeperOptions options_;
  std::function<std::int64_t()> oldest_;
  std::function<void(std::uint64_t)> changed_;
  bool pressed_ = false;               // others want room, or it does
  std::optional<std::uint64_t> room_;  // as last decided
  std::string said_;                   // why no room could be made
  Mutex mutex_;
  Condition wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loci
