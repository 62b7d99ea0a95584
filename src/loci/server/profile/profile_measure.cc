// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/profile_measure.h"
#include "loci/compute/hidden_form.h"
#include "loci/compute/touch_slots.h"

#include <fmt/format.h>
#include <sys/times.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>

#include "loci/base/check.h"
#include "loci/base/units.h"
#include "loci/server/profile/profile_timing.h"

namespace loci {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kChunkMax = 128;  // rows whose attention is measured
constexpr std::uint32_t kChunkMin = 32;
constexpr std::uint32_t kSmallContext = 64;
constexpr std::uint32_t kRowsShort = 32;  // passes of which more tries take no time
constexpr std::uint32_t kProjectedBlocksMin = 16;
constexpr std::uint64_t kProjectedBytes = std::uint64_t{96} << 20;  // more than caches hold
constexpr std::uint32_t kDecodesMax = 64;                           // in a pass
constexpr std::uint64_t kLinkBytes = std::uint64_t{96} << 20;       // more than caches hold
constexpr std::uint64_t kLinkBytesBehind = std::uint64_t{512}
                                           << 20;  // more than the wait for their end counts

class Measurement {
 public:
  Measurement(Backend& backend, const MeasureOptions& options)
      : backend_(backend), options_(options), ends_(SteadyClock::now() + to_chrono(options.time_limit)) {}

  Status allocate();
  void measure_pass(CostCurves& curves);
  void measure_attention(CostCurves& curves);
  void measure_token(CostCurves& curves);
  void measure_passes(const CostCurves& curves, PassCurves& passes);
  void measure_projection(CostCurves& curves);
  Status measure_links(CostCurves& curves);

 private:
  static std::chrono::nanoseconds to_chrono(Nanos nanos) { return std::chrono::nanoseconds(nanos); }
  bool time_left() const { return SteadyClock::now() < ends_; }
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }
  Nanos run_once(std::uint32_t position, std::uint32_t rows, LogitsWanted logits) {
    return passes_->run(position, rows, backend_.info().layers, logits);
  }
  Nanos best_of(int tries, std::uint32_t position, std::uint32_t rows,
                LogitsWanted logits = LogitsWanted::kNone);
  Backend& backend_;
  const MeasureOptions& options_;
  SteadyClock::time_point ends_;
  std::uint32_t blocks_ = 0;
  std::uint32_t chunk_ = kChunkMax;
  SpareSlots slots_;
  std::optional<PassTimer> passes_;
};

std::uint32_t blocks_for(std::uint64_t tokens) {
  return static_cast<std::uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

Status Measurement::allocate() {
  const BackendInfo& info = backend_.info();
  const std::uint32_t least = blocks_for(std::max(options_.batch_tokens, 4 * kChunkMax));
  const std::uint64_t fit = options_.state_bytes_max / std::max<std::uint64_t>(info.block_bytes, 1);
  blocks_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(blocks_for(std::uint64_t{options_.context_tokens} + kChunkMax), least,
                                std::max<std::uint64_t>(fit, least)));
  for (std::uint32_t group = 0; group < info.groups.size(); ++group) {
    LOCI_RETURN_IF_ERROR(backend_.allocate_blocks(group, blocks_));
    touch_slots(backend_, group, blocks_);
  }
  slots_ = {std::vector<std::uint32_t>(info.groups.size(), 0), blocks_};
  passes_.emplace(backend_, slots_);
  return {};
}

Nanos Measurement::best_of(int tries, std::uint32_t position, std::uint32_t rows, LogitsWanted logits) {
  Nanos best = run_once(position, rows, logits);
  for (int i = 1; i < tries && time_left(); ++i) best = std::min(best, run_once(position, rows, logits));
  return best;
}

void Measurement::measure_pass(CostCurves& curves) {
  run_once(0, 1, LogitsWanted::kLast);  // pages of the weights
  const Nanos row = best_of(9, kSmallContext, 1, LogitsWanted::kLast);
  curves.pass = row;
  say(fmt::format("a pass of one row: {}", format_duration(row)));
}

