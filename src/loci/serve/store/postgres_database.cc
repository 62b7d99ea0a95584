// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/postgres_database.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/base/units.h"
#include "loci/serve/store/postgres_connection.h"
#include "loci/serve/store/postgres_url.h"

namespace loci {
namespace {

constexpr std::size_t kConnectionsMax = 8;
constexpr std::size_t kConnectionsOfOne = 6;  // of a tenant at once, so that others find one
// Upkeep goes through many rows.
constexpr int kUpkeepTimes = 4;
constexpr Nanos kSchemaTimeout = 3'600 * kNanosPerSecond;
// If nobody has had an answer for so long when a call is given up, the server stands still; and it does if a
// connection could not be made in so long.
constexpr std::chrono::seconds kSilence{1};
// How long no further connection is made once the server has refused one.
constexpr std::chrono::seconds kFewerFor{5};
// The advisory lock of alone(); two numbers are a space of their own beside instances' one.
constexpr const char* kAloneLock = "SELECT pg_advisory_lock(1282368361, 1)";

using Time = std::chrono::steady_clock;

std::int64_t random_instance() {
  std::random_device random;
  const std::uint64_t word = (std::uint64_t{random()} << 32) | random();
  return static_cast<std::int64_t>(word >> 1);
}

Nanos random_pause(int attempt) {
  static thread_local std::minstd_rand generator{std::random_device{}()};
  const Nanos most = std::min<Nanos>(50, Nanos{2} << std::min(attempt, 5));
  return std::uniform_int_distribution<Nanos>(1, most)(generator) * kNanosPerMilli;
}

}  // namespace

// Connections that are idle, at most so many at once in all. When one is lost, those that were made before it
// was last used are doubted: they are of the same server, which may be gone without a word, and each would be
// waited for anew. None is used again, but they stay until another one is made: if the server lives, their
// advisory lock says that this instance does.
//
// A server that stands still is asked by one call at a time, which tries to make a connection; all others are
// refused at once. Each of them would wait as long as the one that asks, on a thread for which others wait in
// turn. The first connection that is made ends this.
//
// A server that refuses a further connection (it, or the role, has as many as it may) is not asked for one
// for a while: calls wait for those that there are.
struct PostgresDatabase::Pool {
  std::string settings;
  std::string settings_at_start;  // what is made at a server's start is waited for longer
  std::int64_t instance = 0;
  Nanos lock_timeout = 0;
  Nanos answer_timeout = 0;
  Nanos idle_limit = 0;

  // A connection that somebody uses, and until when the server must have answered.
  struct Busy {
    PostgresConnection* connection = nullptr;
    Time::time_point since;
    Time::time_point until;
    bool given_up = false;
  };

  Mutex mutex;  // never held while the network is waited for
  Condition returned;
  Condition watch_changed;
  using Connections = std::vector<std::unique_ptr<PostgresConnection>>;
  Connections idle GUARDED_BY(mutex);     // the one that was used last at the end
  Connections doubted GUARDED_BY(mutex);  // not among `open`
  std::vector<Busy> busy GUARDED_BY(mutex);
  std::size_t open GUARDED_BY(mutex) = 0;
  std::size_t fewer GUARDED_BY(mutex) = 0;  // most_open() until then
  Time::time_point fewer_until GUARDED_BY(mutex);
  Time::time_point answered_at GUARDED_BY(mutex);
  bool stands_still GUARDED_BY(mutex) = false;
  bool is_asked GUARDED_BY(mutex) = false;  // by the one call, while it stands still
  std::map<std::string, std::size_t, std::less<>> used GUARDED_BY(mutex);  // by tenant; above 0
  bool is_abandoned GUARDED_BY(mutex) = false;
  bool is_over GUARDED_BY(mutex) = false;
  std::thread watch;

  ~Pool() {
    {
      const MutexLock lock(mutex);
      is_over = true;
    }
    watch_changed.notify_all();
    if (watch.joinable()) watch.join();
  }

