// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/admission.h"

namespace loci {
namespace {

FairQueue queue_of(std::string_view order, std::function<std::uint32_t(RequestId)> distance,
                   std::uint32_t slots = 4, std::size_t looks = 32) {
  const auto asked = [distance](RequestId id) { return FairQueue::Distance{.value = distance(id)}; };
  return FairQueue(slots, make_admission_order(order).value(), asked, looks);
}

// Ids of one tenant's requests in the order in which they are admitted when nothing else comes.
std::vector<std::uint64_t> drain(FairQueue& queue, const std::string& tenant, Nanos now) {
  std::vector<std::uint64_t> ids;
  while (queue.waiting(tenant) > 0) {
    queue.begin_step(now);
    const RequestId next = queue.heads().front().request;
    ids.push_back(next.value);
    queue.erase(tenant, next.value);
    queue.check_invariants();
  }
  return ids;
}

TEST(AdmissionOrder, NamesTheOrders) {
  for (const std::string_view name : kAdmissionOrders) EXPECT_TRUE(make_admission_order(name).ok());
  const Status status = make_admission_order("lifo").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "admission");
  EXPECT_NE(status.message().find("fcfs, fpf, relaxed-fpf, found 'lifo'"), std::string::npos);
}

TEST(AdmissionOrder, OrdersByArrivalDistanceOrBoth) {
  const std::map<std::uint64_t, std::uint32_t> distances = {{1, 3}, {2, 2}, {3, 0}, {4, 1}, {5, 0}};
  const auto order_of = [&](std::string_view name, Nanos now) {
    FairQueue queue = queue_of(name, [&](RequestId id) { return distances.at(id.value) * kTierStep; });
    for (std::uint64_t i = 1; i <= 5; ++i) queue.push("a", 1, i, RequestId(i), static_cast<Nanos>(i * 100));
    return drain(queue, "a", now);
  };
  EXPECT_EQ(order_of("fcfs", 500), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(order_of("fpf", 500), (std::vector<std::uint64_t>{3, 5, 4, 2, 1}));
  // (now - arrival) * (4 - N) at 600: 500, 800, 1,200, 600, 400.
  EXPECT_EQ(order_of("relaxed-fpf", 600), (std::vector<std::uint64_t>{3, 2, 4, 1, 5}));
  // At 500: 400, 600, 800, 300, 0; at 10,000 distance decides, as all have waited about as long.
  EXPECT_EQ(order_of("relaxed-fpf", 500), (std::vector<std::uint64_t>{3, 2, 1, 4, 5}));
  EXPECT_EQ(order_of("relaxed-fpf", 10'000), (std::vector<std::uint64_t>{3, 5, 4, 2, 1}));
}

TEST(AdmissionOrder, WhatHasBegunComesFirst) {
  for (const std::string_view name : kAdmissionOrders) {
    FairQueue queue = queue_of(name, [](RequestId id) { return id.value < 3 ? kNowhere : 0u; });
    queue.push("a", 1, 1, RequestId(1), 100, true);
    queue.push("a", 1, 2, RequestId(2), 200, true);
    for (std::uint64_t i = 3; i < 6; ++i) queue.push("a", 1, i, RequestId(i), static_cast<Nanos>(i * 100));
    EXPECT_EQ(drain(queue, "a", 1'000), (std::vector<std::uint64_t>{1, 2, 3, 4, 5})) << name;
    // Also where it arrived later, and the other one has waited for something before the queue.
    queue.push("a", 1, 8, RequestId(8), 800, true);
    queue.push("a", 1, 6, RequestId(6), 600);
    queue.push("a", 1, 7, RequestId(7), 700, true);
    EXPECT_EQ(queue.front("a").front(), 7u) << name;
    EXPECT_EQ(drain(queue, "a", 1'000), (std::vector<std::uint64_t>{7, 8, 6})) << name;
  }
}

TEST(AdmissionOrder, TenantsStayFair) {
  FairQueue queue = queue_of("fpf", [](RequestId id) { return id.value < 10 ? 0u : kNowhere; }, 1);
  for (std::uint64_t i = 0; i < 5; ++i) queue.push("near", 1, i, RequestId(i));
  for (std::uint64_t i = 10; i < 15; ++i) queue.push("far", 1, i, RequestId(i));
  std::string turns;
  for (int i = 0; i < 10; ++i) {
    queue.begin_step(i);
    const FairQueue::Head head = queue.heads().front();
    const std::string tenant = *head.tenant;
    turns += tenant.front();
    queue.charge(tenant, 10);
    queue.erase(tenant, head.request.value);
  }
  EXPECT_EQ(turns, "nfnfnfnfnf");
}

// Looking at a prompt's state costs: only the earliest are looked at, each once in a step.
TEST(AdmissionOrder, LooksAtEachOnceInAStep) {
  std::map<std::uint64_t, int> looks;
  const auto distance = [&](RequestId id) {
    ++looks[id.value];
    return static_cast<std::uint32_t>(id.value % 4);
  };
  FairQueue queue = queue_of("fpf", distance, 4, 7);
  for (std::uint64_t i = 0; i < 100; ++i) queue.push("a", 1, i, RequestId(i));
  queue.begin_step(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(queue.heads().front().request, RequestId(0));
  EXPECT_EQ(looks.size(), 7u);
  queue.erase("a", 0);
  EXPECT_EQ(queue.heads().front().request, RequestId(4));
  EXPECT_EQ(looks.size(), 8u) << "the next one has moved up";
  for (const auto& [id, count] : looks) EXPECT_EQ(count, 1) << id;
  queue.begin_step(2);
  queue.heads();
  EXPECT_EQ(looks[1], 2);

  std::map<std::uint64_t, int> none;
  FairQueue fcfs =
      queue_of("fcfs", [&](RequestId id) { return static_cast<std::uint32_t>(++none[id.value]); });
  fcfs.push("a", 1, 1, RequestId(1));
  fcfs.heads();
  EXPECT_TRUE(none.empty());
}

TEST(AdmissionOrder, WhoStandsBehindTheFrontChangesNothingOfIt) {
  for (const std::string_view name : {"fcfs", "fpf"}) {
    FairQueue queue =
        queue_of(name, [](RequestId id) { return static_cast<std::uint32_t>(id.value % 4); }, 4, 7);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::vector<std::uint64_t> before = queue.front("a");
      queue.push("a", 1, i, RequestId(i));
      EXPECT_EQ(queue.is_behind_front("a", i), name == "fcfs" || i >= 7) << name << ' ' << i;
      if (queue.is_behind_front("a", i)) {
        EXPECT_EQ(queue.front("a"), before) << name << ' ' << i;
      }
    }
    queue.push("a", 1, 20, RequestId(20), 0, true);
    EXPECT_FALSE(queue.is_behind_front("a", 20)) << "who has begun comes first";
  }
}

// A distance that is told is asked for when it has changed, and the same request comes first as where all are
// asked for in each step.
TEST(AdmissionOrder, AsksAgainForWhatHasMoved) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::string order(kAdmissionOrders[1 + seed % 2]);
    std::map<std::uint64_t, std::uint32_t> distances;
    std::map<std::uint64_t, int> looks;
    const auto told = [&](RequestId id) {
      ++looks[id.value];
      return FairQueue::Distance{.value = distances.at(id.value), .is_told = id.value % 5 != 0};
    };
    FairQueue queue(4, make_admission_order(order).value(), told, 8);
    FairQueue naive = queue_of(order, [&](RequestId id) { return distances.at(id.value); }, 4, 8);
    std::map<std::uint64_t, std::string> waiting;
    for (std::uint64_t step = 1; step < 300; ++step) {
      const auto now = static_cast<Nanos>(step * 10);
      const bool arrives = waiting.size() < 30 && random.below(2) == 0;
      if (arrives) {
        const std::string tenant(1, static_cast<char>('a' + random.below(3)));
        waiting.emplace(step, tenant);
        distances[step] = static_cast<std::uint32_t>(random.below(kNowhere));
        for (FairQueue* one : {&queue, &naive}) one->push(tenant, 1, step, RequestId(step), now);
      }
      for (auto& [arrival, distance] : distances) {
        if (random.below(20) > 0) continue;
        distance = static_cast<std::uint32_t>(random.below(kNowhere));
        if (waiting.contains(arrival)) queue.distance_moved(waiting.at(arrival), arrival);
      }
      queue.begin_step(now);
      naive.begin_step(now);
      for (int i = 0; i < 2; ++i) {
        const std::vector<FairQueue::Head> heads = queue.heads(), wanted = naive.heads();
        ASSERT_EQ(heads.size(), wanted.size());
        for (std::size_t k = 0; k < heads.size(); ++k)
          ASSERT_EQ(heads[k].request, wanted[k].request) << "seed " << seed << ", step " << step;
        if (heads.empty() || random.below(2) == 0) break;
        const std::uint64_t gone = heads.front().request.value;
        for (FairQueue* one : {&queue, &naive}) one->erase(waiting.at(gone), gone);
        waiting.erase(gone);
      }
      queue.check_invariants();
    }
  }
  int asked = 0;
  const auto told = [&](RequestId) {
    return FairQueue::Distance{.value = kNowhere - ++asked, .is_told = true};
  };
  FairQueue queue(4, make_admission_order("fpf").value(), told, 8);
  for (std::uint64_t i = 0; i < 20; ++i) queue.push("a", 1, i, RequestId(i));
  for (Nanos now = 1; now < 50; ++now) {
    queue.begin_step(now);
    EXPECT_EQ(queue.heads().front().request, RequestId(7));
  }
  EXPECT_EQ(asked, 8) << "of a tenant so many are looked at";
  EXPECT_EQ(queue.take_moved(), std::set<std::string>{"a"});
  queue.distance_moved("a", 3);
  queue.distance_moved("a", 10);  // nobody looks at it
  queue.distance_moved("b", 3);
  queue.begin_step(50);
  EXPECT_EQ(queue.heads().front().request, RequestId(3));
  EXPECT_EQ(asked, 9);
}

// One request whose state is nowhere waits behind `before` others; from then on each of `steps` serves one
// request, and `arrivals_percent` of them see a new one whose state is on the device. The steps until it is
// served; none: it never is.
std::optional<std::uint64_t> wait_of_the_far_one(std::string_view order, std::uint64_t before,
                                                 std::uint64_t arrivals_percent, std::uint64_t steps) {
  constexpr std::uint64_t kFar = 1'000'000;
  FairQueue queue = queue_of(order, [](RequestId id) { return id.value == kFar ? kNowhere : 0u; });
  std::uint64_t arrivals = 0;
  std::map<RequestId, std::uint64_t> arrival_of;
  const auto arrive = [&](RequestId id, Nanos now) {
    arrival_of[id] = arrivals;
    queue.push("a", 1, arrivals, id, now);
    ++arrivals;
  };
  for (std::uint64_t i = 0; i < before; ++i) arrive(RequestId(i), 0);
  arrive(RequestId(kFar), 0);
  Random random(3);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const auto now = static_cast<Nanos>(step);
    if (random.below(100) < arrivals_percent) arrive(RequestId(before + step), now);
    queue.begin_step(now);
    const std::vector<FairQueue::Head> heads = queue.heads();
    if (heads.empty()) continue;
    const RequestId next = heads.front().request;
    queue.erase("a", arrival_of.at(next));
    if (next.value == kFar) return step;
  }
  return std::nullopt;
}

// Who has waited for W is passed only by those who arrived within 3/4 W. Where one is served and at most one
// arrives in each step, W steps serve W, and those are at most before + 3/4 W: its turn comes before
// W = 4 (before + 1). Under fpf it never comes.
TEST(AdmissionOrder, NobodyStarvesUnderRelaxedFpf) {
  for (const std::uint64_t before : {0u, 1u, 10u, 25u, 100u, 400u}) {
    for (const std::uint64_t percent : {100u, 95u, 60u}) {
      const auto wait = wait_of_the_far_one("relaxed-fpf", before, percent, 10'000);
      ASSERT_TRUE(wait.has_value()) << before << " " << percent;
      EXPECT_LE(*wait, 4 * (before + 1)) << before << " " << percent;
    }
    // Not first come, first served either: at full load those that are near pass it.
    if (before >= 10) {
      EXPECT_GT(*wait_of_the_far_one("relaxed-fpf", before, 100, 10'000), before + 1);
    }
    EXPECT_EQ(wait_of_the_far_one("fcfs", before, 100, 10'000), before + 1);
  }
  EXPECT_EQ(wait_of_the_far_one("fpf", 10, 100, 10'000), std::nullopt);
}

}  // namespace
}  // namespace loci
