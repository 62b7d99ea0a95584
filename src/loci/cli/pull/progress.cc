// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "loci/base/units.h"

namespace loci {
namespace {

constexpr Nanos kBarEvery = 200 * kNanosPerMilli;
constexpr Nanos kLineEvery = 10 * kNanosPerSecond;
constexpr std::size_t kBarCells = 24;

}  // namespace

PullProgress::PullProgress(Say say, std::uint64_t bytes_total, std::uint64_t bytes_there, std::size_t files)
    : say_(std::move(say)),
      total_(bytes_total),
      there_(bytes_there),
      files_(files),
      bytes_(static_cast<std::int64_t>(bytes_there)) {}

std::string PullProgress::text(Nanos now) const {
  const auto have =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, bytes_.load(std::memory_order_relaxed)));
  const std::uint64_t percent = total_ == 0 ? 100 : std::min<std::uint64_t>(100, have * 100 / total_);
  std::string out = fmt::format("{:3}%  {} of {}", percent, format_bytes(have), format_bytes(total_));
  const double seconds = static_cast<double>(now - began_) / 1e9;
  const double gained = have > there_ ? static_cast<double>(have - there_) : 0;
  if (began_ > 0 && seconds >= 1 && gained > 0) {
    const double rate = gained / seconds;
    out += fmt::format("  {}/s", format_bytes(static_cast<std::uint64_t>(rate)));
    if (have < total_) {
      const double left = static_cast<double>(total_ - have) / std::max(1.0, rate);
      out += fmt::format("  {} left", format_duration(static_cast<Nanos>(std::min(left, 1e8) * 1e9)));
    }
  }
  if (files_ > 1) out += fmt::format("  {} of {} files", files_done_.load(std::memory_order_relaxed), files_);
  return out;
}

void PullProgress::draw(Nanos now) const {
  if (say_) return say_(text(now));
  const auto have =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, bytes_.load(std::memory_order_relaxed)));
  const std::size_t cells =
      total_ == 0 ? kBarCells : std::min<std::uint64_t>(kBarCells, have * kBarCells / total_);
  fmt::print(stderr, "\r[{}{}] {}\x1b[K", std::string(cells, '#'), std::string(kBarCells - cells, '.'),
             text(now));
  std::fflush(stderr);
}

void PullProgress::show(Nanos now) {
  if (began_ == 0) {
    began_ = now;
    next_ = say_ ? now + kLineEvery : now;
  }
  if (now < next_) return;
  next_ = now + (say_ ? kLineEvery : kBarEvery);
  draw(now);
}

void PullProgress::end(Nanos now) {
  draw(now);
  if (!say_) fmt::print(stderr, "\n");
}

}  // namespace loci
