// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/sql_eraser.h"

#include <array>

#include "loci/serve/store/sql_rows.h"

namespace loci {

using namespace store_rows;

namespace {

constexpr std::int64_t kErasedAtOnceRows = 4'096;

struct TakenThread {
  std::int64_t thread = 0;
  std::int64_t bytes = 0;
};

// Another server's part is left to it: who waits for it holds a connection, and then begins anew.
#define LOCI_TAKEN "SELECT thread, size_bytes FROM threads WHERE tenant = '' "
#define LOCI_OLDEST "ORDER BY active_at, thread LIMIT 1"
#define LOCI_UNLOCKED " FOR UPDATE SKIP LOCKED"
Result<std::optional<TakenThread>> find_taken(SqlSession& session, SqlDialect dialect,
                                              std::optional<std::int64_t> thread) {
  const bool locks = dialect == SqlDialect::kPostgres;
  Result<SqlRows> rows =
      thread ? session.run(locks ? LOCI_TAKEN "AND thread = $1" LOCI_UNLOCKED : LOCI_TAKEN "AND thread = $1",
                           {*thread})
             : session.run(locks ? LOCI_TAKEN LOCI_OLDEST LOCI_UNLOCKED : LOCI_TAKEN LOCI_OLDEST, {});
  LOCI_RETURN_IF_ERROR(rows.status());
  if (rows->empty()) return std::optional<TakenThread>();
  return std::optional(TakenThread{.thread = rows->integer(0, 0), .bytes = rows->integer(0, 1)});
}
#undef LOCI_UNLOCKED
#undef LOCI_OLDEST
#undef LOCI_TAKEN

// The newest first: nothing stands on them, or continues them.
struct ErasedRows {
  std::string_view sizes, erase;
};
constexpr std::array kErasedRows = {
    ErasedRows{"SELECT item, size_bytes FROM items WHERE thread = $1 ORDER BY item DESC LIMIT $2",
               "DELETE FROM items WHERE thread = $1 AND item >= $2"},
    ErasedRows{"SELECT response, size_bytes FROM responses WHERE thread = $1 ORDER BY response DESC LIMIT $2",
               "DELETE FROM responses WHERE thread = $1 AND response >= $2"},
    ErasedRows{"SELECT sequence, size_bytes FROM sequences WHERE thread = $1 ORDER BY sequence DESC LIMIT $2",
               "DELETE FROM sequences WHERE thread = $1 AND sequence >= $2"}};

// Rows of one kind that a part erases: from the newest one to `last`.
struct RowsOfPart {
  std::size_t count = 0;
  std::int64_t last = 0;
  std::int64_t bytes = 0;
  bool are_all = false;  // of this kind
};

// What fits into a part that erases `before_bytes` already; the first row of all does. Reads one row more: in
// SQLite a size stands behind the row's text, through all of which it is read.
Result<RowsOfPart> rows_of_part(SqlSession& session, std::string_view sizes, std::int64_t thread,
                                std::int64_t before_bytes) {
  std::int64_t read = before_bytes;
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run_while(sizes, {thread, kErasedAtOnceRows}, [&read](const SqlRows& so_far) {
                          read += so_far.integer(so_far.size() - 1, 1);
                          return read <= kDeletedAtOnceBytes;
                        }));
  RowsOfPart part;
  for (; part.count < rows.size(); ++part.count) {
    const std::int64_t bytes = part.bytes + rows.integer(part.count, 1);
    const bool is_first = part.count == 0 && before_bytes == 0;
    if (!is_first && before_bytes + bytes > kDeletedAtOnceBytes) break;
    part.last = rows.integer(part.count, 0);
    part.bytes = bytes;
  }
  part.are_all = part.count == rows.size() && part.count < std::size_t{kErasedAtOnceRows};
  return part;
}

// Returns its bytes. Absent: nothing is left, or what is left is another server's.
Result<std::optional<std::int64_t>> erase_some(SqlSession& session, SqlDialect dialect,
                                               std::optional<std::int64_t> only) {
  LOCI_ASSIGN_OR_RETURN(const std::optional<TakenThread> taken, find_taken(session, dialect, only));
  if (!taken) return std::optional<std::int64_t>();
  std::int64_t bytes = 0;
  for (const ErasedRows& kind : kErasedRows) {
    LOCI_ASSIGN_OR_RETURN(const RowsOfPart part, rows_of_part(session, kind.sizes, taken->thread, bytes));
    if (part.count > 0) LOCI_RETURN_IF_ERROR(session.run(kind.erase, {taken->thread, part.last}).status());
    bytes += part.bytes;
    if (part.are_all) continue;
    // (At time 0: it was not active.)
    LOCI_RETURN_IF_ERROR(grow_thread(session, taken->thread, 0, -bytes));
    return std::optional(bytes);
  }
  LOCI_RETURN_IF_ERROR(session.run("DELETE FROM conversations WHERE thread = $1", {taken->thread}).status());
  LOCI_RETURN_IF_ERROR(drop_thread(session, taken->thread));
  return std::optional(taken->bytes);
}

}  // namespace

