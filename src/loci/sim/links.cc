// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/links.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "loci/base/check.h"

namespace loci::sim {
namespace {

constexpr double kDone = 1e-3;  // nanoseconds of work that rounding leaves

}  // namespace

Links::Links(const Machine& machine)
    : duplex_(machine.duplex_percent / 100), disk_shared_(machine.disk_shared) {
  speeds_.fill(1);
  lanes_[kHostLoad].cost = machine.host_load;
  lanes_[kHostSave].cost = machine.host_save;
  lanes_[kDiskRead].cost = machine.disk_read;
  lanes_[kDiskWrite].cost = machine.disk_write;
  lanes_[kNetwork].cost = {.latency = 0, .bytes_per_second = machine.network_bytes_per_second};
}

Links::Way Links::way_of(const Transfer& transfer) {
  if (transfer.to == Tier::kShared && transfer.from != Tier::kDisk) return kNetwork;
  if (transfer.to == Tier::kDisk) return kDiskWrite;
  if (transfer.from == Tier::kDisk) return kDiskRead;
  return transfer.to == Tier::kDevice ? kHostLoad : kHostSave;
}

double Links::rate(Way way) const {
  if (way == kHostLoad && lanes_[kHostSave].moving) return duplex_ * speeds_[way];
  if (way == kHostSave && lanes_[kHostLoad].moving) return duplex_ * speeds_[way];
  return speeds_[way];
}

void Links::add(Nanos now, Transfer transfer) {
  advance(now);
  Lane& lane = lanes_[way_of(transfer)];
  const bool load = transfer.to == Tier::kDevice;
  lane.waiting[load ? 0 : 1].push_back(std::move(transfer));
  begin(now);
}

void Links::advance(Nanos now) {
  LOCI_CHECK(now >= now_, "time does not go back");
  const auto passed = static_cast<double>(now - now_);
  std::array<double, kWays> rates{};
  for (std::uint8_t way = 0; way < kWays; ++way) rates[way] = rate(static_cast<Way>(way));
  for (std::uint8_t way = 0; way < kWays; ++way) {
    if (lanes_[way].moving) lanes_[way].moving->left -= passed * rates[way];
  }
  now_ = now;
}

bool Links::may_begin(Way way) const {
  if (lanes_[way].moving || !lanes_[way].has_waiting()) return false;
  if (way == kHostSave) return !lanes_[kHostLoad].moving && !lanes_[kHostLoad].has_waiting();
  if (way == kHostLoad || way == kNetwork || !disk_shared_) return true;
  if (way == kDiskRead) return !lanes_[kDiskWrite].moving;
  return !lanes_[kDiskRead].moving && !lanes_[kDiskRead].has_waiting();
}

void Links::begin(Nanos now) {
  for (std::uint8_t way = 0; way < kWays; ++way) {
    if (!may_begin(static_cast<Way>(way))) continue;
    Lane& lane = lanes_[way];
    std::deque<Transfer>& from = lane.waiting[lane.waiting[0].empty() ? 1 : 0];
    Moving moving{std::move(from.front())};
    from.pop_front();
    moving.transfer.began = now;
    moving.left = static_cast<double>(lane.cost.latency) +
                  static_cast<double>(moving.transfer.bytes) * 1e9 /
                      static_cast<double>(std::max<std::uint64_t>(lane.cost.bytes_per_second, 1));
    lane.moving = std::move(moving);
  }
}

std::optional<Nanos> Links::next() const {
  std::optional<Nanos> next;
  for (std::uint8_t way = 0; way < kWays; ++way) {
    if (!lanes_[way].moving) continue;
    const double left = std::max(0.0, lanes_[way].moving->left - kDone) / rate(static_cast<Way>(way));
    const Nanos at = now_ + static_cast<Nanos>(std::ceil(left));
    if (!next || at < *next) next = at;
  }
  return next;
}

std::vector<Transfer> Links::end(Nanos now) {
  advance(now);
  std::vector<Transfer> ended;
  for (Lane& lane : lanes_) {
    if (!lane.moving || lane.moving->left > kDone) continue;
    lane.moving->transfer.ended = now;
    ended.push_back(std::move(lane.moving->transfer));
    lane.moving.reset();
  }
  begin(now);
  return ended;
}

void Links::set_speed(Nanos now, Way way, double speed) {
  LOCI_CHECK(speed > 0, "what moves arrives");
  advance(now);
  speeds_[way] = speed;
}

std::vector<Transfer> Links::drop(Nanos now) {
  advance(now);
  std::vector<Transfer> dropped;
  for (Lane& lane : lanes_) {
    if (lane.moving) dropped.push_back(std::move(lane.moving->transfer));
    lane.moving.reset();
  }
  for (Lane& lane : lanes_) {
    for (std::deque<Transfer>& waiting : lane.waiting) {
      std::move(waiting.begin(), waiting.end(), std::back_inserter(dropped));
      waiting.clear();
    }
  }
  return dropped;
}

std::size_t Links::in_flight() const {
  std::size_t count = 0;
  for (const Lane& lane : lanes_) {
    count += lane.waiting[0].size() + lane.waiting[1].size() + (lane.moving ? 1 : 0);
  }
  return count;
}

}  // namespace loci::sim
