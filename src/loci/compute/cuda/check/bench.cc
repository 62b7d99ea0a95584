// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/check/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <iterator>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/compute/cuda/check/read_all.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kRepeats = 20;
constexpr std::uint32_t kRepeatsQuick = 5;
constexpr std::uint32_t kWarmUps = 3;
constexpr std::uint64_t kScratchBytesMin = std::uint64_t{64}
                                           << 20;  // keeps the device busy while the host queues
constexpr std::uint64_t kScratchBytesSimulated = 4096;

struct NoMemory {  // thrown by Bench::memory(), caught by Bench::attempt()
  Status status;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string number(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4);
}

}  // namespace

bool meets_bar(const BenchRow& row) {
  if (row.bar == 0) return true;
  const double share = row.measured / row.limit;  // without a limit: not a number, or infinite
  return std::isfinite(share) &&
         (row.better == BenchRow::Better::kHigher ? share >= row.bar : share <= row.bar);
}

void BenchTable::add(BenchRow row) {
  if (bars_ == Bars::kIgnored) row.bar = 0;
  const bool limited = row.limit != 0, judged = row.bar != 0, met = meets_bar(row);
  if (judged) ++(met ? passed_ : failed_);
  const char* sign = row.better == BenchRow::Better::kHigher ? ">=" : "<=";
  tell({row.name, number(row.measured), row.unit, limited ? number(row.limit) : "",
        limited ? fmt::format("{:.3f}", row.measured / row.limit) : "",
        judged ? fmt::format("{} {:.2f}", sign, row.bar) : "",
        !judged ? ""
        : met   ? "ok"
                : "MISSED",
        row.note});
}

void BenchTable::fail(std::string name, const Status& status) {
  ++failed_;
  tell({std::move(name), "", "", "", "", "", "FAILED", status.message()});
}

void BenchTable::begin() { tell({"", "measured", "", "limit", "share", "bar", "", ""}); }

void BenchTable::tell(const Cells& cells) {
  std::string line = fmt::format("{:<58} {:>9} {:<8} {:>8} {:>6} {:>8}  {:<6}  {}", cells[0], cells[1],
                                 cells[2], cells[3], cells[4], cells[5], cells[6], cells[7]);
  line.resize(line.find_last_not_of(' ') + 1);
  out_ << line << std::endl;
}

void BenchTable::end() { out_ << fmt::format("{} passed, {} failed", passed_, failed_) << std::endl; }

Bench::Bench(BenchOptions options, std::unique_ptr<Device> device)
    : options_(std::move(options)),
      device_(std::move(device)),
      stream_(*device_),
      table_(std::cout, small() ? BenchTable::Bars::kIgnored : BenchTable::Bars::kJudged) {
  table_.begin();
}

Result<std::unique_ptr<Bench>> Bench::make(BenchOptions options) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.ordinal));
  std::unique_ptr<Bench> bench(new Bench(std::move(options), std::move(device)));
  const DeviceProperties& properties = bench->device_->properties();
  const std::uint64_t scratch =
      properties.simulated ? kScratchBytesSimulated : std::max(2 * properties.l2_bytes, kScratchBytesMin);
  LOCI_ASSIGN_OR_RETURN(bench->scratch_,
                        Memory::allocate(*bench->device_, MemoryKind::kDevice, scratch, "a scratch"));
  Status status;
  bench->attempt("limits", [&] {
    Result<BenchLimits> limits = measure_limits(*bench);
    if (limits.ok()) bench->limits_ = *limits;
    status = limits.status();
  });
  LOCI_RETURN_IF_ERROR(status);
  if (bench->limits_.matrix_tflops == 0)
    return resource_exhausted("no memory to measure the device's limits in");
  return bench;
}

bool Bench::wanted(std::string_view name) const {
  const auto matches = [&](std::string_view filter) {
    return name.starts_with(filter) || filter.starts_with(name);
  };
  return options_.filters.empty() || std::any_of(options_.filters.begin(), options_.filters.end(), matches);
}

Memory Bench::memory(MemoryKind kind, std::uint64_t bytes) const {
  Result<Memory> memory = Memory::allocate(*device_, kind, bytes, "a benchmark");
  if (!memory.ok()) throw NoMemory{memory.status()};
  return std::move(memory).value();
}

void Bench::attempt(const std::string& name, const std::function<void()>& measure) {
  try {
    measure();
    if (device_->lost()) table_.fail(name, device_->status());
  } catch (const NoMemory& none) {
    table_.fail(name, none.status);
  }
}

Memory Bench::random_values(std::uint64_t count, ElementType type, std::uint64_t seed) const {
  constexpr std::uint64_t kPeriod = std::uint64_t{1} << 20;  // then they come again: the device cannot tell
  Memory values = memory(MemoryKind::kDevice, count * 2);
  const std::uint64_t made = std::min(count, kPeriod);
  const Memory host = memory(MemoryKind::kPinned, made * 2);
  Random random(seed);
  for (std::uint64_t i = 0; i < made; ++i) {
    float sum = -2;  // of four uniform ones: nearly normal
    for (int j = 0; j < 4; ++j) sum += static_cast<float>(random.below(1u << 16)) / (1u << 16);
    host.as<std::uint16_t>()[i] = type == ElementType::kBFloat16 ? f32_to_bf16(sum) : f32_to_f16(sum);
  }
  Stream stream(*device_);
  stream.copy(values.data(), host.data(), made * 2);
  for (std::uint64_t have = made; have < count; have *= 2) {
    stream.copy(values.data() + have * 2, values.data(), std::min(have, count - have) * 2);
  }
  stream.synchronize();
  return values;
}

std::uint32_t Bench::repeats_of(std::uint32_t asked) const {
  if (small()) return 1;
  return asked > 0 ? asked : options_.quick ? kRepeatsQuick : kRepeats;
}

double Bench::measure_ms(const std::function<void(Stream&)>& work, Caches caches, std::uint32_t repeats) {
  std::vector<double> times;
  Event begin(*device_, Event::Timing::kTimed), end(*device_, Event::Timing::kTimed);
  const std::uint32_t counted = repeats_of(repeats);
  for (std::uint32_t i = 0; i < kWarmUps + counted; ++i) {
    // While the scratch is written and read the host queues what follows.
    stream_.fill(scratch_.data(), 0, scratch_.size());
    read_all(scratch_.data(), scratch_.size(), stream_);
    if (caches == Caches::kWarm) work(stream_);
    stream_.record(begin);
    work(stream_);
    stream_.record(end);
    stream_.synchronize();
    if (i >= kWarmUps) times.push_back(end.milliseconds_since(begin));
  }
  return median(std::move(times));
}

double Bench::measure_wall_ms(const std::function<void()>& work, std::uint32_t repeats) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const std::uint32_t counted = repeats_of(repeats);
  for (std::uint32_t i = 0; i < 1 + counted; ++i) {
    device_->synchronize();
    const Clock::time_point begin = Clock::now();
    work();
    device_->synchronize();
    if (i >= 1) times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return median(std::move(times));
}

}  // namespace loci::cuda
