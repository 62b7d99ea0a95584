// SPDX-License-Identifier: Apache-2.0
// Drops state that nobody has used for longer than the limit under which it was written, of models that no
// server has open: a model that is never served again has nobody else who would
// (docs/decisions/unused-state.md). Each model's folder notes its own limit (DiskStoreOptions::state_ttl).
//
// It goes as a start of the model's own server would, with the limit noted: nothing goes that this one would
// have kept. An example, of a limit of seven days and a model that was served last on Monday:
//
//     Tuesday          what was used last on Tuesday a week ago goes, entry by entry
//     Monday, a week later    the rest goes, and the folder with it
//
// The folder is read without its lock, so it may be served meanwhile. Therefore its lock is taken for some
// entries at a time, and only while nobody had it since the reading began.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/disk/disk_unused_folder.h"

namespace loci {

struct UnusedOptions {
  std::vector<std::string> directories;  // those of all models
  std::string own_model;                 // the id of the one that is served here, which is left alone
  std::function<void(const std::string&)> say = [](const std::string&) {};   // what was dropped
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // what cannot be
  std::function<Nanos()> now;                                                // of a clock that nobody sets
  std::function<std::int64_t()> date;                                        // milliseconds since 1970
};

// Thread-compatible.
class UnusedState {
 public:
  explicit UnusedState(UnusedOptions options) : options_(std::move(options)) {}

  // Does the next piece of work, if one is due: lists the models, reads one's records, or drops some entries.
  // Returns how long to wait for the next call; earlier ones do no harm, and one each second tells a clock
  // that jumps. Ends within some milliseconds, and what the disk takes for one call, once `stop` returns
  // true. Nothing that goes wrong is more than a line in the log, once for each folder.
  Nanos step(const StopAsked& stop);

  // At most so many entries are dropped, for so long, before a server that starts gets the lock; it tries
  // every 50 ms, and is refused after ten times.
  static constexpr std::size_t kDropMost = 1024;
  static constexpr Nanos kDropFor = 50 * kNanosPerMilli, kDropPause = 150 * kNanosPerMilli;
  // An eighth of the shortest limit that is noted lies between two looks, within these.
  static constexpr Nanos kLookPauseMin = kNanosPerSecond, kLookPauseMax = 3600 * kNanosPerSecond;
  // A clock must have gone steadily for so long since the start, and after a jump ahead, before anything is
  // dropped by it (or for an eighth of the shortest limit, if that is less): NTP may set it right meanwhile.
  static constexpr Nanos kSteadyAtStart = 60 * kNanosPerSecond, kSteadyAfterJump = 3600 * kNanosPerSecond;
  static constexpr std::int64_t kJumpMillis = 60'000;

 private:
  // The parts of a model's store, in the order of its directories.
  using Parts = std::vector<UnusedFolder>;
  struct Dropping {
    Parts parts;
    std::vector<std::vector<UnusedEntry>> entries;  // of each part, those that are left
    std::string model;
    Nanos limit = 0;
    std::uint64_t dropped = 0, freed_bytes = 0;
  };
  struct Ages {
    RecordScan counts;
    std::int64_t oldest = 0, youngest = 0;  // where there is a valid record
    std::int64_t written_at = 0;
  };
  struct Moment {
    Nanos now = 0;
    std::int64_t date = 0;
  };

  void follow_clock(Nanos now);
  // When the clock is believed, for a limit.
  Nanos believed_from(Nanos limit) const;
  void list(Nanos now, const StopAsked& stop);
  // Returns the limit by which the folder is to be judged, if there is one. Finishes the removal of a folder
  // of which something is left.
  std::optional<Nanos> look_at(const ModelsPlace& place, const std::string& name, const StopAsked& stop);
  void judge(const std::string& id, const StopAsked& stop);
  void judge_set(Parts parts, const StopAsked& stop);
  Result<Ages> ages_of(const Parts& parts, const StopAsked& stop) const;
  // Sets the parts aside and removes them. Returns those that cannot be set aside. Errors: as lock().
  Result<Parts> remove_whole(Parts parts, const std::string& what, const StopAsked& stop);
  // Errors: as ages_of().
  Status plan_drops(Parts parts, Nanos limit, std::int64_t before, const StopAsked& stop);
  void drop_some(const StopAsked& stop);
  void end_drop();
  // A line, once. None of what somebody else sees to (kCancelled, kNotFound).
  void leave_alone(const std::string& path, const Status& why);
  // True once for each line of a path, until all is well there.
  bool is_new(const std::string& path, const std::string& line);

  const UnusedOptions options_;
  std::optional<Moment> clock_;  // at the latest call
  Nanos steady_since_ = 0, steady_for_ = kSteadyAtStart;
  Nanos next_list_ = 0;
  std::deque<std::string> due_;                        // models to be judged, by id
  std::deque<Dropping> droppings_;                     // one after the other
  std::map<std::string, std::set<std::string>> said_;  // by path
};

}  // namespace loci
