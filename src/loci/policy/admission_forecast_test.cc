// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/policy/admission.h"

namespace loci {
namespace {

std::vector<std::uint64_t> arrivals_of(const std::vector<AdmissionForecast::Turn>& turns) {
  std::vector<std::uint64_t> arrivals;
  for (const AdmissionForecast::Turn& turn : turns) arrivals.push_back(turn.arrival);
  return arrivals;
}

// The example of the header.
TEST(AdmissionForecast, TurnsAreTenantsTimesAndWhatComesBefore) {
  AdmissionForecast forecast;
  for (const std::uint64_t arrival : {1u, 2u, 3u}) forecast.push("a", 0, arrival, 60);
  for (const std::uint64_t arrival : {4u, 5u}) forecast.push("b", 100, arrival, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(forecast.grow());
  EXPECT_EQ(forecast.first(9),
            (std::vector<AdmissionForecast::Turn>{{1, 0, 60}, {2, 60, 120}, {4, 100, 110}}));
  EXPECT_FALSE(forecast.in_window(3));
  EXPECT_EQ(forecast.shrink(), 4u);
  EXPECT_EQ(forecast.grow(), 4u);
  EXPECT_EQ(forecast.grow(), 5u);
  EXPECT_EQ(forecast.grow(), 3u);
  EXPECT_EQ(forecast.grow(), std::nullopt);
}

TEST(AdmissionForecast, AFrontComesBeforeAllOthers) {
  AdmissionForecast forecast;
  for (std::uint64_t arrival = 1; arrival <= 6; ++arrival) forecast.push("a", 0, arrival, 10);
  for (int i = 0; i < 3; ++i) forecast.grow();
  forecast.take_changed();
  EXPECT_TRUE(forecast.set_front("a", {5, 2, 3}));
  EXPECT_FALSE(forecast.set_front("a", {5, 2, 3}));
  forecast.check_invariants();
  EXPECT_EQ(arrivals_of(forecast.first(9)), (std::vector<std::uint64_t>{5, 2, 3}));
  EXPECT_FALSE(forecast.in_window(1)) << "it is the fourth now";
  EXPECT_EQ(forecast.neighbours(2).before, 5u);
  EXPECT_EQ(forecast.neighbours(2).after, 3u);
  EXPECT_EQ(forecast.neighbours(3).after, std::nullopt) << "nobody behind it is in the window";
  while (forecast.grow()) continue;
  EXPECT_EQ(arrivals_of(forecast.first(9)), (std::vector<std::uint64_t>{5, 2, 3, 1, 4, 6}));
}

// Two tenants whose turns are about the same do not take each other's place with each token.
TEST(AdmissionForecast, WhoIsInTheWindowStaysWhileItsTurnBeginsBeforeTheNextOneEnds) {
  AdmissionForecast forecast;
  forecast.push("a", 0, 1, 100);
  forecast.push("b", 0, 2, 100);
  EXPECT_EQ(forecast.grow(), 1u);
  for (std::uint64_t time = 1; time < 100; ++time) {
    forecast.set_time("a", time);
    EXPECT_FALSE(forecast.exchange()) << time;
  }
  forecast.set_time("a", 100);
  EXPECT_TRUE(forecast.exchange());
  EXPECT_FALSE(forecast.exchange());
  EXPECT_TRUE(forecast.in_window(2));
}

// A model that knows no orders: everything is sorted whenever it is asked.
struct NaiveForecast {
  struct Request {
    std::string tenant;
    std::uint64_t cost = 0;
  };
  std::map<std::uint64_t, Request> requests;
  std::map<std::string, std::uint64_t> times;
  std::map<std::string, std::vector<std::uint64_t>> fronts;

  // (Begin, arrival, end) of all, in order.
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> turns() const {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> out;
    for (const auto& [tenant, time] : times) {
      std::vector<std::uint64_t> order;
      if (fronts.contains(tenant)) order = fronts.at(tenant);
      const std::set<std::uint64_t> front(order.begin(), order.end());
      for (const auto& [arrival, request] : requests) {
        if (request.tenant == tenant && !front.contains(arrival)) order.push_back(arrival);
      }
      std::uint64_t turn = time;
      for (const std::uint64_t arrival : order) {
        const std::uint64_t ends = turn + requests.at(arrival).cost;
        out.emplace_back(turn, arrival, ends);
        turn = ends;
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }
};

class AdmissionForecastRandom {
 public:
  explicit AdmissionForecastRandom(std::uint64_t seed) : random_(seed), times_move_(random_.below(2) == 0) {}

  void run() {
    for (int i = 0; i < 300; ++i) {
      act();
      const std::size_t window = 1 + random_.below(12);
      while (forecast_.window_size() > window) forecast_.shrink();
      while (forecast_.window_size() < window && forecast_.grow()) continue;
      while (forecast_.exchange()) continue;
      forecast_.check_invariants();
      follow();
      compare(window);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  std::string tenant() { return {static_cast<char>('a' + random_.below(4))}; }

  void act() {
    const std::uint64_t what = random_.below(10);
    if (what < 5 || naive_.requests.empty()) {
      const std::string name = tenant();
      // Some come back: theirs is an arrival before those of others.
      std::uint64_t arrival = 1000 + 10 * arrivals_++;
      if (random_.below(4) == 0) arrival -= 1 + random_.below(500);
      if (naive_.requests.contains(arrival)) return;
      const std::uint64_t cost = 1 + random_.below(50);
      naive_.requests[arrival] = {name, cost};
      naive_.times.try_emplace(name, random_.below(100));
      forecast_.push(name, naive_.times[name], arrival, cost);
    } else if (what < 7) {
      auto gone = naive_.requests.begin();
      std::advance(gone, random_.below(naive_.requests.size()));
      std::erase(naive_.fronts[gone->second.tenant], gone->first);
      forecast_.erase(gone->first);
      inside_.erase(gone->first);
      naive_.requests.erase(gone);
    } else if (what < 8) {
      const std::string name = tenant();
      if (!times_move_ || !naive_.times.contains(name)) return;
      std::uint64_t& time = naive_.times[name];
      if (random_.below(2) == 0) return forecast_.set_time(name, time += random_.below(40));
      forecast_.charge(name, time += random_.below(20));
      forecast_.check_invariants();
      forecast_.charge(name, time += random_.below(20));
      forecast_.settle();
    } else {
      const std::string name = tenant();
      std::vector<std::uint64_t> front;
      for (const auto& [arrival, request] : naive_.requests) {
        if (request.tenant == name && random_.below(3) == 0) front.push_back(arrival);
      }
      if (front.empty() && !naive_.fronts.contains(name)) return;
      for (std::size_t k = front.size(); k > 1; --k) std::swap(front[k - 1], front[random_.below(k)]);
      const bool waits = std::ranges::any_of(
          naive_.requests, [&](const auto& request) { return request.second.tenant == name; });
      if (!waits) return;
      naive_.fronts[name] = front;
      forecast_.set_front(name, front);
    }
  }

  // What the owner of a window learns of it.
  void follow() {
    for (const std::uint64_t arrival : forecast_.take_changed()) {
      if (forecast_.in_window(arrival))
        inside_.insert(arrival);
      else
        inside_.erase(arrival);
    }
  }

  void compare(std::size_t window) {
    const auto turns = naive_.turns();
    ASSERT_EQ(forecast_.size(), turns.size());
    ASSERT_EQ(inside_.size(), std::min(window, turns.size()));
    std::vector<AdmissionForecast::Turn> expected;
    std::uint64_t last_begins = 0, next_ends = UINT64_MAX;
    std::set<std::string> left_out;
    for (const auto& [begins, arrival, ends] : turns) {
      const std::string& name = naive_.requests.at(arrival).tenant;
      ASSERT_EQ(forecast_.in_window(arrival), inside_.contains(arrival));
      if (inside_.contains(arrival)) {
        expected.push_back({arrival, begins, ends});
        last_begins = std::max(last_begins, begins);
        ASSERT_FALSE(left_out.contains(name)) << "of a tenant the first are inside";
      } else {
        if (left_out.empty()) next_ends = ends;
        left_out.insert(name);
      }
    }
    ASSERT_EQ(forecast_.first(100), expected);
    const auto half = static_cast<std::ptrdiff_t>(expected.size() / 2);
    ASSERT_EQ(forecast_.first(expected.size() / 2), std::vector(expected.begin(), expected.begin() + half));
    ASSERT_TRUE(expected.empty() || last_begins < next_ends);
  }

  Random random_;
  bool times_move_;
  AdmissionForecast forecast_;
  NaiveForecast naive_;
  std::set<std::uint64_t> inside_;
  std::uint64_t arrivals_ = 0;
};

TEST(AdmissionForecast, IsThatOfANaiveModel) {
  for (std::uint64_t seed = 0; seed < test_rounds(60); ++seed) {
    AdmissionForecastRandom(seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

// Where requests cost what was expected, the queue admits in the order of the forecast.
TEST(AdmissionForecast, IsTheOrderOfTheFairQueue) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const auto near = [&](RequestId id) {
      return FairQueue::Distance{.value = static_cast<std::uint32_t>(id.value * 7 % 13) * 100};
    };
    const std::string order(kAdmissionOrders[seed % 2]);
    FairQueue queue(1, make_admission_order(order).value(), near, 64);
    AdmissionForecast forecast;
    std::map<std::uint64_t, std::pair<std::string, std::uint64_t>> requests;
    std::set<std::string> began;
    queue.begin_step(1'000'000);
    for (std::uint64_t arrival = 0; arrival < 40; ++arrival) {
      const std::string tenant{static_cast<char>('a' + random.below(5))};
      const std::uint64_t tokens = 1 + random.below(100);
      const bool begun = random.below(8) == 0;
      if (begun) began.insert(tenant);
      requests[arrival] = {tenant, tokens};
      queue.push(tenant, 1, arrival, RequestId(arrival), 0, begun);
      forecast.push(tenant, queue.virtual_time(tenant), arrival, tokens * kVirtualToken);
    }
    for (const char tenant : {'a', 'b', 'c', 'd', 'e'}) {
      std::vector<std::uint64_t> front = queue.front({tenant});
      EXPECT_EQ(front.empty(),
                queue.waiting({tenant}) == 0 || (order == "fcfs" && !began.contains({tenant})));
      forecast.set_front({tenant}, front);
    }
    EXPECT_TRUE(queue.take_moved().empty()) << "nobody else has asked";
    while (forecast.grow()) continue;
    std::map<std::uint64_t, std::uint64_t> begins;
    for (const AdmissionForecast::Turn& turn : forecast.first(100)) begins[turn.arrival] = turn.begins;
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      queue.begin_step(1'000'000);
      const FairQueue::Head head = queue.heads(1).front();
      const auto [tenant, tokens] = requests.at(head.request.value);
      EXPECT_GE(begins.at(head.request.value), last) << "seed " << seed;
      last = begins.at(head.request.value);
      queue.begin_running(tenant);
      queue.erase(tenant, head.request.value);
      queue.charge(tenant, tokens);
      queue.end_running(tenant);
    }
  }
}

}  // namespace
}  // namespace loci
