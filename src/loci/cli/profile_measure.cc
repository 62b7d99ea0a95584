// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/profile_measure.h"

#include <fmt/format.h>
#include <sys/times.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <latch>
#include <limits>
#include <span>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/units.h"

namespace loci {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kChunkMax = 128;  // rows whose attention is measured
constexpr std::uint32_t kChunkMin = 32;
constexpr std::uint32_t kSmallContext = 64;
constexpr std::uint64_t kLinkBytes = std::uint64_t{96} << 20;  // more than caches hold
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
  Status measure_links(CostCurves& curves);

 private:
  static std::chrono::nanoseconds to_chrono(Nanos nanos) { return std::chrono::nanoseconds(nanos); }
  static Nanos since(SteadyClock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin).count();
  }
  bool time_left() const { return SteadyClock::now() < ends_; }
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }
  Nanos run_once(std::uint32_t position, std::uint32_t rows, LogitsWanted logits);
  Nanos best_of(int tries, std::uint32_t position, std::uint32_t rows,
                LogitsWanted logits = LogitsWanted::kNone);
  // Layers of slots go from or to host memory, or begin to; `done` is called when they all have.
  struct Link {
    std::function<void(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces)> copy;
    std::function<void(Copied done)> after;
    bool whole = false;  // blocks, else a few layers of all blocks at a time
  };
  Result<LinkCost> measure_link(const Link& link) const;
  Nanos copy_blocks(const Link& link, std::uint32_t slots, std::span<std::byte> host) const;
  Nanos copy_slice(const Link& link, std::span<std::byte> host) const;
  static Nanos until_over(const Link& link, SteadyClock::time_point begin);

  Backend& backend_;
  const MeasureOptions& options_;
  SteadyClock::time_point ends_;
  std::uint32_t blocks_ = 0;
  std::uint32_t chunk_ = kChunkMax;
  std::vector<SpanResult> results_;
};

std::uint32_t blocks_for(std::uint64_t tokens) {
  return static_cast<std::uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

// Every slot is touched, as it is in a server that has run for a while.
Status Measurement::allocate() {
  const BackendInfo& info = backend_.info();
  const std::uint32_t least = blocks_for(std::max(options_.batch_tokens, 4 * kChunkMax));
  const std::uint64_t fit = options_.state_bytes_max / std::max<std::uint64_t>(info.block_bytes, 1);
  blocks_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(blocks_for(std::uint64_t{options_.context_tokens} + kChunkMax), least,
                                std::max<std::uint64_t>(fit, least)));
  for (std::uint32_t group = 0; group < info.groups.size(); ++group) {
    LOCI_RETURN_IF_ERROR(backend_.allocate_blocks(group, blocks_));
    const std::vector<std::byte> zeros(info.groups[group].layer_slice_bytes);
    for (std::uint32_t slot = 0; slot < blocks_; ++slot) {
      for (const std::uint32_t layer : info.groups[group].layers)
        backend_.write_layer(SlotId(slot), layer, zeros);
    }
  }
  return {};
}