void Measurement::measure_attention(CostCurves& curves) {
  // A chunk takes at most a twentieth of the time.
  const Nanos trial = run_once(0, kChunkMin, LogitsWanted::kNone);
  while (chunk_ > kChunkMin && trial * (chunk_ / kChunkMin) > options_.time_limit / 20) chunk_ /= 2;
  std::vector<AttentionSample> samples;
  const std::uint64_t most = std::uint64_t{blocks_} * kBlockTokens;
  for (std::uint32_t context = chunk_; std::uint64_t{context} + chunk_ <= most; context *= 2) {
    if (samples.size() >= 3 && !time_left()) break;
    const Nanos took = best_of(5, context - chunk_ / 2, chunk_);
    samples.push_back({context, took / chunk_});
    say(fmt::format("a token behind {} others: {}", format_count(context), format_duration(took / chunk_)));
  }
  curves.attention = fit_attention(samples);
}

void Measurement::measure_token(CostCurves& curves) {
  CostCurves attention_alone = curves;
  attention_alone.token = 0;
  const Nanos took = best_of(3, 0, options_.batch_tokens);
  const Nanos attention = CostModel(attention_alone).compute(0, options_.batch_tokens);
  curves.token = std::max<Nanos>((took - attention) / options_.batch_tokens, 1);
  say(fmt::format("a token in a pass of {}: {} without attention", options_.batch_tokens,
                  format_duration(curves.token)));
}

// What disturbed one measurement and not the next would make a curve fall.
void add_rising(std::vector<Nanos>& curve, Nanos cost) {
  curve.push_back(std::max({cost, Nanos{0}, curve.empty() ? 0 : curve.back()}));
}

void Measurement::measure_passes(const CostCurves& curves, PassCurves& passes) {
  CostCurves attention_alone = curves;
  attention_alone.token = 0;
  const CostModel attention(attention_alone);
  for (std::uint32_t rows = 1; rows <= options_.batch_tokens; rows *= 2)
    add_rising(passes.rows, best_of(rows <= kRowsShort ? 9 : 3, 0, rows) - attention.compute(0, rows));
  std::vector<AttentionSample> samples;
  const std::uint64_t most = std::uint64_t{blocks_} * kBlockTokens;
  for (std::uint32_t context = kSmallContext; context < most; context *= 2)
    samples.push_back({context, best_of(9, context, 1)});
  passes.decode_attention = decode_attention(samples, passes.rows.front());
  const Nanos behind = CostModel({.attention = passes.decode_attention}).attention(kSmallContext);
  std::size_t power = 0;
  const std::uint32_t decodes_most = std::min(kDecodesMax, passes_->decodes_max(kSmallContext));
  for (std::uint32_t decodes = 1; decodes <= decodes_most && power < passes.rows.size(); decodes *= 2) {
    Nanos best = passes_->run_decodes(kSmallContext, decodes);
    for (int i = 1; i < 9 && time_left(); ++i)
      best = std::min(best, passes_->run_decodes(kSmallContext, decodes));
    add_rising(passes.logits, best - passes.rows[power++] - decodes * behind);
  }
  say(fmt::format("a pass of {} decodes: {}", format_count(std::uint64_t{1} << (power - 1)),
                  format_duration(passes.rows[power - 1] + passes.logits.back())));
}

void Measurement::measure_projection(CostCurves& curves) {
  const Result<HiddenForm> form = hidden_form(backend_.info());
  if (!form.ok()) return;
  // Restored conversations come from memory, not from caches. If that takes long, fewer blocks are timed.
  std::uint32_t blocks = std::min(kProjectedBlocksMin, passes_->projected_max());
  Nanos best = passes_->project(*form, blocks) / blocks;
  const std::uint64_t beyond_caches = kProjectedBytes / (form->slice_bytes() * backend_.info().layers);
  const auto affordable = static_cast<std::uint64_t>(options_.time_limit / 20 / std::max<Nanos>(best, 1));
  blocks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::min(beyond_caches, affordable), blocks, passes_->projected_max()));
  best = passes_->project(*form, blocks) / blocks;
  for (int i = 1; i < 3 && time_left(); ++i) best = std::min(best, passes_->project(*form, blocks) / blocks);
  curves.projection = std::max<Nanos>(best / kBlockTokens, 1);
  say(fmt::format("a token of hidden states: {} to project", format_duration(curves.projection)));
}

