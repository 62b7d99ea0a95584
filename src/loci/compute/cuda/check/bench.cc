#include "loci/compute/cuda/check/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
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
  if (row.bar != 0) ++(meets_bar(row) ? passed_ : failed_);
  rows_.push_back(std::move(row));
  errors_.emplace_back();
}

void BenchTable::fail(std::string name, const Status& status) {
  ++failed_;
  BenchRow row;
  row.name = std::move(name);
  rows_.push_back(std::move(row));
  errors_.push_back(status.message());
}

void BenchTable::print(std::ostream& out) const {
  std::vector<std::vector<std::string>> lines{{"", "measured", "", "limit", "share", "bar", ""}};
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const BenchRow& row = rows_[i];
    if (!errors_[i].empty()) {
      lines.push_back({row.name, "", "", "", "", "", "FAILED"});
      continue;
    }
    const bool limited = row.limit != 0;
    const bool judged = row.bar != 0;
    const char* sign = row.better == BenchRow::Better::kHigher ? ">=" : "<=";
    lines.push_back({row.name, number(row.measured), row.unit, limited ? number(row.limit) : "",
                     limited ? fmt::format("{:.3f}", row.measured / row.limit) : "",
                     judged ? fmt::format("{} {:.2f}", sign, row.bar) : "",
                     !judged          ? ""
                     : meets_bar(row) ? "ok"
                                      : "MISSED"});
  }
  std::vector<std::size_t> widths(lines.front().size());
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (std::size_t at = 0; at < lines.size(); ++at) {
    std::string text = fmt::format("{:<{}}", lines[at][0], widths[0]);
    for (std::size_t i = 1; i < lines[at].size(); ++i) {
      const bool left = i == 2 || i + 1 == lines[at].size();  // units and verdicts
      text += left ? fmt::format("  {:<{}}", lines[at][i], widths[i])
                   : fmt::format("  {:>{}}", lines[at][i], widths[i]);
    }
    if (at > 0) {
      const std::string& error = errors_[at - 1];
      text += "  " + (error.empty() ? rows_[at - 1].note : error);
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    out << text << '\n';
  }
  out << fmt::format("{} passed, {} failed\n", passed_, failed_);
}

Bench::Bench(BenchOptions options, std::unique_ptr<Device> device)
    : options_(std::move(options)),
      device_(std::move(device)),
      stream_(*device_),
      table_(small() ? BenchTable::Bars::kIgnored : BenchTable::Bars::kJudged) {}

Result<std::unique_ptr<Bench>> Bench::make(BenchOptions options) {
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.ordinal));
  std::unique_ptr<Bench> bench(new Bench(std::move(options), std::move(device)));
  const DeviceProperties& properties = bench->device_->properties();
  const std::uint64_t scratch =
      properties.simulated ? kScratchBytesSimulated : std::max(2 * properties.l2_bytes, kScratchBytesMin);
  LOCI_ASSIGN_OR_RETURN(bench->scratch_,
                        Memory::allocate(*bench->device_, MemoryKind::kDevice, scratch, "a scratch"));
  LOCI_ASSIGN_OR_RETURN(bench->limits_, measure_limits(*bench));
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
  LOCI_CHECK(memory.ok(), memory.status().message().c_str());
  return std::move(memory).value();
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
  for (std::uint64_t at = 0; at < count; at += made) {
    stream.copy(values.data() + at * 2, host.data(), std::min(made, count - at) * 2);
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
    stream_.fill(scratch_.data(), 0, scratch_.size());  // while it is written the host queues what follows
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
