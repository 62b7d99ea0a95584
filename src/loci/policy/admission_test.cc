// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

// What admission does with the queue: takes the first, charges it, and it runs until it ends.
struct Batch {
  explicit Batch(std::uint32_t slots) : queue(slots) {}

  void arrive(const std::string& tenant, std::uint64_t cost, std::uint32_t weight = 1) {
    const std::uint64_t arrival = arrivals++;
    requests[arrival] = {tenant, cost};
    queue.push(tenant, weight, arrival, RequestId(arrival));
    queue.check_invariants();
  }
  // The tenant that was admitted.
  std::string admit() {
    const FairQueue::Head head = queue.heads().front();
    const std::uint64_t arrival = head.request.value;
    const auto [tenant, cost] = requests.at(arrival);
    queue.begin_running(tenant);
    queue.erase(tenant, arrival);
    queue.charge(tenant, cost);
    given[tenant] += cost;
    queue.check_invariants();
    return tenant;
  }
  void end(const std::string& tenant) {
    queue.end_running(tenant);
    queue.check_invariants();
  }
  std::string serve() {
    const std::string tenant = admit();
    end(tenant);
    return tenant;
  }

  FairQueue queue;
  std::uint64_t arrivals = 0;
  std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> requests;
  std::map<std::string, std::uint64_t> given;
};

TEST(FairQueue, IsFirstComeFirstServedInsideOneTenant) {
  Batch batch(4);
  for (int i = 0; i < 5; ++i) batch.arrive("a", 10);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(batch.queue.heads().front().request, RequestId(i));
    batch.serve();
  }
  EXPECT_TRUE(batch.queue.empty());
}

TEST(FairQueue, TakesTurnsByTokens) {
  Batch batch(4);
  for (int i = 0; i < 8; ++i) batch.arrive("heavy", 100);
  for (int i = 0; i < 8; ++i) batch.arrive("light", 25);
  std::string order;
  for (int i = 0; i < 10; ++i) order += batch.serve().front();
  EXPECT_EQ(order, "hllllhllll");
}

TEST(FairQueue, GivesByWeight) {
  Batch batch(4);
  for (int i = 0; i < 600; ++i) {
    batch.arrive("three", 10, 3);
    batch.arrive("one", 10, 1);
  }
  for (int i = 0; i < 400; ++i) batch.serve();
  EXPECT_EQ(batch.given["three"], 3000u);
  EXPECT_EQ(batch.given["one"], 1000u);
}

TEST(FairQueue, GivesNoCreditForBeingIdle) {
  Batch batch(4);
  for (int i = 0; i < 200; ++i) batch.arrive("busy", 10);
  for (int i = 0; i < 100; ++i) batch.serve();
  for (int i = 0; i < 100; ++i) batch.arrive("late", 10);  // it was idle while the other got 1000 tokens
  for (int i = 0; i < 20; ++i) batch.serve();
  EXPECT_EQ(batch.given["late"], 100u);
  EXPECT_EQ(batch.given["busy"], 1100u);
}

TEST(FairQueue, HoldsNoGrudgeOnceAllHaveGone) {
  Batch batch(4);
  for (int i = 0; i < 100; ++i) batch.arrive("busy", 1000);
  for (int i = 0; i < 100; ++i) batch.serve();
  EXPECT_EQ(batch.queue.virtual_time("busy"), batch.queue.virtual_time("new"));
}

TEST(FairQueue, PutsWhoeverIsBelowItsShareOfTheBatchFirst) {
  Batch batch(4);
  for (int i = 0; i < 4; ++i) batch.arrive("small", 1);
  batch.arrive("large", 1000);
  for (int i = 0; i < 2; ++i) batch.arrive("large", 1);
  EXPECT_EQ(batch.admit(), "small");
  EXPECT_EQ(batch.admit(), "large");
  EXPECT_EQ(batch.admit(), "small");  // two of four: its share
  EXPECT_EQ(batch.admit(), "large");  // which is far ahead in tokens, but has one place
  EXPECT_FALSE(batch.queue.above_slot_share("small"));
  EXPECT_FALSE(batch.queue.below_slot_share("small"));
  EXPECT_EQ(batch.admit(), "small");
  EXPECT_TRUE(batch.queue.above_slot_share("small"));
}