Status Measurement::measure_links(CostCurves& curves) {
  const std::uint64_t bytes = backend_.info().copy_bytes > 0 ? kLinkBytesBehind : kLinkBytes;
  LOCI_RETURN_IF_ERROR(measure_host_links(backend_, slots_, bytes, 4, curves));
  say(fmt::format("host memory: {}/s to the device, {}/s from it",
                  format_bytes(curves.host_load.bytes_per_second),
                  format_bytes(curves.host_save.bytes_per_second)));
  return {};
}

}  // namespace

std::vector<Nanos> fit_attention(const std::vector<AttentionSample>& samples) {
  LOCI_CHECK(samples.size() >= 2, "a line needs two points");
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const AttentionSample& sample : samples) {
    const double context = sample.context, row = static_cast<double>(sample.row);
    n += 1;
    x += context;
    y += row;
    xx += context * context;
    xy += context * row;
  }
  const double slope = std::max((n * xy - x * y) / (n * xx - x * x), 0.0);
  const double base = (y - slope * x) / n;
  std::vector<Nanos> attention;
  std::size_t next = 0;
  Nanos most = 0;
  for (std::uint64_t context = 1; context <= samples.back().context; context *= 2) {
    double cost = slope * static_cast<double>(context);
    if (next < samples.size() && samples[next].context == context) {
      const double measured = static_cast<double>(samples[next++].row) - base;
      if (cost > base / 10) cost = measured;
    }
    most = std::max(most, static_cast<Nanos>(std::llround(cost)));
    attention.push_back(most);
  }
  return attention;
}

std::vector<Nanos> decode_attention(const std::vector<AttentionSample>& samples, Nanos alone) {
  LOCI_CHECK(!samples.empty(), "a share needs a whole");
  std::vector<Nanos> attention;
  const AttentionSample& first = samples.front();
  const Nanos least = std::max<Nanos>(first.row - alone, 0);
  for (std::uint64_t context = 1; context < first.context; context *= 2)
    attention.push_back(least * static_cast<Nanos>(context) / first.context);
  for (const AttentionSample& sample : samples) add_rising(attention, sample.row - alone);
  return attention;
}

int BusyMachine::percent() {
  std::ifstream stat("/proc/stat");
  std::string name;
  std::int64_t idle = 0, all = 0, ticks = 0;
  stat >> name;
  for (int column = 0; column < 8 && stat >> ticks;
       ++column) {  // user nice system idle iowait irq softirq steal
    all += ticks;
    if (column == 3 || column == 4) idle += ticks;
  }
  tms times{};
  ::times(&times);
  const std::int64_t own = times.tms_utime + times.tms_stime;
  const std::int64_t others = (all - idle - busy_) - (own - own_);
  const std::int64_t passed = std::max<std::int64_t>(all - all_, 1);
  busy_ = all - idle;
  all_ = all;
  own_ = own;
  return static_cast<int>(std::clamp<std::int64_t>(100 * others / passed, 0, 100));
}

Status measure_backend(Backend& backend, const MeasureOptions& options, CostProfile& profile) {
  CostCurves& curves = profile.curves;
  Measurement measurement(backend, options);
  LOCI_RETURN_IF_ERROR(measurement.allocate());
  measurement.measure_pass(curves);
  measurement.measure_attention(curves);
  measurement.measure_token(curves);
  measurement.measure_passes(curves, profile.passes);
  measurement.measure_projection(curves);
  return measurement.measure_links(curves);
}

}  // namespace loci
