// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_unused.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/unused_entries.h"

namespace loci {

Nanos UnusedState::step(const StopAsked& stop) {
  const Nanos now = options_.now();
  follow_clock(now);
  if (!droppings_.empty()) {
    drop_some(stop);
    return droppings_.empty() ? 0 : kDropPause;
  }
  if (!due_.empty()) {
    const std::string id = std::move(due_.front());
    due_.pop_front();
    judge(id, stop);
    return 0;
  }
  if (now >= next_list_) list(now, stop);
  return due_.empty() ? std::max<Nanos>(next_list_ - now, 0) : 0;
}

void UnusedState::follow_clock(Nanos now) {
  const std::int64_t date = options_.date();
  if (!clock_) steady_since_ = now;
  if (clock_ && (date - clock_->date) - (now - clock_->now) / kNanosPerMilli > kJumpMillis) {
    steady_since_ = next_list_ = now;
    steady_for_ = kSteadyAfterJump;
    due_.clear();
    while (!droppings_.empty()) end_drop();
  }
  clock_ = {.now = now, .date = date};
}

Nanos UnusedState::believed_from(Nanos limit) const {
  return steady_since_ + std::min(steady_for_, limit / 8);
}

void UnusedState::list(Nanos now, const StopAsked& stop) {
  Nanos pause = kLookPauseMax;
  std::set<std::string> due, seen;
  for (const std::string& directory : options_.directories) {
    const Result<ModelsPlace> place = ModelsPlace::open(directory);
    const Result<std::vector<std::string>> names =
        place.ok() ? place->names(stop) : Result<std::vector<std::string>>(place.status());
    seen.insert(models_place(directory));
    if (!names.ok()) {
      leave_alone(models_place(directory), names.status());
      continue;
    }
    for (const std::string& name : *names) {
      if (stop()) return;
      seen.insert(place->path() + "/" + name);
      const std::optional<Nanos> limit = look_at(*place, name, stop);
      if (!limit) continue;
      pause = std::min(pause, std::max(*limit / 8, kLookPauseMin));
      if (now >= believed_from(*limit)) {
        due.insert(name);
      } else {
        pause = std::min(pause, believed_from(*limit) - now);
      }
    }
  }
  std::erase_if(said_, [&](const auto& one) { return !seen.contains(one.first); });
  due_.assign(due.begin(), due.end());
  next_list_ = now + pause;
}

std::optional<Nanos> UnusedState::look_at(const ModelsPlace& place, const std::string& name,
                                          const StopAsked& stop) {
  const std::string path = place.path() + "/" + name;
  if (is_leftover(name)) {
    leave_alone(path, place.remove_leftover(name, stop));
    return std::nullopt;
  }
  if (name == options_.own_model) return std::nullopt;
  const Result<UnusedFolder> folder = UnusedFolder::open(place, name);
  if (!folder.ok()) {
    leave_alone(path, folder.status());
    return std::nullopt;
  }
  if (folder->limit().status().code() == StatusCode::kNotFound) {
    const std::string line = fmt::format(
        "{}: state of {} stays there until its room is wanted, or until `loci forget`: an earlier version "
        "wrote it, and noted no limit",
        path, folder->model());
    if (!folder->held() && is_new(path, line)) options_.say(line);
    return std::nullopt;
  }
  if (!folder->limit().ok()) {
    leave_alone(path, folder->limit().status());
    return std::nullopt;
  }
  return *folder->limit() == kNever ? std::nullopt : std::optional(*folder->limit());
}

void UnusedState::judge(const std::string& id, const StopAsked& stop) {
  std::map<std::array<std::uint8_t, 16>, Parts> sets;
  for (const std::string& directory : options_.directories) {
    if (stop()) return;
    const Result<ModelsPlace> place = ModelsPlace::open(directory);
    if (!place.ok()) continue;
    Result<UnusedFolder> part = UnusedFolder::open(*place, id);
    if (!part.ok()) {
      leave_alone(place->path() + "/" + id, part.status());
      continue;
    }
    if (part->held()) return;
    Status usable = part->limit().status();
    if (usable.ok() && !part->is_noted_anew())
      usable = data_loss("an earlier version had it open last, whose limit is not known");
    if (usable.ok()) usable = part->read_superblock();
    if (!usable.ok()) {
      leave_alone(part->path(), usable);
      continue;
    }
    sets[part->superblock().set].push_back(std::move(*part));
  }
  for (auto& [set, parts] : sets) judge_set(std::move(parts), stop);
}

void UnusedState::judge_set(Parts parts, const StopAsked& stop) {
  Nanos limit = 0;
  for (const UnusedFolder& part : parts) limit = std::max(limit, *part.limit());
  if (limit == kNever) return;
  const std::string path = parts[0].path();
  // By some of the directories nobody can tell what leads to something young.
  std::ranges::sort(parts, {}, [](const UnusedFolder& part) { return part.superblock().directory; });
  bool whole_set = parts.size() == parts[0].superblock().directories;
  for (std::size_t i = 0; i < parts.size(); ++i)
    whole_set = whole_set && parts[i].superblock().directory == i;
  if (!whole_set) {
    return leave_alone(path, data_loss(fmt::format("it is part of a store in {} directories, of which {} are "
                                                   "this server's too",
                                                   parts[0].superblock().directories, parts.size())));
  }
  const Result<Ages> ages = ages_of(parts, stop);
  if (!ages.ok()) return leave_alone(path, ages.status());
  const std::int64_t before = options_.date() - limit / kNanosPerMilli;
  const bool has_state = ages->counts.valid > 0;
  if (!has_state && ages->written_at >= before) return;
  if (has_state && ages->oldest >= before) {
    said_.erase(path);
    return;
  }
  // What is damaged cannot be older than the folder's last write.
  const bool is_old = !has_state || ages->youngest < before;
  if (is_old && (ages->counts.damaged == 0 || ages->written_at < before)) {
    const std::int64_t age = options_.date() - (has_state ? ages->youngest : ages->written_at);
    const std::string what = fmt::format("{}, which nobody had used for {}",
                                         has_state ? "all of its state" : "its folder, without state",
                                         format_duration(age * kNanosPerMilli));
    Result<Parts> left = remove_whole(std::move(parts), what, stop);
    if (!left.ok()) return leave_alone(path, left.status());
    parts = std::move(*left);
  }
  if (!has_state || parts.empty()) return;
  if (const Status planned = plan_drops(std::move(parts), limit, before, stop); !planned.ok())
    leave_alone(path, planned);
}

Result<UnusedState::Ages> UnusedState::ages_of(const Parts& parts, const StopAsked& stop) const {
  Ages ages{.oldest = std::numeric_limits<std::int64_t>::max(), .youngest = 0};
  for (const UnusedFolder& part : parts) {
    ages.written_at = std::max(ages.written_at, part.written_at(stop));
    LOCI_ASSIGN_OR_RETURN(const RecordScan counts, part.scan(stop, [&](const RecoveredEntry& one) {
      ages.oldest = std::min(ages.oldest, one.entry.used_at);
      ages.youngest = std::max(ages.youngest, one.entry.used_at);
    }));
    // A later version's may be young.
    if (counts.foreign > 0)
      return data_loss(fmt::format("{} records there are of another version", counts.foreign));
    ages.counts.valid += counts.valid;
    ages.counts.damaged += counts.damaged;
  }
  return ages;
}

Result<UnusedState::Parts> UnusedState::remove_whole(Parts parts, const std::string& what,
                                                     const StopAsked& stop) {
  for (const UnusedFolder& part : parts) {
    LOCI_ASSIGN_OR_RETURN(const std::string stranger, part.stranger(stop));
    if (stranger.empty()) continue;
    const std::string line = fmt::format("{}: {} is not Loci's, so the folder stays", part.path(),
                                         printable(stranger, LineEnds::kReplace));
    if (is_new(part.path(), line)) options_.warn(line);
    return parts;
  }
  // Of all directories, or a server that starts would find some of them.
  std::vector<UnusedFolder::Lock> locks;
  for (UnusedFolder& part : parts) {
    LOCI_ASSIGN_OR_RETURN(UnusedFolder::Lock lock, part.lock());
    locks.push_back(std::move(lock));
  }
  const std::string path = parts[0].path(), model = parts[0].model();
  std::uint64_t bytes = 0;
  Parts left;
  std::vector<std::pair<ModelsPlace, std::string>> aside;
  for (UnusedFolder& part : parts) {
    const std::uint64_t held = part.held_bytes();
    const Result<std::string> name = part.set_aside();
    if (name.ok()) {
      aside.emplace_back(part.place(), *name);
      bytes += held;
    } else {
      leave_alone(part.path(), name.status());
      left.push_back(std::move(part));
    }
  }
  locks.clear();  // whoever starts has folders of its own now
  if (!aside.empty())
    options_.say(fmt::format("{}: dropped {} of {}: {}", path, format_bytes(bytes), model, what));
  for (const auto& [place, name] : aside)
    leave_alone(place.path() + "/" + name, place.remove_leftover(name, stop));
  return left;
}

Status UnusedState::plan_drops(Parts parts, Nanos limit, std::int64_t before, const StopAsked& stop) {
  UnusedEntries unused(before);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto scanned = parts[i].scan(stop, [&](const RecoveredEntry& one) { unused.add(one, i); });
    if (!scanned.ok()) return scanned.status();
  }
  Dropping dropping{.entries = unused.take(parts.size(), stop), .model = parts[0].model(), .limit = limit};
  if (std::ranges::all_of(dropping.entries, [](const auto& some) { return some.empty(); })) return {};
  dropping.parts = std::move(parts);
  droppings_.push_back(std::move(dropping));
  return {};
}