  // Those that nobody has used for StoreOptions::idle_limit, but for one, whose lock says that this instance
  // lives. `next`: is brought forward to when there may be another.
  Connections take_unused(Time::time_point& next) REQUIRES(mutex) {
    const auto now = Time::now();
    const auto limit = std::chrono::nanoseconds(idle_limit);
    // The first ones are those that were used longest ago.
    std::size_t count = 0;
    while (count < idle.size() && open - count > 1 && idle[count]->used_at() + limit <= now) ++count;
    Connections unused(std::make_move_iterator(idle.begin()),
                       std::make_move_iterator(idle.begin() + static_cast<std::ptrdiff_t>(count)));
    idle.erase(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count));
    open -= count;
    if (open > 1 && !idle.empty()) next = std::min(next, idle.front()->used_at() + limit);
    return unused;
  }

  // Gives up what the server does not answer in time, and closes what nobody uses.
  void run_watch() {
    MutexLock lock(mutex);
    while (!is_over) {
      auto next = Time::time_point::max();
      if (Connections unused = take_unused(next); !unused.empty()) {
        lock.unlock();
        unused.clear();
        returned.notify_all();
        lock.lock();
        continue;
      }
      for (Busy& one : busy) {
        if (one.given_up) continue;
        if (one.until <= Time::now()) {
          one.given_up = true;
          one.connection->interrupt();
        } else {
          next = std::min(next, one.until);
        }
      }
      if (next == Time::time_point::max())
        watch_changed.wait(lock);
      else
        watch_changed.wait_until(lock, next);
    }
  }

  void begin_use(PostgresConnection* connection, Time::time_point until) REQUIRES(mutex) {
    busy.push_back({.connection = connection, .since = Time::now(), .until = until});
    watch_changed.notify_all();
  }
  std::vector<Busy>::iterator find_busy(const PostgresConnection* connection) REQUIRES(mutex) {
    return std::ranges::find(busy, connection, &Busy::connection);
  }
  // Fewer than it may have. `tenant`: empty: the server itself.
  bool may_use(std::string_view tenant) REQUIRES(mutex) {
    const auto found = used.find(tenant);
    const std::size_t most = std::min(kConnectionsOfOne, std::max<std::size_t>(2, most_open()) - 1);
    return tenant.empty() || found == used.end() || found->second < most;
  }
  void end_use_of(std::string_view tenant) REQUIRES(mutex) {
    const auto found = used.find(tenant);
    if (--found->second == 0) used.erase(found);
  }
  // True: it was given up.
  bool end_use(const PostgresConnection* connection) REQUIRES(mutex) {
    const auto found = find_busy(connection);
    if (found == busy.end()) return false;
    const bool given_up = found->given_up;
    busy.erase(found);
    return given_up;
  }

  // How many connections may be open: fewer for a while where the server has refused a further one.
  std::size_t most_open() REQUIRES(mutex) { return Time::now() < fewer_until ? fewer : kConnectionsMax; }
  // No further connection could be made: one of the doubted ones, each of which has a place at the server, is
  // tried instead. False: there is none.
  bool trust_again() {
    const MutexLock lock(mutex);
    if (stands_still || doubted.empty()) return false;
    idle.push_back(std::move(doubted.back()));
    doubted.pop_back();
    ++open;
    return true;
  }
  // A further connection was refused at once. True: there are others, for one of which the call may wait.
  bool note_refused() {
    const MutexLock lock(mutex);
    if (stands_still || open == 0) return false;
    fewer = open;
    fewer_until = Time::now() + kFewerFor;
    return true;
  }

  Result<std::unique_ptr<PostgresConnection>> take(std::string_view tenant, Nanos timeout) {
    return take(tenant, timeout, settings);
  }
  Result<std::unique_ptr<PostgresConnection>> take(std::string_view tenant, Nanos timeout,
                                                   const std::string& settings_of_new) {
    const auto until = Time::now() + std::chrono::nanoseconds(timeout);
    Status refused_further;
    for (;;) {
      bool asks = false;
      Result<std::unique_ptr<PostgresConnection>> idle_one = take_place(tenant, timeout, until, asks);
      if (!idle_one.ok()) return refused_further.ok() ? idle_one.status() : refused_further;
      if (*idle_one != nullptr) return idle_one;
      Result<std::unique_ptr<PostgresConnection>> made = make(tenant, timeout, settings_of_new, asks);
      if (made.ok() || (!trust_again() && (asks || !note_refused()))) return made;
      refused_further = made.status();
    }
  }

