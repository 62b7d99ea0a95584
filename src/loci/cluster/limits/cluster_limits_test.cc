// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/limits/cluster_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <pqxx/pqxx>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/cluster/member_table.h"
#include "loci/serve/store/postgres_testing.h"

// libpqxx 6.4 forgets the last result of a connection that was lost: tests stop their server.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace loci {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

std::future<std::optional<LimitAnswer>> begin_ask(ClusterLimits& server, LimitAsk ask) {
  auto answer = std::make_shared<std::promise<std::optional<LimitAnswer>>>();
  server.ask(std::move(ask), [answer](std::optional<LimitAnswer> one) { answer->set_value(one); });
  return answer->get_future();
}

class ClusterLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    postgres_ = TestPostgres::shared();
    if (postgres_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    url_ = postgres_->new_database();
    members_ = MemberTable::open(url_, MemberKey{}).value();
    one_ = open("one");
    other_ = open("other");
  }
  std::unique_ptr<ClusterLimits> open(const std::string& member, std::uint8_t key = 0) {
    return std::make_unique<ClusterLimits>(LimitTable::open(url_, MemberKey{key}, member).value(), log_,
                                           member.size());
  }
  std::string sql(const std::string& statement) { return TestPostgres::run(url_, statement); }
  // Asks until somebody counts: on a busy machine the database's answer may outlast a request's patience.
  static std::optional<LimitAnswer> ask(ClusterLimits& server, const LimitAsk& wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::optional<LimitAnswer> answer = begin_ask(server, wanted).get();
    while (!answer && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      answer = begin_ask(server, wanted).get();
    }
    return answer;
  }
  static std::optional<LimitAnswer> ask(ClusterLimits& server, const std::string& tenant,
                                        const TenantLimits& limits,
                                        std::optional<LimitAsk::Tokens> tokens = std::nullopt) {
    return ask(server, {.tenant = tenant, .limits = limits, .tokens = tokens});
  }
  // Whatever was refused just now.
  static std::optional<LimitAnswer> ask_again(ClusterLimits& server, const std::string& tenant,
                                              const TenantLimits& limits) {
    return ask(
        server,
        {.tenant = tenant, .limits = limits, .tokens = std::nullopt, .attempt = LimitAsk::Attempt::kAgain});
  }
  // Where nobody may count.
  static std::optional<LimitAnswer> ask_once(ClusterLimits& server, const std::string& tenant,
                                             const TenantLimits& limits) {
    return begin_ask(server, {.tenant = tenant, .limits = limits, .tokens = std::nullopt}).get();
  }
  static bool is_counted(const std::optional<LimitAnswer>& answer) { return answer && !answer->reached; }

  // A round that fails after it took longer than `in_time` proves nothing: the machine was busy, and asks may
  // have outlasted their patience. Then there is another one, with another tenant.
  static void expect_in_time(const std::function<AssertionResult(const std::string& tenant)>& round,
                             std::chrono::nanoseconds in_time = std::chrono::nanoseconds(kLimitPatience)) {
    AssertionResult seen = AssertionSuccess();
    for (int i = 0; i < 60; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      seen = round("a" + std::to_string(i));
      if (seen || std::chrono::steady_clock::now() - begin < in_time) break;
    }
    EXPECT_TRUE(seen);
  }

  TestPostgres* postgres_ = nullptr;
  std::string url_;
  const std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  std::unique_ptr<MemberTable> members_;
  std::unique_ptr<ClusterLimits> one_, other_;
};