Nanos Measurement::run_once(std::uint32_t position, std::uint32_t rows, LogitsWanted logits) {
  const BackendInfo& info = backend_.info();
  Span span;
  for (std::uint32_t i = 0; i < rows; ++i) {
    span.tokens.emplace_back(
        static_cast<std::uint32_t>((std::uint64_t{position} + i) * 7919 % info.vocabulary));
  }
  span.position = position;
  span.layers = {0, info.layers};
  span.logits = logits;
  BlockTable table;
  for (std::uint32_t block = 0; block < blocks_for(std::uint64_t{position} + rows); ++block) {
    table.blocks.emplace_back(block);
  }
  span.tables.assign(info.groups.size(), table);
  Pass pass;
  pass.spans.push_back(std::move(span));
  const SteadyClock::time_point begin = SteadyClock::now();
  backend_.run(pass, results_);
  return since(begin);
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

Nanos Measurement::until_over(const Link& link, SteadyClock::time_point begin) {
  std::latch done(1);
  link.after([&](const Status&) { done.count_down(); });
  done.wait();
  return since(begin);
}

// The first so many slots' blocks, as movers bring and take them. `host` holds them one after another.
Nanos Measurement::copy_blocks(const Link& link, std::uint32_t slots, std::span<std::byte> host) const {
  const BackendInfo& info = backend_.info();
  std::vector<SavePiece> pieces;
  const SteadyClock::time_point begin = SteadyClock::now();
  std::uint64_t part = 0;  // begin of the group's, in a block
  for (std::uint32_t g = 0; g < info.groups.size(); ++g) {
    const LayerGroup& group = info.groups[g];
    const std::uint64_t slice = group.layer_slice_bytes;
    const auto layers = static_cast<std::uint32_t>(group.layers.size());
    const auto run =
        link.whole
            ? layers
            : static_cast<std::uint32_t>(std::clamp<std::uint64_t>(info.copy_bytes / slice, 1, layers));
    for (std::uint32_t first = 0; first < layers; first += run) {
      const LayerRange range{first, std::min(first + run, layers)};
      pieces.clear();
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        pieces.push_back({SlotId(slot), host.subspan(slot * info.block_bytes + part + first * slice,
                                                     (range.end - range.begin) * slice)});
      }
      link.copy(g, range, pieces);
    }
    part += group.block_bytes;
  }
  return until_over(link, begin);
}

Nanos Measurement::copy_slice(const Link& link, std::span<std::byte> host) const {
  const SavePiece piece{SlotId(0), host.first(backend_.info().groups[0].layer_slice_bytes)};
  const SteadyClock::time_point begin = SteadyClock::now();
  link.copy(0, {0, 1}, {&piece, 1});
  return until_over(link, begin);
}

Result<LinkCost> Measurement::measure_link(const Link& link) const {
  const BackendInfo& info = backend_.info();
  const std::uint64_t wanted = info.copy_bytes > 0 ? kLinkBytesBehind : kLinkBytes;
  const auto slots = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(wanted / std::max<std::uint64_t>(info.block_bytes, 1), 1, blocks_));
  LOCI_ASSIGN_OR_RETURN(const HostMemory host, backend_.allocate_host(slots * info.block_bytes));
  const std::span<std::byte> bytes(host.data(), host.size());
  std::fill(bytes.begin(), bytes.end(), std::byte{1});
  Nanos best = std::numeric_limits<Nanos>::max(), slice = best;
  for (int i = 0; i < 4; ++i) best = std::min(best, copy_blocks(link, slots, bytes));
  for (int i = 0; i < 64; ++i) slice = std::min(slice, copy_slice(link, bytes));
  const double rate =
      static_cast<double>(bytes.size()) / (static_cast<double>(std::max<Nanos>(best, 1)) / 1e9);
  const double moving = static_cast<double>(info.groups[0].layer_slice_bytes) / rate * 1e9;
  return LinkCost{.latency = std::max<Nanos>(0, slice - static_cast<Nanos>(moving)),
                  .bytes_per_second = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rate))};
}

Status Measurement::measure_links(CostCurves& curves) {
  const Link load{.copy =
                      [this](std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) {
                        std::vector<LoadPiece> loads;
                        for (const SavePiece& piece : pieces) loads.push_back({piece.slot, piece.bytes});
                        backend_.load_layers(group, layers, loads);
                      },
                  .after = [this](Copied done) { backend_.after_loads(std::move(done)); }};
  const Link save{
      .copy = [this](std::uint32_t group, LayerRange layers,
                     std::span<const SavePiece> pieces) { backend_.save_layers(group, layers, pieces); },
      .after = [this](Copied done) { backend_.after_saves(std::move(done)); },
      .whole = true};
  LOCI_ASSIGN_OR_RETURN(curves.host_load, measure_link(load));
  LOCI_ASSIGN_OR_RETURN(curves.host_save, measure_link(save));
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

Status measure_backend(Backend& backend, const MeasureOptions& options, CostCurves& curves) {
  Measurement measurement(backend, options);
  LOCI_RETURN_IF_ERROR(measurement.allocate());
  measurement.measure_pass(curves);
  measurement.measure_attention(curves);
  measurement.measure_token(curves);
  return measurement.measure_links(curves);
}

}  // namespace loci