  // Waits for an idle connection, or for room for a further one, which the caller then makes (null). `asks`:
  // set if it is the one call that asks a server that stands still.
  Result<std::unique_ptr<PostgresConnection>> take_place(std::string_view tenant, Nanos timeout,
                                                         Time::time_point until, bool& asks) {
    MutexLock lock(mutex);
    const auto ready = [&]() REQUIRES(mutex) {
      const bool has_room = !idle.empty() || open < most_open();
      return is_abandoned || stands_still || (has_room && may_use(tenant));
    };
    while (!ready()) {
      const auto now = Time::now();
      if (now >= until) return may_use(tenant) ? unanswered(timeout) : has_its_connections(timeout);
      returned.wait_until(lock, now < fewer_until ? std::min(until, fewer_until) : until);
    }
    if (is_abandoned) return abandoned();
    if (stands_still) {
      if (is_asked || open == kConnectionsMax) return refused();
      is_asked = asks = true;
      doubt_before(Time::time_point::max());
    }
    ++used[std::string(tenant)];
    if (idle.empty()) {
      ++open;
      return std::unique_ptr<PostgresConnection>();
    }
    std::unique_ptr<PostgresConnection> connection = std::move(idle.back());
    idle.pop_back();
    begin_use(connection.get(), Time::now() + std::chrono::nanoseconds(timeout));
    return connection;
  }

  // Makes a connection that `open` counts already. Errors: the place is given back.
  Result<std::unique_ptr<PostgresConnection>> make(std::string_view tenant, Nanos timeout,
                                                   const std::string& settings_of_new, bool asks) {
    const auto connecting = Time::now();
    auto made = PostgresConnection::connect(settings_of_new);
    if (!made.ok()) {
      note_unmade(asks, connecting);
      drop(tenant, nullptr);
      return made;
    }
    std::unique_ptr<PostgresConnection> connection = std::move(made).value();
    {
      const MutexLock lock(mutex);
      begin_use(connection.get(), Time::now() + std::chrono::nanoseconds(timeout));
      if (is_abandoned) connection->interrupt();
    }
    if (Status begun = connection->begin(instance, lock_timeout); !begun.ok()) {
      note_unmade(asks, connecting);
      return drop(tenant, std::move(connection)) ? unanswered(timeout) : begun;
    }
    Connections replaced;
    {
      const MutexLock lock(mutex);
      replaced.swap(doubted);
      note_answered();
      if (asks) is_asked = false;
    }
    return connection;
  }

  void note_answered() REQUIRES(mutex) {
    answered_at = Time::now();
    stands_still = false;
  }
  // A connection could not be made, of which the making began then.
  void note_unmade(bool asks, Time::time_point since) {
    const MutexLock lock(mutex);
    const bool took_long = Time::now() - since >= kSilence && answered_at < since;
    if (asks) is_asked = false;
    // (A refusal at once costs nobody time.)
    if (asks || took_long) stands_still = took_long;
  }

  void give(std::string_view tenant, std::unique_ptr<PostgresConnection> connection) {
    {
      const MutexLock lock(mutex);
      note_answered();
      end_use_of(tenant);
      if (end_use(connection.get())) {
        --open;  // it was given up as its answer came
      } else {
        connection->note_used();
        idle.push_back(std::move(connection));
        watch_changed.notify_all();
      }
    }
    returned.notify_all();  // not each who waits may have it
  }

  // It was lost, or could not be made (null). True: it was given up.
  bool drop(std::string_view tenant, std::unique_ptr<PostgresConnection> connection) {
    bool given_up = false;
    {
      const MutexLock lock(mutex);
      end_use_of(tenant);
      const auto found = find_busy(connection.get());
      if (found != busy.end()) doubt_before(found->since);
      given_up = end_use(connection.get());
      --open;
      if (given_up && Time::now() - answered_at > kSilence) stands_still = true;
    }
    returned.notify_all();
    return given_up;
  }