void UnusedState::drop_some(const StopAsked& stop) {
  Dropping& dropping = droppings_.front();
  const auto some = std::ranges::find_if(dropping.entries, [](const auto& one) { return !one.empty(); });
  if (some == dropping.entries.end()) return end_drop();
  UnusedFolder& part = dropping.parts[static_cast<std::size_t>(some - dropping.entries.begin())];
  const Result<UnusedFolder::Lock> lock = part.lock();
  if (!lock.ok()) {
    leave_alone(part.path(), lock.status());
    return end_drop();
  }
  const Nanos until = options_.now() + kDropFor;
  for (std::size_t i = 0; i < kDropMost && !some->empty() && options_.now() < until; ++i) {
    if (stop()) return;
    const Result<std::uint64_t> freed = part.drop(some->back());
    if (!freed.ok()) {
      leave_alone(part.path(), freed.status());
      return end_drop();
    }
    some->pop_back();
    ++dropping.dropped;
    dropping.freed_bytes += *freed;
  }
  if (std::ranges::all_of(dropping.entries, [](const auto& one) { return one.empty(); })) end_drop();
}

void UnusedState::end_drop() {
  const Dropping& dropping = droppings_.front();
  if (dropping.dropped > 0) {
    options_.say(fmt::format("{}: dropped {} of {}: state that nobody had used for {}",
                             dropping.parts[0].path(), format_bytes(dropping.freed_bytes), dropping.model,
                             exact_duration(dropping.limit)));
  }
  droppings_.pop_front();
}

void UnusedState::leave_alone(const std::string& path, const Status& why) {
  if (why.ok() || why.code() == StatusCode::kCancelled || why.code() == StatusCode::kNotFound) return;
  const std::string line =
      fmt::format("{}: state that is unused for too long is not dropped there: {}", path, why.message());
  if (is_new(path, line)) options_.warn(line);
}

bool UnusedState::is_new(const std::string& path, const std::string& line) {
  return said_[path].insert(line).second;
}

}  // namespace loci