TEST(FairQueue, FindsWhoHasMostWaitingForItsWeight) {
  Batch batch(4);
  for (int i = 0; i < 6; ++i) batch.arrive("a", 1, 3);
  for (int i = 0; i < 3; ++i) batch.arrive("b", 1, 1);
  EXPECT_EQ(batch.queue.most_waiting(), "b");
  EXPECT_EQ(batch.queue.newest("b"), RequestId(8));
  // One that gave way waits again, and is no new one.
  batch.queue.push("b", 1, 9, RequestId(9), 0, /*begun=*/true);
  EXPECT_EQ(batch.queue.newest("b"), RequestId(8));
  batch.queue.push("c", 1, 10, RequestId(10), 0, /*begun=*/true);
  EXPECT_EQ(batch.queue.newest("c"), std::nullopt);
}

// Start-time fair queuing's bound: while two tenants both have something waiting all the time, what they
// were given for their weights differs by at most one request of each (Goyal et al., theorem 1).
TEST(FairQueue, KeepsThoseWhoWaitWithinOneRequestOfEachOther) {
  for (std::uint64_t seed = 1; seed <= test_rounds(200); ++seed) {
    Random random(seed);
    const std::uint32_t tenants = 2 + static_cast<std::uint32_t>(random.below(5));
    Batch batch(1);  // one place each time: shares of the batch don't decide
    std::vector<std::uint32_t> weights;
    std::vector<std::uint64_t> cost_max;
    for (std::uint32_t t = 0; t < tenants; ++t) {
      weights.push_back(1 + static_cast<std::uint32_t>(random.below(8)));
      cost_max.push_back(1 + random.below(500));
      for (int i = 0; i < 300; ++i) {
        batch.arrive(std::string(1, static_cast<char>('a' + t)), 1 + random.below(cost_max[t]), weights[t]);
      }
    }
    for (int i = 0; i < 280; ++i) {
      batch.serve();
      for (std::uint32_t a = 0; a < tenants; ++a) {
        for (std::uint32_t b = 0; b < tenants; ++b) {
          const double of_a =
              static_cast<double>(batch.given[std::string(1, static_cast<char>('a' + a))]) / weights[a];
          const double of_b =
              static_cast<double>(batch.given[std::string(1, static_cast<char>('a' + b))]) / weights[b];
          const double bound =
              static_cast<double>(cost_max[a]) / weights[a] + static_cast<double>(cost_max[b]) / weights[b];
          ASSERT_LE(of_a - of_b, bound + 1) << "seed " << seed << ", turn " << i;
        }
      }
    }
  }
}

// Against the definition of max-min fairness, by giving one token at a time.
TEST(DivideFairly, IsMaxMinFairWithinATokenOrTwo) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Random random(seed);
    const std::size_t n = 1 + random.below(6);
    std::vector<std::uint64_t> wanted;
    std::vector<std::uint32_t> weights;
    for (std::size_t i = 0; i < n; ++i) {
      wanted.push_back(random.below(200));
      weights.push_back(1 + static_cast<std::uint32_t>(random.below(4)));
    }
    const std::uint64_t budget = random.below(600);
    const std::vector<std::uint64_t> given = divide_fairly(budget, wanted, weights);
    std::vector<std::uint64_t> naive(n, 0);
    for (std::uint64_t left = budget; left > 0; --left) {
      std::size_t next = n;
      for (std::size_t i = 0; i < n; ++i) {
        if (naive[i] == wanted[i]) continue;
        if (next == n || naive[i] * weights[next] < naive[next] * weights[i]) next = i;
      }
      if (next == n) break;
      ++naive[next];
    }
    const auto sum = [](const auto& v) { return std::accumulate(v.begin(), v.end(), std::uint64_t{0}); };
    EXPECT_EQ(sum(given), std::min(budget, sum(wanted))) << seed;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_LE(given[i], wanted[i]);
      EXPECT_LE(std::max(given[i], naive[i]) - std::min(given[i], naive[i]), n + 4) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace loci