  void doubt_before(Time::time_point since) REQUIRES(mutex) {
    const auto doubtful =
        std::ranges::stable_partition(idle, [&](const auto& one) { return one->made_at() >= since; });
    open -= doubtful.size();
    doubted.insert(doubted.end(), std::move_iterator(doubtful.begin()), std::move_iterator(doubtful.end()));
    idle.erase(doubtful.begin(), doubtful.end());
  }

  static Status unanswered(Nanos timeout) {
    return {StatusCode::kUnavailable,
            fmt::format("the database (PostgreSQL) has not answered for {}; try again later",
                        format_duration(timeout))};
  }

  static Status has_its_connections(Nanos timeout) {
    return {StatusCode::kUnavailable,
            fmt::format("this tenant's other requests have used all of its {} connections to the database "
                        "(PostgreSQL) for {}; try again later",
                        kConnectionsOfOne, format_duration(timeout))};
  }

  static Status refused() {
    return {
        StatusCode::kUnavailable,
        "the database (PostgreSQL) does not answer, and another request asks it just now; try again later"};
  }

  static Status abandoned() {
    return {StatusCode::kUnavailable,
            "the database (PostgreSQL) did not answer before this server stopped waiting for it; try again "
            "later"};
  }

  struct Outcome {
    Status status;
    PostgresFault fault = PostgresFault::kNone;
  };

  // `access`: what only reads can be done again where nobody knows whether it was committed.
  template <class Transaction>
  static Outcome attempt(PostgresConnection& connection, SqlAccess access, const Body& body) {
    try {
      Transaction transaction(connection.handle());
      PostgresSession session(connection, transaction);
      Status status = body(session);
      if (!status.ok()) return {std::move(status), session.fault()};
      try {
        transaction.commit();
      } catch (const pqxx::broken_connection& error) {
        if (access == SqlAccess::kRead) throw;
        throw pqxx::in_doubt_error(error.what());
      } catch (const pqxx::in_doubt_error& error) {
        if (access != SqlAccess::kRead) throw;
        throw pqxx::broken_connection(error.what());
      }
      return {};
    } catch (...) {
      PostgresError error = current_postgres_error();
      return {std::move(error.status), error.fault};
    }
  }
};

PostgresDatabase::PostgresDatabase(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}
PostgresDatabase::~PostgresDatabase() = default;

Result<std::unique_ptr<PostgresDatabase>> PostgresDatabase::open(const std::string& url,
                                                                 const StoreOptions& options) {
  auto pool = std::make_unique<Pool>();
  LOCI_ASSIGN_OR_RETURN(pool->settings, connection_settings(url, options.lock_timeout));
  const StoreOptions at_start;
  LOCI_ASSIGN_OR_RETURN(pool->settings_at_start,
                        connection_settings(url, std::max(options.lock_timeout, at_start.lock_timeout)));
  pool->instance = random_instance();
  pool->lock_timeout = options.lock_timeout;
  pool->answer_timeout = options.answer_timeout;
  pool->idle_limit = options.idle_limit;
  pool->watch = std::thread([watched = pool.get()] { watched->run_watch(); });
  LOCI_ASSIGN_OR_RETURN(
      std::unique_ptr<PostgresConnection> first,
      pool->take({}, std::max(options.answer_timeout, at_start.answer_timeout), pool->settings_at_start));
  pool->give({}, std::move(first));
  return std::unique_ptr<PostgresDatabase>(new PostgresDatabase(std::move(pool)));
}

