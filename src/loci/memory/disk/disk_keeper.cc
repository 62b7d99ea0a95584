// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_keeper.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "loci/base/units.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_survey.h"

namespace loci {
namespace {

constexpr Nanos kPause = kNanosPerSecond, kPressedPause = 100 * kNanosPerMilli;
constexpr Nanos kStuckPauseMin = 300 * kNanosPerSecond, kStuckPauseMax = 3600 * kNanosPerSecond;

// What the file says, completed by what is in the models' folders.
std::vector<ModelShare> shares_of(const BudgetFile& file, const std::vector<StoredModel>& models,
                                  const std::string& self) {
  const std::vector<ModelShare> noted = file.read();
  std::vector<ModelShare> shares;
  for (const StoredModel& model : models) {
    ModelShare one{.model = model.id, .held = model.held_bytes};
    for (const ModelShare& known : noted) {
      if (known.model != model.id) continue;
      one.granted = known.granted;
      one.asked = known.asked;
      one.oldest_used_at = known.oldest_used_at;
    }
    one.served = model.user != 0 || model.id == self;
    if (!one.served) {
      one.granted = one.held;
      one.asked = 0;
      // Of one that the file has forgotten nobody knows how old it is.
      if (one.oldest_used_at == 0) one.oldest_used_at = 1;
    }
    shares.push_back(std::move(one));
  }
  return shares;
}

std::string name_of(const StoredModel& model) { return model.name.name.empty() ? model.id : model.name.name; }

UnusedOptions unused_options(const KeeperOptions& options) {
  UnusedOptions unused{.own_model = options.model,
                       .say = options.say,
                       .warn = options.warn,
                       .now = options.now,
                       .date = options.date};
  for (const DiskDirectory& one : options.directories) unused.directories.push_back(one.path);
  return unused;
}

}  // namespace

DiskKeeper::DiskKeeper(KeeperOptions options)
    : options_(std::move(options)), unused_(unused_options(options_)) {}

DiskKeeper::~DiskKeeper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t DiskKeeper::look(std::optional<std::int64_t> oldest_used_at) {
  pressed_ = false;
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
  for (const DiskDirectory& directory : options_.directories) {
    room = std::min(room, look_at(directory, oldest_used_at));
  }
  room_ = room;
  return room;
}

void DiskKeeper::mark_stuck(StuckModels& stuck, std::vector<ModelShare>& shares) const {
  // Of one that was removed nothing is known any more, nor of one that a server could open.
  std::erase_if(stuck, [&](const auto& one) {
    return std::none_of(shares.begin(), shares.end(),
                        [&](const ModelShare& share) { return share.model == one.first && !share.served; });
  });
  const Nanos now = options_.now();
  for (ModelShare& share : shares) {
    const auto found = stuck.find(share.model);
    share.stuck = found != stuck.end() && now < found->second.until;
  }
}

Nanos DiskKeeper::leave_alone(Stuck& model) const {
  model.pause = model.pause == 0 ? kStuckPauseMin : std::min(2 * model.pause, kStuckPauseMax);
  model.until = options_.now() + model.pause;
  return model.pause;
}

std::uint64_t DiskKeeper::look_at(const DiskDirectory& directory,
                                  std::optional<std::int64_t> oldest_used_at) {
  Result<BudgetFile> file = BudgetFile::lock(directory.path);
  // What nobody can divide now stays as it is: whoever gave up its room for a passing error would lose its
  // state.
  const std::string own = model_folder(directory.path, options_.model);
  if (!file.ok()) return room_ ? *room_ : held_bytes_of(own);
  const std::vector<StoredModel> models = list_stored_models(directory.path);
  std::vector<ModelShare> shares = shares_of(*file, models, options_.model);
  const auto found = std::find_if(shares.begin(), shares.end(),
                                  [&](const ModelShare& one) { return one.model == options_.model; });
  if (found == shares.end()) return room_ && is_disk_store(own) ? *room_ : 0;  // 0: its files were removed
  const auto self = static_cast<std::size_t>(found - shares.begin());
  if (oldest_used_at) shares[self].oldest_used_at = *oldest_used_at;
  StuckModels& stuck = stuck_[directory.path];
  mark_stuck(stuck, shares);
  ShareDecision decision = decide_share(shares, self, directory.bytes);
  // What no server has open gives its room at once.
  while (decision.from && !shares[*decision.from].served) {
    const StoredModel& giver = models[*decision.from];
    ModelShare& share = shares[*decision.from];
    const Result<DroppedState> dropped = drop_oldest_state(giver, decision.wanted);
    if (!dropped.ok()) {
      const std::string line = fmt::format("{}: no room could be made: {}; {} is asked again in {}",
                                           directory.path, dropped.status().message(), name_of(giver),
                                           format_duration(leave_alone(stuck[giver.id])));
      if (line != said_) options_.say(line);
      said_ = line;
      share.stuck = true;  // meanwhile others give
      decision = decide_share(shares, self, directory.bytes);
      continue;
    }
    stuck.erase(giver.id);
    options_.say(fmt::format("{}: dropped {} of {}'s least recently used state to make room", directory.path,
                             format_bytes(dropped->freed_bytes), name_of(giver)));
    share.held = share.granted = share.held - std::min(share.held, dropped->freed_bytes);
    share.oldest_used_at = dropped->oldest_used_at;
    shares[self].granted = decision.granted;
    decision = decide_share(shares, self, directory.bytes);
  }
  shares[self].granted = decision.granted;
  if (decision.gave_all) shares[self].asked = 0;
  if (decision.from && shares[*decision.from].served) {
    ModelShare& share = shares[*decision.from];
    share.asked = std::max(share.asked, decision.wanted);
  }
  pressed_ =
      pressed_ || decision.from.has_value() || shares[self].asked > 0 || decision.room < decision.granted;
  if (const Status written = file->write(shares); !written.ok())
    options_.say(fmt::format("{}: {}", directory.path, written.message()));
  return decision.room;
}

void DiskKeeper::start(std::function<std::int64_t()> oldest,
                       std::function<void(std::uint64_t room)> changed) {
  oldest_ = std::move(oldest);
  changed_ = std::move(changed);
  thread_ = std::thread([this] { run(); });
}

void DiskKeeper::run() {
  ::pthread_setname_np(::pthread_self(), "loci-budget");
  std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  const auto stopping = [this] {
    const MutexLock lock(mutex_);
    return stopping_;
  };
  Nanos pause = pressed_ ? kPressedPause : kPause, next_look = options_.now() + pause;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (wake_.wait_for(lock, std::chrono::nanoseconds(pause), [&]() REQUIRES(mutex_) { return stopping_; }))
        return;
    }
    if (options_.now() >= next_look) {
      const std::uint64_t room = look(oldest_());
      // Said again while it gives up: what was being read then may go now.
      if (room != last || pressed_) changed_(room);
      last = room;
      next_look = options_.now() + (pressed_ ? kPressedPause : kPause);
    }
    const Nanos next_step = unused_.step(stopping);
    pause = std::max<Nanos>(0, std::min(next_look - options_.now(), next_step));
  }
}

}  // namespace loci
