// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/limits/cluster_limits.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <pqxx/pqxx>
#include <thread>

#include "loci/cluster/member_table.h"
#include "loci/serve/store/test_postgres.h"

// libpqxx 6.4 forgets the last result of a connection that was lost: tests stop their server.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace loci {
namespace {

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
    return std::make_unique<ClusterLimits>(LimitTable::open(url_, MemberKey{key}, member).value(), log_);
  }
  std::string sql(const std::string& statement) {
    pqxx::connection connection(url_);
    const pqxx::result found = pqxx::nontransaction(connection).exec(statement);
    return found.empty() ? std::string() : found[0][0].c_str();
  }
  static std::optional<LimitAnswer> ask(ClusterLimits& server, const std::string& tenant,
                                        const TenantLimits& limits,
                                        std::optional<LimitAsk::Tokens> tokens = std::nullopt) {
    return begin_ask(server, {.tenant = tenant, .limits = limits, .tokens = tokens}).get();
  }
  static bool is_counted(const std::optional<LimitAnswer>& answer) { return answer && !answer->reached; }

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
  std::atomic<int> counted = 0;
  std::vector<std::thread> threads;
  for (const auto& server : {one_.get(), other_.get()}) {
    threads.emplace_back([&, server] {
      for (int i = 0; i < 10; ++i) {  // many at once, and some one after the other
        std::vector<std::future<std::optional<LimitAnswer>>> answers;
        for (int k = 0; k < 20; ++k)
          answers.push_back(begin_ask(*server, {.tenant = "a", .limits = limits, .tokens = {}}));
        for (auto& answer : answers) counted += is_counted(answer.get()) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(counted, 60);
  EXPECT_LE(counted, 60 + seconds + 1) << "a second brings one more";
  const std::optional<LimitAnswer> last = ask(*one_, "a", limits);
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
  bool is_there = false;
  for (int i = 0; i < 500 && !is_there; ++i)
    is_there = is_counted(ask(*other_, "a", limits, LimitAsk::Tokens{.prompt = 10, .all = 900}));
  EXPECT_TRUE(is_there);
}

TEST_F(ClusterLimitsTest, RequestsAtOnceAreThoseOfLivingServers) {
  const TenantLimits limits{.concurrent_requests = 2};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  ASSERT_TRUE(is_counted(ask(*other_, "a", limits)));
  const std::optional<LimitAnswer> third = ask(*one_, "a", limits);
  ASSERT_TRUE(third && third->reached);
  EXPECT_EQ(third->reached->kind, LimitReached::Kind::kConcurrent);
  one_->end("a");
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits))) << "its own is known at once";
  EXPECT_FALSE(is_counted(ask(*other_, "a", limits)));
  one_->stop();  // it has left
  EXPECT_TRUE(is_counted(ask(*other_, "a", limits)));
  // One that ended without leaving, five seconds ago.
  sql("INSERT INTO loci.tenant_places SELECT tenant, 'dead', 7, at - 5001 FROM loci.tenant_places");
  other_->end("a");
  EXPECT_TRUE(is_counted(ask(*other_, "a", limits)));
}

TEST_F(ClusterLimitsTest, ManyTenantsEachHaveTheirOwn) {
  constexpr int kTenants = 2'000;
  const TenantLimits limits{.requests_per_minute = 2, .concurrent_requests = 50};
  std::atomic<int> counted = 0, lost = 0;
  std::vector<std::thread> threads;
  for (const auto& server : {one_.get(), other_.get()}) {
    threads.emplace_back([&, server] {
      std::vector<std::future<std::optional<LimitAnswer>>> answers;
      for (int i = 0; i < 2 * kTenants; ++i) {
        // In unlike orders, so that servers meet at rows from both sides.
        const int tenant = server == one_.get() ? i % kTenants : kTenants - 1 - i % kTenants;
        answers.push_back(
            begin_ask(*server, {.tenant = std::to_string(tenant), .limits = limits, .tokens = {}}));
      }
      for (auto& answer : answers) {
        const std::optional<LimitAnswer> one = answer.get();
        counted += is_counted(one) ? 1 : 0;
        lost += one ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(counted, 2 * kTenants);
  EXPECT_EQ(sql("SELECT COUNT(*) FROM loci.tenant_limits"), std::to_string(kTenants));
  // Rows that say nothing any more go.
  sql("UPDATE loci.tenant_limits SET full_at = 0");
  sql("UPDATE loci.tenant_places SET at = 0");
  const auto table = LimitTable::open(url_, MemberKey{}, "third").value();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(table->clear().ok());
  EXPECT_EQ(sql("SELECT COUNT(*) FROM loci.tenant_limits"), "0");
}

TEST_F(ClusterLimitsTest, ChangedRowsAreReadAsNumbersThatMayBe) {
  const TenantLimits limits{.requests_per_minute = 2, .tokens_per_minute = 100, .concurrent_requests = 5};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  sql("UPDATE loci.tenant_limits SET requests_missing = -9223372036854775807, tokens_missing = -1, at = "
      "9223372036854775807");
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits)));
  for (const char* at : {"9223372036854775807", "CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)"}) {
    sql(std::string("UPDATE loci.tenant_limits SET requests_missing = 9223372036854775807, at = ") + at);
    EXPECT_FALSE(is_counted(ask(*one_, "a", limits))) << at;
  }
  sql("UPDATE loci.tenant_limits SET at = -9223372036854775807");
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits))) << "what was missing in 1970 is not any more";
  sql("UPDATE loci.tenant_limits SET requests_missing = 0");
  sql("INSERT INTO loci.tenant_places SELECT tenant, 'x', 9223372036854775807, 9223372036854775807 FROM "
      "loci.tenant_limits");
  EXPECT_FALSE(is_counted(ask(*one_, "a", limits)));
  sql("DELETE FROM loci.tenant_limits");
  sql("DELETE FROM loci.tenant_places");
  EXPECT_TRUE(is_counted(ask(*one_, "a", limits))) << "rows that are gone begin anew";
}

TEST_F(ClusterLimitsTest, NobodyWaitsForADatabaseThatIsAway) {
  const TenantLimits limits{.requests_per_minute = 60};
  ASSERT_TRUE(is_counted(ask(*one_, "a", limits)));
  postgres_->pause();
  EXPECT_FALSE(ask(*one_, "a", limits)) << "nobody counts";
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ask(*one_, "a", limits));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900)) << "at once";
  postgres_->go_on();
  bool is_back = false;
  for (int i = 0; i < 1'000 && !is_back; ++i) {
    is_back = is_counted(ask(*one_, "a", limits));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(is_back);
  postgres_->pause();
  one_.reset();  // its stop does not wait
  postgres_->go_on();
}

}  // namespace
}  // namespace loci
