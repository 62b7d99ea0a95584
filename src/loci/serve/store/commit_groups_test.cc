// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/commit_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"

namespace loci {
namespace {

// Ten come during a commit of one. Returns the sizes of all groups.
std::vector<std::size_t> groups_of_ten_that_come_late() {
  std::latch first_commits(1), all_wait(1);
  std::vector<std::size_t> groups;
  CommitGroups commits([&](std::span<CommitMember* const> members) {
    groups.push_back(members.size());
    if (groups.size() > 1) return;
    first_commits.count_down();
    all_wait.wait();
  });
  const SqlDatabase::Body body = [](SqlSession&) { return Status(); };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_TRUE(commits.run({}, body).ok()); });
  first_commits.wait();
  std::atomic<int> begun = 0;
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back([&] {
      ++begun;
      EXPECT_TRUE(commits.run({}, body).ok());
    });
  }
  while (begun < 10) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // from "begun" to waiting
  all_wait.count_down();
  for (std::thread& thread : threads) thread.join();
  return groups;
}

TEST(CommitGroups, WhoComesDuringACommitSharesTheNext) {
  // On a busy machine some may not wait yet when the commit ends: then others try.
  EXPECT_TRUE(in_one_try(20, [] {
    const std::vector<std::size_t> groups = groups_of_ten_that_come_late();
    EXPECT_EQ(groups.front(), 1u);
    EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), std::size_t{0}), 11u);
    return groups.size() <= 4;
  })) << "ten that waited were not committed one by one";
}

// Each gets its own verdict, once it was committed and not before; jobs run alone; nobody is forgotten.
TEST(CommitGroups, EachGetsItsOwnVerdict) {
  std::atomic<int> inside = 0;
  std::size_t largest = 0, committed = 0;
  CommitGroups commits([&](std::span<CommitMember* const> members) {
    EXPECT_EQ(++inside, 1);
    EXPECT_LE(members.size(), CommitGroups::kMembersMax);
    largest = std::max(largest, members.size());
    committed += members.size();
    for (CommitMember* member : members) {
      struct NoSession final : SqlSession {
        Result<SqlRows> run(std::string_view, std::initializer_list<SqlParameter>) override {
          return SqlRows(0);
        }
        Status execute(const std::string&) override { return {}; }
        std::int64_t writer() const override { return 0; }
      } session;
      member->status = (*member->body)(session);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    --inside;
  });
  constexpr int kThreads = 100, kEach = 20;
  std::vector<std::thread> threads;
  std::atomic<int> jobs = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        if (t % 10 == 0) {
          EXPECT_TRUE(commits
                          .alone([&] {
                            EXPECT_EQ(++inside, 1);
                            ++jobs;
                            --inside;
                            return Status();
                          })
                          .ok());
          continue;
        }
        bool ran = false;
        const Status status = commits.run({.tenant = t % 2 == 0 ? "a" : "b"}, [&](SqlSession&) {
          ran = true;
          return t % 3 == 0 ? not_found("a third") : Status();
        });
        EXPECT_TRUE(ran);
        EXPECT_EQ(status.ok(), t % 3 != 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(jobs, kThreads / 10 * kEach);
  EXPECT_EQ(committed, std::size_t{kThreads / 10 * 9 * kEach});
  EXPECT_GT(largest, 2u);
}

// While one commits, a tenant brings 31 large transactions and two others one each. Returns all groups, of
// each the bytes of its members.
std::vector<std::vector<std::uint64_t>> groups_of_a_flood_and_two() {
  constexpr std::uint64_t kLarge = 8 << 20;
  std::latch first_commits(1), all_wait(1);
  std::vector<std::vector<std::uint64_t>> groups;
  CommitGroups commits([&](std::span<CommitMember* const> members) {
    std::vector<std::uint64_t>& group = groups.emplace_back();
    for (const CommitMember* member : members) group.push_back(member->bytes);
    if (groups.size() > 1) return;
    first_commits.count_down();
    all_wait.wait();
  });
  const SqlDatabase::Body body = [](SqlSession&) { return Status(); };
  std::vector<std::thread> threads;
  std::atomic<int> begun = 0;
  const auto come = [&](std::string_view tenant, std::uint64_t bytes) {
    threads.emplace_back([&, tenant, bytes] {
      ++begun;
      EXPECT_TRUE(commits.run({.tenant = tenant, .bytes = bytes}, body).ok());
    });
  };
  come("flood", kLarge);
  first_commits.wait();
  for (int i = 0; i < 30; ++i) come("flood", kLarge);
  come("flood", 3 * CommitGroups::kBytesMax);
  while (begun < 32) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // from "begun" to waiting
  come("ann", 1);
  come("bob", 2);
  while (begun < 34) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  all_wait.count_down();
  for (std::thread& thread : threads) thread.join();
  return groups;
}

TEST(CommitGroups, TenantsTakeTurnsInGroupsOfBoundedBytes) {
  // On a busy machine some may not wait yet when the commit ends: then others try.
  EXPECT_TRUE(in_one_try(20, [] {
    const std::vector<std::vector<std::uint64_t>> groups = groups_of_a_flood_and_two();
    EXPECT_GE(groups.size(), 3u);
    if (groups.size() < 3) return false;
    std::size_t members = 0;
    for (const std::vector<std::uint64_t>& group : groups) {
      const std::uint64_t bytes = std::accumulate(group.begin(), group.end(), std::uint64_t{0});
      EXPECT_TRUE(group.size() == 1 || bytes <= CommitGroups::kBytesMax) << bytes;
      members += group.size();
    }
    EXPECT_EQ(members, 34u) << "everybody's turn came, that of the largest too";
    const auto is_next = [&](std::uint64_t bytes) {
      return std::ranges::find(groups[1], bytes) != groups[1].end();
    };
    return is_next(1) && is_next(2);
  })) << "those who came last are in the next group";
}

}  // namespace
}  // namespace loci