Status PostgresDatabase::transact(SqlAccess access, const SqlCaller& caller, const Body& body) {
  using Writing = pqxx::transaction<pqxx::repeatable_read, pqxx::read_write>;
  using Reading = pqxx::transaction<pqxx::repeatable_read, pqxx::read_only>;
  using EachRow = pqxx::transaction<pqxx::read_committed, pqxx::read_write>;
  const auto deadline = Time::now() + std::chrono::nanoseconds(pool_->lock_timeout);
  const Nanos timeout = access == SqlAccess::kSchema   ? kSchemaTimeout
                        : access == SqlAccess::kUpkeep ? pool_->answer_timeout * kUpkeepTimes
                                                       : pool_->answer_timeout;
  for (int attempt = 0;; ++attempt) {
    LOCI_ASSIGN_OR_RETURN(std::unique_ptr<PostgresConnection> connection,
                          pool_->take(caller.tenant, timeout));
    Pool::Outcome outcome = access == SqlAccess::kRead   ? Pool::attempt<Reading>(*connection, access, body)
                            : access == SqlAccess::kRows ? Pool::attempt<EachRow>(*connection, access, body)
                                                         : Pool::attempt<Writing>(*connection, access, body);
    const bool lost = outcome.fault == PostgresFault::kLost || !connection->handle().is_open();
    if (!lost) {
      pool_->give(caller.tenant, std::move(connection));
    } else if (pool_->drop(caller.tenant, std::move(connection)) && outcome.fault == PostgresFault::kLost) {
      return Pool::unanswered(timeout);  // another connection is to the same server
    }
    const bool again = outcome.fault == PostgresFault::kLost || outcome.fault == PostgresFault::kConflict;
    if (outcome.status.ok() || !again || Time::now() >= deadline) return outcome.status;
    std::this_thread::sleep_for(std::chrono::nanoseconds(random_pause(attempt)));
  }
}

std::string PostgresDatabase::instance() const { return std::to_string(pool_->instance); }

void PostgresDatabase::abandon() {
  {
    const MutexLock lock(pool_->mutex);
    pool_->is_abandoned = true;
    for (const Pool::Busy& one : pool_->busy) one.connection->interrupt();
  }
  pool_->returned.notify_all();
}

Result<bool> PostgresDatabase::has_ended(SqlSession& session, std::string_view instance) {
  if (instance == this->instance()) return false;
  // The lock ends with this transaction, in which its responses are seen to.
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT CASE WHEN pg_try_advisory_xact_lock(CAST($1 AS BIGINT)) THEN 1 ELSE 0 END",
                  {instance}));
  return rows.integer(0, 0) == 1;
}

// Held for the moment of this statement. Owners share the lock, so that one who shared it would learn
// nothing; and the list of all locks (pg_locks) is long in a large cluster.
Result<bool> PostgresDatabase::seems_ended(SqlSession& session, std::string_view instance) {
  if (instance == this->instance()) return false;
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT CASE WHEN pg_try_advisory_lock(CAST($1 AS BIGINT)) THEN "
                  "CASE WHEN pg_advisory_unlock(CAST($1 AS BIGINT)) THEN 1 ELSE 0 END ELSE 0 END",
                  {instance}));
  return rows.integer(0, 0) == 1;
}

Status PostgresDatabase::alone(const std::function<Status()>& job) {
  return run_alone([&](PostgresConnection&) { return job(); });
}

Status PostgresDatabase::make_tables(const std::string& statements) {
  return run_alone([&](PostgresConnection& connection) -> Status {
    pqxx::work transaction(connection.handle());
    transaction.exec0(statements);
    transaction.commit();
    return {};
  });
}

Status PostgresDatabase::run_alone(const std::function<Status(PostgresConnection&)>& job) {
  // A connection of its own, outside the pool; it ends with the job, and so does the lock.
  LOCI_ASSIGN_OR_RETURN(const std::unique_ptr<PostgresConnection> connection,
                        PostgresConnection::connect(pool_->settings_at_start));
  LOCI_RETURN_IF_ERROR(connection->begin(pool_->instance, pool_->lock_timeout));
  try {
    {
      pqxx::nontransaction session(connection->handle());
      session.exec0("SET lock_timeout = 600000");
      session.exec0("SET statement_timeout = 0");
      session.exec(kAloneLock);
      session.exec0("CREATE SCHEMA IF NOT EXISTS loci");
    }
    return job(*connection);
  } catch (...) {
    return current_postgres_error().status;
  }
}

}  // namespace loci
