// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/links.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "loci/base/check.h"

namespace loci::sim {
namespace {

constexpr double kDone = 1e-3;             // nanoseconds of work that rounding leaves
constexpr std::size_t kUnansweredMax = 3;  // as in memory/disk/disk_queue.cc

std::size_t blocks_of(const Transfer& transfer) { return std::max<std::size_t>(1, transfer.moves.size()); }

}  // namespace

bool Links::Work::is_over() const { return left <= kDone; }

// (Of work that takes no time all is answered when it begins.)
std::size_t Links::Work::answered() const {
  if (is_over()) return blocks;
  return static_cast<std::size_t>(std::max(0.0, (all - left) / all) * static_cast<double>(blocks));
}

bool Links::Work::advance(double done) {
  const std::size_t before = answered();
  left -= done;
  return answered() > before;
}

Links::Links(const Machine& machine, Nanos disk_limit)
    : duplex_(machine.duplex_percent / 100), disk_shared_(machine.disk_shared), disk_limit_(disk_limit) {
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
  transfer.added = now;
  if (refuses(transfer)) {
    refused_.push_back(std::move(transfer));
    return;
  }
  lane.waiting[load ? 0 : 1].push_back(std::move(transfer));
  begin(now);
}

void Links::advance(Nanos now) {
  LOCI_CHECK(now >= now_, "time does not go back");
  const auto passed = static_cast<double>(now - now_);
  std::array<double, kWays> rates{};
  for (std::uint8_t way = 0; way < kWays; ++way) rates[way] = rate(static_cast<Way>(way));
  for (std::uint8_t way = 0; way < kWays; ++way) {
    auto& [cost, waiting, moving, late] = lanes_[way];
    bool answers = moving && moving->work.advance(passed * rates[way]);
    if (late) {
      answers |= late->advance(passed * rates[way]);
      if (late->is_over()) late.reset();
    }
    if (answers && is_of_disk(static_cast<Way>(way))) disk_unanswered_ = 0;
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
    const double work = static_cast<double>(lane.cost.latency) +
                        static_cast<double>(moving.transfer.bytes) * 1e9 /
                            static_cast<double>(std::max<std::uint64_t>(lane.cost.bytes_per_second, 1));
    moving.work = {work, work, blocks_of(moving.transfer)};
    lane.moving = std::move(moving);
  }
}

const Transfer* Links::moving(Way way) const {
  return lanes_[way].moving ? &lanes_[way].moving->transfer : nullptr;
}

Links::Layers Links::layers(Way way, std::uint32_t count, Nanos now) const {
  const Work& work = lanes_[way].moving->work;
  const double done = work.all - work.left + static_cast<double>(now - now_) * rate(way);
  const double each = work.all / count;
  Layers layers;
  layers.brought =
      each <= 0 ? count : static_cast<std::uint32_t>(std::clamp(done / each, 0.0, double(count)));
  if (layers.brought + 1 < count && rate(way) > 0) {
    const double left = (each * (layers.brought + 1) - done) / rate(way);
    layers.next = now + std::max<Nanos>(1, static_cast<Nanos>(std::ceil(left)));
  }
  return layers;
}

std::optional<Nanos> Links::next() const {
  std::optional<Nanos> next;
  if (!refused_.empty()) next = now_;
  const auto take = [&next](Nanos at) {
    if (!next || at < *next) next = at;
  };
  for (std::uint8_t number = 0; number < kWays; ++number) {
    const Way way = static_cast<Way>(number);
    if (const std::optional<Nanos> limit = first_limit(way)) take(*limit);
    if (!lanes_[way].moving || rate(way) == 0) continue;
    const double left = std::max(0.0, lanes_[way].moving->work.left - kDone) / rate(way);
    take(now_ + static_cast<Nanos>(std::ceil(left)));
  }
  return next;
}

// --- the disk's limit ---

bool Links::disk_is_closed() const { return disk_unanswered_ >= kUnansweredMax; }

// Of each queue the first transfer was added first.
std::optional<Nanos> Links::first_limit(Way way) const {
  if (!has_limit(way)) return std::nullopt;
  const Lane& lane = lanes_[way];
  std::optional<Nanos> first;
  if (lane.moving) first = limit_of(lane.moving->transfer);
  for (const std::deque<Transfer>& waiting : lane.waiting) {
    if (!waiting.empty() && (!first || limit_of(waiting.front()) < *first)) first = limit_of(waiting.front());
  }
  return first;
}

// True: the transfer is a read of a disk that does not answer.
bool Links::refuses(const Transfer& transfer) {
  if (way_of(transfer) != kDiskRead || !disk_is_closed()) return false;
  if (now_ - disk_tried_ <= disk_limit_) return true;
  disk_tried_ = now_;
  return false;
}

// When a read closes the disk, those that wait are given up too. (One that waits later is let through.)
void Links::give_up_late(Way way, std::vector<Transfer>& ended) {
  Lane& lane = lanes_[way];
  std::size_t unanswered = 0;
  const auto give_up = [&](Transfer& transfer) {
    transfer.given_up = true;
    transfer.began = transfer.added;
    transfer.ended = now_;
    ended.push_back(std::move(transfer));
  };
  if (lane.moving && limit_of(lane.moving->transfer) <= now_) {
    const Work& work = lane.moving->work;
    unanswered += work.blocks - work.answered();
    if (!lane.late || work.left < lane.late->left) lane.late = work;
    give_up(lane.moving->transfer);
    lane.moving.reset();
  }
  for (std::deque<Transfer>& waiting : lane.waiting) {
    for (; !waiting.empty() && limit_of(waiting.front()) <= now_; waiting.pop_front()) {
      unanswered += blocks_of(waiting.front());
      give_up(waiting.front());
    }
  }
  if (way != kDiskRead) return;
  const bool was_closed = disk_is_closed();
  disk_unanswered_ += unanswered;
  if (was_closed || !disk_is_closed()) return;
  disk_tried_ = now_;
  for (std::deque<Transfer>& waiting : lane.waiting) {
    for (; !waiting.empty(); waiting.pop_front()) give_up(waiting.front());
  }
}

std::vector<Transfer> Links::end(Nanos now) {
  advance(now);
  std::vector<Transfer> ended;
  for (std::uint8_t way = 0; way < kWays; ++way) {
    Lane& lane = lanes_[way];
    if (!lane.moving || !lane.moving->work.is_over()) continue;
    lane.moving->transfer.ended = now;
    ended.push_back(std::move(lane.moving->transfer));
    lane.moving.reset();
  }
  for (const Way way : {kDiskRead, kDiskWrite}) {
    if (has_limit(way)) give_up_late(way, ended);
  }
  for (Transfer& transfer : std::exchange(refused_, {})) {
    transfer.given_up = true;
    transfer.began = transfer.ended = now;
    ended.push_back(std::move(transfer));
  }
  begin(now);
  return ended;
}

void Links::set_speed(Nanos now, Way way, double speed) {
  LOCI_CHECK(speed >= 0, "nothing moves backwards");
  advance(now);
  speeds_[way] = speed;
}

std::vector<Transfer> Links::drop(Nanos now) {
  advance(now);
  std::vector<Transfer> dropped = std::exchange(refused_, {});
  disk_unanswered_ = 0;
  for (Lane& lane : lanes_) {
    if (lane.moving) dropped.push_back(std::move(lane.moving->transfer));
    lane.moving.reset();
    lane.late.reset();
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
  std::size_t count = refused_.size();
  for (const Lane& lane : lanes_) {
    count += lane.waiting[0].size() + lane.waiting[1].size() + (lane.moving ? 1 : 0);
  }
  return count;
}

}  // namespace loci::sim