// Who has it erases a part; nobody has it once the eraser has stopped.
class SqlEraser::Turn {
 public:
  explicit Turn(SqlEraser& eraser) : eraser_(eraser) {
    MutexLock lock(eraser.mutex_);
    eraser.changed_.wait(
        lock, [&eraser]() REQUIRES(eraser.mutex_) { return !eraser.is_busy_ || eraser.has_stopped_; });
    is_had_ = !eraser.has_stopped_;
    if (is_had_) eraser.is_busy_ = true;
  }
  ~Turn() {
    if (!is_had_) return;
    {
      const MutexLock lock(eraser_.mutex_);
      eraser_.is_busy_ = false;
    }
    eraser_.changed_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_had() const { return is_had_; }

 private:
  SqlEraser& eraser_;
  bool is_had_ = false;
};

Result<SqlEraser::Part> SqlEraser::erase_part(std::optional<std::int64_t> thread) {
  const Turn turn(*this);
  if (!turn.is_had()) return Part{.outcome = Outcome::kStopped};
  std::optional<std::int64_t> bytes;
  const Status done = database_.transact(SqlAccess::kUpkeep, [&](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(bytes, erase_some(session, database_.dialect(), thread));
    return {};
  });
  LOCI_RETURN_IF_ERROR(done);
  if (!bytes) return Part{.outcome = Outcome::kNothingLeft};
  return Part{.outcome = Outcome::kErased, .bytes = *bytes};
}

Result<bool> SqlEraser::erase_oldest(int parts_max) {
  for (int i = 0; i < parts_max; ++i) {
    LOCI_ASSIGN_OR_RETURN(const Part part, erase_part(std::nullopt));
    if (part.outcome != Outcome::kErased) return false;
  }
  return true;
}

Status SqlEraser::erase_thread(std::int64_t thread) {
  for (Part part; part.outcome == Outcome::kErased;) {
    LOCI_ASSIGN_OR_RETURN(part, erase_part(thread));
  }
  return {};
}

void SqlEraser::keep_pace(std::string_view tenant, std::int64_t added_bytes, std::int64_t taken_bytes) {
  {
    const MutexLock lock(mutex_);
    auto pace = paces_.find(tenant);
    if (pace == paces_.end()) {
      if (taken_bytes == 0) return;
      pace = paces_.try_emplace(std::string(tenant)).first;
    }
    pace->second.taken_bytes += taken_bytes;
    pace->second.added_bytes += added_bytes;
  }
  while (is_behind(tenant)) {
    const Result<Part> part = erase_part(std::nullopt);
    if (!part.ok()) return;  // the write itself is there; the next one tries again
    count_erased(tenant, *part);
  }
}

// By a part: smaller writes gather what they add.
bool SqlEraser::is_behind(std::string_view tenant) {
  const MutexLock lock(mutex_);
  const auto pace = paces_.find(tenant);
  return pace != paces_.end() && pace->second.added_bytes >= kDeletedAtOnceBytes;
}

void SqlEraser::count_erased(std::string_view tenant, const Part& part) {
  const MutexLock lock(mutex_);
  const auto pace = paces_.find(tenant);
  if (pace == paces_.end()) return;
  pace->second.taken_bytes -= part.bytes;
  pace->second.added_bytes -= part.bytes;
  if (part.outcome != Outcome::kErased || pace->second.taken_bytes <= 0) paces_.erase(pace);
}

void SqlEraser::stop() {
  {
    const MutexLock lock(mutex_);
    has_stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace loci