TEST_F(ClusterLimitsTest, TwoServersCountTogether) {
  const TenantLimits limits{.requests_per_minute = 60};
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> counted = 0, unanswered = 0;
  std::vector<std::thread> threads;
  for (const auto& server : {one_.get(), other_.get()}) {
    threads.emplace_back([&, server] {
      // Many at once, and some one after the other; until one is refused, where the database was slow.
      bool is_refused = false;
      for (int i = 0; i < 10 || (i < 6'000 && !is_refused); ++i) {
        if (i >= 10) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::vector<std::future<std::optional<LimitAnswer>>> answers;
        for (int k = 0; k < 20; ++k)
          answers.push_back(begin_ask(*server, {.tenant = "a", .limits = limits, .tokens = {}}));
        for (auto& one : answers) {
          const std::optional<LimitAnswer> answer = one.get();
          counted += is_counted(answer) ? 1 : 0;
          unanswered += answer ? 0 : 1;
          is_refused = is_refused || (answer && answer->reached);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(counted + unanswered, 60) << "what is not answered in time may be counted all the same";
  EXPECT_LE(counted, 60 + seconds + 1) << "a second brings one more";
  std::optional<LimitAnswer> last;
  for (int i = 0; i < 100 && !(last && last->reached); ++i) last = ask(*one_, "a", limits);
  ASSERT_TRUE(last && last->reached);
  EXPECT_EQ(last->reached->kind, LimitReached::Kind::kRequests);
  EXPECT_EQ(last->state.requests->limit, 60u);
  EXPECT_TRUE(is_counted(ask(*open("third", 1), "a", limits))) << "another cluster's tenant";
}

TEST_F(ClusterLimitsTest, WhatIsGivenBackIsThereForOthers) {
  const TenantLimits limits{.tokens_per_minute = 1000};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits, LimitAsk::Tokens{.prompt = 10, .all = 1000})));
  const std::optional<LimitAnswer> refused =
      ask(*other_, "a", limits, LimitAsk::Tokens{.prompt = 10, .all = 900});
  ASSERT_TRUE(refused && refused->reached);
  EXPECT_EQ(refused->reached->kind, LimitReached::Kind::kTokens);
  one_->settle("a", 1000, 50);
  one_->end("a");
  EXPECT_TRUE(eventually(
      [&] { return is_counted(ask(*other_, "a", limits, LimitAsk::Tokens{.prompt = 10, .all = 900})); }));
}

TEST_F(ClusterLimitsTest, RequestsAtOnceAreThoseOfLivingServers) {
  const TenantLimits limits{.concurrent_requests = 2};
  expect_in_time([&](const std::string& tenant) -> AssertionResult {
    one_ = open("one");
    if (!is_counted(ask(*one_, tenant, limits)) || !is_counted(ask(*other_, tenant, limits)))
      return AssertionFailure() << "two are allowed";
    const std::optional<LimitAnswer> third = ask(*one_, tenant, limits);
    if (!third || !third->reached || third->reached->kind != LimitReached::Kind::kConcurrent)
      return AssertionFailure() << "a third one is not";
    one_->end(tenant);
    if (!is_counted(ask(*one_, tenant, limits))) return AssertionFailure() << "its own is known at once";
    if (is_counted(ask(*other_, tenant, limits))) return AssertionFailure() << "again a third one";
    one_->stop();  // it has left
    if (!is_counted(ask_again(*other_, tenant, limits))) return AssertionFailure() << "it has left";
    // One that ended without leaving, five seconds ago.
    sql("INSERT INTO loci.tenant_places SELECT tenant, 'dead', 7, at - 5001 FROM loci.tenant_places "
        "ON CONFLICT DO NOTHING");
    other_->end(tenant);
    if (!is_counted(ask(*other_, tenant, limits))) return AssertionFailure() << "the dead one is counted";
    // One that ended before the database's clock stepped back.
    sql("UPDATE loci.tenant_places SET at = at + 70000 WHERE member = 'dead'");
    other_->end(tenant);
    if (!is_counted(ask(*other_, tenant, limits))) return AssertionFailure() << "the one to come is counted";
    return AssertionSuccess();
  });
}

// The place of a server that ended counts for five seconds more, and its requests do not wait so long.
TEST_F(ClusterLimitsTest, AMovedRequestIsCountedWhateverTheLimits) {
  const TenantLimits limits{.requests_per_minute = 2, .concurrent_requests = 1};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  const std::optional<LimitAnswer> refused = ask(*other_, "a", limits);
  ASSERT_TRUE(refused && refused->reached);
  const LimitAsk moved{
      .tenant = "a", .limits = limits, .tokens = std::nullopt, .attempt = LimitAsk::Attempt::kMoved};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_counted(ask(*other_, moved))) << i;
  const std::optional<LimitAnswer> later = ask(*one_, "a", limits);
  ASSERT_TRUE(later && later->reached) << "they run, and more requests came than a minute allows";
}

TEST_F(ClusterLimitsTest, ManyTenantsEachHaveTheirOwn) {
  constexpr int kTenants = 2'000;
  const TenantLimits limits{.requests_per_minute = 2, .concurrent_requests = 50};
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> counted = 0, unsure = 0, lost = 0;
  std::vector<std::thread> threads;
  for (const auto& server : {one_.get(), other_.get()}) {
    threads.emplace_back([&, server] {
      std::vector<int> tenants(2 * kTenants);
      for (int i = 0; i < 2 * kTenants; ++i) {
        // In unlike orders, so that servers meet at rows from both sides.
        tenants[i] = server == one_.get() ? i % kTenants : kTenants - 1 - i % kTenants;
      }
      // What outlasts the patience of a request, on a slow machine, was not counted and is asked again.
      for (int tries = 0; tries < 600 && !tenants.empty(); ++tries) {
        std::vector<std::future<std::optional<LimitAnswer>>> answers;
        for (const int tenant : tenants)
          answers.push_back(
              begin_ask(*server, {.tenant = std::to_string(tenant), .limits = limits, .tokens = {}}));
        std::vector<int> unanswered;
        for (std::size_t i = 0; i < answers.size(); ++i) {
          const std::optional<LimitAnswer> one = answers[i].get();
          counted += is_counted(one) ? 1 : 0;
          if (!one) unanswered.push_back(tenants[i]);
        }
        tenants.swap(unanswered);
        unsure += static_cast<int>(tenants.size());
        if (!tenants.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      lost += static_cast<int>(tenants.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(lost, 0);
  EXPECT_GE(counted + unsure, 2 * kTenants) << "what is not answered in time may be counted all the same";
  EXPECT_LE(counted, (2 + seconds / 30) * kTenants) << "half a minute brings one more";
  EXPECT_EQ(sql("SELECT COUNT(*) FROM loci.tenant_limits"), std::to_string(kTenants));
  // Rows that say nothing any more go.
  sql("UPDATE loci.tenant_limits SET full_at = 0");
  sql("UPDATE loci.tenant_places SET at = 0");
  sql("INSERT INTO loci.tenant_places SELECT tenant, 'x', 1, 9223372036854775807 FROM loci.tenant_places "
      "ON CONFLICT DO NOTHING");
  const auto table = LimitTable::open(url_, MemberKey{}, "third").value();
  for (const char* rows : {"tenant_limits", "tenant_places WHERE member = 'x'"}) {
    EXPECT_TRUE(eventually([&] {
      return table->clear().ok() && sql(std::string("SELECT COUNT(*) FROM loci.") + rows) == "0";
    })) << rows;
  }
}

TEST_F(ClusterLimitsTest, ChangedRowsAreReadAsNumbersThatMayBe) {
  const TenantLimits limits{.requests_per_minute = 2, .tokens_per_minute = 100, .concurrent_requests = 5};
  ASSERT_TRUE(is_counted(ask_again(*one_, "a", limits)));
  sql("UPDATE loci.tenant_limits SET requests_missing = -9223372036854775807, tokens_missing = -1, at = "
      "9223372036854775807");
  EXPECT_TRUE(is_counted(ask_again(*one_, "a", limits)));
  for (const char* at : {"9223372036854775807", "CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)"}) {
    sql(std::string("UPDATE loci.tenant_limits SET requests_missing = 9223372036854775807, at = ") + at);
    EXPECT_FALSE(is_counted(ask_again(*one_, "a", limits))) << at;
  }
  sql("UPDATE loci.tenant_limits SET at = -9223372036854775807");
  EXPECT_TRUE(is_counted(ask_again(*one_, "a", limits))) << "what was missing in 1970 is not any more";
  sql("UPDATE loci.tenant_limits SET requests_missing = 0");
  sql("INSERT INTO loci.tenant_places SELECT tenant, 'x', 9223372036854775807, 9223372036854775807 FROM "
      "loci.tenant_limits");
  EXPECT_TRUE(is_counted(ask_again(*one_, "a", limits))) << "nobody renews a row at the end of time";
  sql("UPDATE loci.tenant_places SET at = CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) + 4000 WHERE "
      "member = 'x'");
  EXPECT_FALSE(is_counted(ask_again(*one_, "a", limits)));
  sql("DELETE FROM loci.tenant_limits");
  sql("DELETE FROM loci.tenant_places");
  EXPECT_TRUE(is_counted(ask_again(*one_, "a", limits))) << "rows that are gone begin anew";
}

TEST_F(ClusterLimitsTest, ARefusalIsKeptForAMoment) {
  const TenantLimits limits{.requests_per_minute = 1};
  pqxx::connection connection(url_);
  pqxx::nontransaction statements(connection);
  int tenants = 0;
  EXPECT_TRUE(in_one_try(100, [&] {
    const std::string tenant = std::to_string(tenants++);
    EXPECT_TRUE(is_counted(ask(*one_, tenant, limits)));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(is_counted(ask(*one_, tenant, limits)));
    statements.exec("DELETE FROM loci.tenant_limits");  // who asks the database now is counted
    const bool is_refused = !is_counted(ask(*one_, tenant, limits));
    // On a busy machine the moment may be over before.
    if (std::chrono::steady_clock::now() - begin > std::chrono::nanoseconds(kRefusalKept)) return false;
    EXPECT_TRUE(is_refused);
    EXPECT_TRUE(is_counted(ask_again(*one_, tenant, limits))) << "who wants to know anew waits for that";
    return true;
  }));
}

// Another server has the row of "a" as long as it wants.
TEST_F(ClusterLimitsTest, ATenantThatIsCountedElsewhereHoldsUpNoOther) {
  const TenantLimits limits{.requests_per_minute = 100};
  pqxx::connection connection(url_);
  expect_in_time([&](const std::string& tenant) -> AssertionResult {
    if (!is_counted(ask(*one_, tenant, limits))) return AssertionFailure() << "nobody has the row yet";
    auto elsewhere = std::make_unique<pqxx::work>(connection);
    elsewhere->exec("SELECT * FROM loci.tenant_limits FOR UPDATE");
    auto held = begin_ask(*one_, {.tenant = tenant, .limits = limits, .tokens = {}});
    for (const std::string& other : {tenant + "b", tenant + "c", tenant + "b"}) {
      if (!is_counted(ask(*one_, other, limits))) return AssertionFailure() << other << " is held up";
    }
    if (held.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      return AssertionFailure() << "it was answered while another server had the row";
    elsewhere.reset();
    if (!is_counted(held.get())) return AssertionFailure() << "it was not counted afterwards";
    return AssertionSuccess();
  });
  // For longer than anybody waits: its share is allowed, and the others are counted as before.
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  const auto elsewhere = std::make_unique<pqxx::work>(connection);
  elsewhere->exec("SELECT * FROM loci.tenant_limits FOR UPDATE");
  EXPECT_FALSE(ask_once(*one_, "a", limits)) << "nobody counts";
  EXPECT_TRUE(is_counted(ask(*one_, "d", limits)));
}

TEST(LockedPause, GrowsToABoundAndDiffersByServer) {
  using std::chrono::milliseconds;
  using namespace std::chrono_literals;
  const milliseconds patience(1000);
  Random random(1), other_random(2);
  LockedPause pause, other;
  bool differ = false;
  for (const milliseconds most : {5ms, 10ms, 20ms, 40ms, 40ms, 40ms}) {
    const auto one = pause.next(patience, random);
    EXPECT_GE(one, most / 2);
    EXPECT_LE(one, most);
    differ = other.next(patience, other_random) != one || differ;
  }
  EXPECT_TRUE(differ);
  for (int i = 0; i < 100; ++i) EXPECT_LE(pause.next(milliseconds(80), random), milliseconds(10)) << "late";
  EXPECT_LE(pause.next(milliseconds(-3), random), milliseconds(5));
  EXPECT_GE(pause.next(patience, random), milliseconds(20)) << "it has not forgotten";
  pause.reset();
  EXPECT_LE(pause.next(patience, random), milliseconds(5));
}

// Another server has the row for a while: it is asked for less and less often, and then in the order of the
// asks.
TEST_F(ClusterLimitsTest, ARowThatIsTakenIsAskedForSeldomAndInOrder) {
  using std::chrono::milliseconds;
  constexpr std::size_t kAsks = 60, kLeft = 20;
  const TenantLimits limits{.requests_per_minute = kLeft + 1};
  other_.reset();
  pqxx::connection holder(url_), watcher(url_);
  const auto round = [&](const std::string& tenant) -> AssertionResult {
    one_ = open("one");  // one that waits for no other row
    if (!is_counted(ask(*one_, tenant, limits))) return AssertionFailure() << "nobody has the row yet";
    auto elsewhere = std::make_unique<pqxx::work>(holder);
    elsewhere->exec("SELECT * FROM loci.tenant_limits FOR UPDATE");
    std::vector<std::future<std::optional<LimitAnswer>>> answers;
    std::set<std::string> statements;  // by their begin: the last one of each transaction
    const auto begin = std::chrono::steady_clock::now();
    for (std::chrono::nanoseconds passed{}; passed < milliseconds(500) || answers.size() < kAsks;
         passed = std::chrono::steady_clock::now() - begin) {
      while (answers.size() < kAsks && passed >= answers.size() * milliseconds(4))
        answers.push_back(begin_ask(*one_, {.tenant = tenant, .limits = limits, .tokens = {}}));
      pqxx::nontransaction statement(watcher);
      for (const auto& row : statement.exec("SELECT query_start FROM pg_stat_activity WHERE state = 'idle' "
                                            "AND datname = current_database() AND pid <> pg_backend_pid()"))
        statements.insert(row[0].c_str());
      std::this_thread::sleep_for(milliseconds(1));
    }
    elsewhere.reset();
    for (std::size_t i = 0; i < kAsks; ++i) {
      if (is_counted(answers[i].get()) != (i < kLeft)) return AssertionFailure() << "not in order: " << i;
    }
    if (statements.size() > 35)
      return AssertionFailure() << statements.size() << " tries; each 5 ms would be twice as many";
    return AssertionSuccess();
  };
  expect_in_time(round, milliseconds(700));
}

TEST_F(ClusterLimitsTest, EachAskIsCountedWithItsOwnLimits) {
  const TenantLimits before{.requests_per_minute = 30}, after{.requests_per_minute = 60};
  pqxx::connection connection(url_);
  expect_in_time([&](const std::string& tenant) -> AssertionResult {
    if (!is_counted(ask(*one_, tenant, before))) return AssertionFailure() << "nobody has the row yet";
    auto elsewhere = std::make_unique<pqxx::work>(connection);
    elsewhere->exec("SELECT * FROM loci.tenant_limits FOR UPDATE");
    auto first = begin_ask(*one_, {.tenant = tenant, .limits = before, .tokens = {}});
    auto second = begin_ask(*one_, {.tenant = tenant, .limits = after, .tokens = {}});
    // They are in one round from here on.
    if (!is_counted(ask(*one_, tenant + "b", after))) return AssertionFailure() << "the other is held up";
    elsewhere.reset();
    for (auto* one : {&first, &second}) {
      const std::optional<LimitAnswer> answer = one->get();
      if (!is_counted(answer)) return AssertionFailure() << "one is not counted";
      if (answer->state.requests->limit != (one == &first ? 30u : 60u))
        return AssertionFailure() << "counted with a limit of " << answer->state.requests->limit;
    }
    return AssertionSuccess();
  });
}

TEST_F(ClusterLimitsTest, ADatabaseThatCountsNothingIsNotBack) {
  const TenantLimits limits{.requests_per_minute = 60};
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  one_ = std::make_unique<ClusterLimits>(LimitTable::open(url_, MemberKey{}, "one").value(),
                                         std::make_shared<spdlog::logger>("test", lines), 1);
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  sql("ALTER TABLE loci.tenant_limits RENAME TO away");
  // Until it says so of the table: on a busy machine the database may have been slow before.
  const auto last_line = [&] { return lines->last_formatted(1).empty() ? "" : lines->last_formatted(1)[0]; };
  EXPECT_TRUE(eventually([&] {
    return !ask_once(*one_, "a", limits) && last_line().find("does not exist") != std::string::npos;
  })) << last_line();
  const std::size_t said = lines->last_raw().size();
  const auto renewed = [&] { return sql("SELECT MAX(at) FROM loci.tenant_places"); };
  sql("INSERT INTO loci.tenant_places SELECT tenant, 'one', 1, 0 FROM loci.away");
  EXPECT_TRUE(eventually([&] { return renewed() != "0"; })) << "renewals work";
  EXPECT_FALSE(ask_once(*one_, "a", limits)) << "nobody counts";
  EXPECT_EQ(lines->last_raw().size(), said)
      << "it said once that nobody counts: " << fmt::format("{}", fmt::join(lines->last_formatted(), ""));
  sql("ALTER TABLE loci.away RENAME TO tenant_limits");
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits)));
}

TEST_F(ClusterLimitsTest, SharesAreThoseOfThisClustersMembers) {
  const auto strangers = MemberTable::open(url_, MemberKey{1}).value();
  const auto member = [](const std::string& id) {
    return Member{.id = id, .host = "127.0.0.1", .port = 1, .models = {"m"}, .block_tokens = 32};
  };
  const auto for_each_member = [&](const auto& does) {
    for (const char* id : {"0000000000000001", "0000000000000002", "0000000000000003"})
      does(*strangers, member(id));
    for (const char* id : {"0000000000000004", "0000000000000005"}) does(*members_, member(id));
  };
  for_each_member([](MemberTable& table, const Member& one) {
    const auto joined = table.join(one);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
  });
  EXPECT_TRUE(eventually([&] {
    // They live for five seconds, which may pass before the server looks.
    for_each_member([](MemberTable& table, const Member& one) {
      const Result<std::int64_t> now = table.now_ms();
      if (now.ok()) (void)table.renew(one, *now).ok();
    });
    return one_->servers() == 2;
  })) << one_->servers();
}

// After an outage a member may renew its row, and count, before the others have.
TEST_F(ClusterLimitsTest, AnOutageHidesNoMembersFromShares) {
  constexpr std::uint32_t kServers = 10;
  const TenantLimits limits{.requests_per_minute = 6'000};
  std::vector<Member> members;
  for (std::uint32_t i = 0; i < kServers; ++i) {
    members.push_back({.id = fmt::format("{:016x}", i + 1),
                       .host = "127.0.0.1",
                       .port = 1,
                       .models = {"m"},
                       .block_tokens = 32});
    const auto joined = members_->join(members.back());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
  }
  const auto is_away = [&] { return !ask_once(*one_, "a", limits); };
  // How many it knew of after an outage, and in the next one.
  std::array<std::uint32_t, 2> known{};
  const auto go_away_twice = [&] {
    ASSERT_TRUE(eventually([&] {
      for (const Member& one : members) {
        const Result<std::int64_t> now = members_->now_ms();
        if (now.ok()) (void)members_->renew(one, *now).ok();
      }
      return one_->servers() == kServers;
    })) << one_->servers();
    sql("ALTER TABLE loci.members RENAME TO away");
    ASSERT_TRUE(eventually(is_away));
    sql("DELETE FROM loci.away WHERE id <> '0000000000000001'");
    sql("ALTER TABLE loci.away RENAME TO members");
    ASSERT_TRUE(eventually([&] { return !is_away(); }));
    known[0] = one_->servers();
    sql("ALTER TABLE loci.members RENAME TO away");
    ASSERT_TRUE(eventually(is_away));
    known[1] = one_->servers();
    sql("ALTER TABLE loci.away RENAME TO members");
  };
  // The others' rows are not back yet. (They have seven seconds, which a busy machine may take.)
  const std::array<std::uint32_t, 2> all{kServers, kServers};
  const auto are_known = [&] {
    if (!HasFatalFailure()) go_away_twice();
    return known == all;
  };
  EXPECT_TRUE(in_one_try(5, are_known)) << known[0] << ", " << known[1];
  EXPECT_TRUE(eventually([&] { return one_->servers() == 1; })) << "they do not come back";
}

TEST_F(ClusterLimitsTest, AStartWaitsLongerThanARequest) {
  postgres_->pause();
  auto begun = std::async(std::launch::async, [&] { return LimitTable::open(url_, MemberKey{}, "third"); });
  std::this_thread::sleep_for(std::chrono::nanoseconds(3 * kLimitPatience));
  postgres_->go_on();
  const auto table = begun.get();
  EXPECT_TRUE(table.ok()) << table.status().to_string();
}

TEST_F(ClusterLimitsTest, NobodyWaitsForADatabaseThatIsAway) {
  const TenantLimits limits{.requests_per_minute = 60};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  postgres_->pause();
  EXPECT_FALSE(ask_once(*one_, "a", limits)) << "nobody counts";
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ask_once(*one_, "a", limits));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50 * std::chrono::nanoseconds(kLimitPatience))
      << "none waits for it";
  postgres_->go_on();
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits)));
  postgres_->pause();
  one_.reset();  // its stop does not wait
  postgres_->go_on();
}

}  // namespace
}  // namespace loci
