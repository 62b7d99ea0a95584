// SPDX-License-Identifier: Apache-2.0
// Erases what large threads left that were only taken from their tenants (store_rows::delete_thread), part by
// part: while one of gigabytes goes, turns are committed between two parts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/store/sql_database.h"

namespace loci {

// Thread-safe. Of those that erase, one at a time does a part; so of all transactions that wait for the
// database at most one erases, however many conversations are being deleted. Of servers that share a database
// each leaves a thread to the one that is erasing it.
class SqlEraser {
 public:
  // `database` outlives it.
  explicit SqlEraser(SqlDatabase& database) : database_(database) {}

  // At most so many parts of whatever was taken, of all tenants, the longest at rest first. Returns whether
  // there may be more to do.
  Result<bool> erase_oldest(int parts_max);
  // All parts of this thread, which was taken, and of no other.
  Status erase_thread(std::int64_t thread);

  // A write has added so many bytes to what the tenant has, and its quota has taken so many from it. From
  // then on the tenant's writes erase as much as they add, until as much is erased as was taken: so what it
  // has together with what is not erased yet does not grow, however late expiry comes.
  void keep_pace(std::string_view tenant, std::int64_t added_bytes, std::int64_t taken_bytes);

  // No part begins any more: a stop must not wait for gigabytes. The next start goes on.
  void stop();

 private:
  enum class Outcome : std::uint8_t { kErased, kNothingLeft, kStopped };
  struct Part {
    Outcome outcome = Outcome::kErased;
    std::int64_t bytes = 0;
  };
  // What a tenant's writes owe.
  struct Pace {
    std::int64_t taken_bytes = 0;  // and not erased by them yet
    std::int64_t added_bytes = 0;  // since, and nothing erased for them yet
  };
  class Turn;

  // Of this thread; absent: of the oldest.
  Result<Part> erase_part(std::optional<std::int64_t> thread) EXCLUDES(mutex_);
  bool is_behind(std::string_view tenant) EXCLUDES(mutex_);
  void count_erased(std::string_view tenant, const Part& part) EXCLUDES(mutex_);

  SqlDatabase& database_;
  Mutex mutex_;  // not held while a part is erased
  Condition changed_;
  bool is_busy_ GUARDED_BY(mutex_) = false;  // somebody erases a part
  bool has_stopped_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Pace, std::less<>> paces_ GUARDED_BY(mutex_);  // of tenants that owe something
};

}  // namespace loci
