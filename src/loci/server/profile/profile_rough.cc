// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/profile_rough.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include "loci/base/units.h"

namespace loci {
namespace {

constexpr std::uint32_t kChunk = 32;  // rows whose attention is measured
constexpr std::uint32_t kContextMin = 5 * kChunk;
constexpr int kTries = 3;
constexpr Nanos kRowTime = kNanosPerSecond / 2;
constexpr std::uint64_t kHostBytes = std::uint64_t{24} << 20;
constexpr std::uint64_t kDiskBytes = std::uint64_t{48} << 20;
constexpr Nanos kDiskTime = 400'000'000;  // of writing, and of reading

}  // namespace

std::uint32_t representative_layers(const BackendInfo& info, std::uint32_t wanted) {
  for (std::uint32_t layers = std::max(wanted, 1u); layers < info.layers; ++layers) {
    const bool fair = std::all_of(info.groups.begin(), info.groups.end(), [&](const LayerGroup& group) {
      const auto among = static_cast<std::int64_t>(
          std::lower_bound(group.layers.begin(), group.layers.end(), layers) - group.layers.begin());
      const auto share = static_cast<std::int64_t>(group.layers.size() * layers);
      return 8 * std::abs(among * info.layers - share) <= share;
    });
    if (fair) return layers;
  }
  return info.layers;
}

RoughProfile::RoughProfile(Backend& backend, RoughOptions options, CostCurves assumed)
    : backend_(backend),
      options_(std::move(options)),
      curves_(std::move(assumed)),
      passes_(backend, options_.slots) {}

RoughProfile::~RoughProfile() {
  if (disk_stopped_) *disk_stopped_ = true;
}

bool RoughProfile::measure(const std::function<bool()>& stop) {
  static constexpr Stage kStages[] = {&RoughProfile::choose_layers,      &RoughProfile::measure_row,
                                      &RoughProfile::measure_attention,  &RoughProfile::measure_token,
                                      &RoughProfile::measure_projection, &RoughProfile::measure_host,
                                      &RoughProfile::measure_disk_links};
  if (options_.context_tokens < kContextMin) return true;
  for (; stage_ < std::size(kStages); ++stage_) {
    if (stop() || !(this->*kStages[stage_])(stop)) return false;
  }
  return true;
}

bool RoughProfile::best_of(int tries, std::uint32_t position, std::uint32_t rows, const Stop& stop,
                           Nanos& out) {
  Nanos best = std::numeric_limits<Nanos>::max();
  for (int i = 0; i < tries; ++i) {
    if (stop()) return false;
    best = std::min(best, passes_.run(position, rows, layers_, LogitsWanted::kNone));
  }
  out = best * backend_.info().layers / layers_;
  return true;
}

bool RoughProfile::choose_layers(const Stop& stop) {
  const std::uint32_t all = backend_.info().layers;
  layers_ = representative_layers(backend_.info(), 1);
  passes_.run(0, kChunk, layers_, LogitsWanted::kNone);  // pages of the weights
  if (!best_of(kTries, 0, kChunk, stop, row_in_chunk_)) return false;
  row_in_chunk_ /= kChunk;
  const std::uint32_t rows = std::min(options_.batch_tokens, passes_.rows_max());
  const Nanos layer = std::max<Nanos>(row_in_chunk_ * rows / all, 1);  // of a full pass
  const auto fitting = static_cast<std::uint32_t>(std::clamp<Nanos>(kPiece / layer, 1, all));
  layers_ = representative_layers(backend_.info(), fitting);
  return true;
}

bool RoughProfile::measure_row(const Stop& stop) {
  Nanos best = std::numeric_limits<Nanos>::max(), spent = 0;
  for (int i = 0; i < kTries && spent < kRowTime; ++i) {
    if (stop()) return false;
    const Nanos took = passes_.run(kChunk, 1, backend_.info().layers, LogitsWanted::kLast);
    best = std::min(best, took);
    spent += took;
  }
  curves_.pass = best;
  return true;
}

bool RoughProfile::measure_attention(const Stop& stop) {
  Nanos row = 0;
  while (samples_.size() < 2 ||
         (attention_spent_ < kComputing && row * kChunk * layers_ / backend_.info().layers < kPiece)) {
    const std::uint32_t context = samples_.empty() ? 2 * kChunk : 2 * samples_.back().context;
    if (samples_.size() >= 2 && context + kChunk > options_.context_tokens) break;
    Nanos chunk = 0;
    if (!best_of(kTries, context - kChunk / 2, kChunk, stop, chunk)) return false;
    row = chunk / kChunk;
    attention_spent_ += kTries * chunk * layers_ / backend_.info().layers;
    samples_.push_back({context, row});
  }
  curves_.attention = fit_attention(samples_);
  return true;
}

bool RoughProfile::measure_token(const Stop& stop) {
  const std::uint32_t all = backend_.info().layers;
  std::uint32_t rows =
      std::max(1u, std::min({options_.batch_tokens, passes_.rows_max(), options_.context_tokens}));
  while (rows > kChunk && row_in_chunk_ * rows * layers_ / all > 2 * kPiece) rows /= 2;
  Nanos took = 0;
  if (!best_of(kTries, 0, rows, stop, took)) return false;
  CostCurves attention = curves_;
  attention.token = 0;
  curves_.token = std::max<Nanos>((took - CostModel(attention).compute(0, rows)) / rows, 1);
  return true;
}

// At first one block; then as many as a piece has time for. The row behind them is of the context too.
bool RoughProfile::measure_projection(const Stop& stop) {
  const Result<HiddenForm> form = hidden_form(backend_.info());
  const std::uint32_t blocks_max =
      std::min(passes_.projected_max(), (options_.context_tokens - 1) / kBlockTokens);
  if (!form.ok() || blocks_max == 0) return true;
  std::uint32_t blocks = 1;
  Nanos best = std::numeric_limits<Nanos>::max();
  for (int i = 0; i < kTries; ++i) {
    if (stop()) return false;
    best = std::min(best, std::max<Nanos>(passes_.project(*form, blocks) / blocks, 1));
    blocks = static_cast<std::uint32_t>(std::clamp<Nanos>(kPiece / best, 1, blocks_max));
  }
  curves_.projection = std::max<Nanos>(best / kBlockTokens, 1);
  return true;
}

bool RoughProfile::measure_host(const Stop&) {
  // Without memory for it, what is assumed stays.
  static_cast<void>(measure_host_links(backend_, options_.slots, kHostBytes, 2, curves_));
  return true;
}

void RoughProfile::begin_disk() {
  disk_stopped_ = std::make_shared<std::atomic<bool>>(false);
  DiskMeasureOptions disk;
  disk.directory = options_.disk;
  disk.request_bytes = options_.disk_read_bytes;
  disk.file_bytes = kDiskBytes;
  disk.time_limit = kDiskTime;
  disk.stop = [stopped = disk_stopped_] { return stopped->load(); };
  disk_.emplace([call = options_.measure_disk, disk = std::move(disk)] { return call(disk); },
                options_.disk_patience);
}

bool RoughProfile::measure_disk_links(const Stop& stop) {
  if (options_.disk.empty()) return true;
  for (;;) {
    if (!disk_) begin_disk();
    if (!disk_->wait(stop)) {
      *disk_stopped_ = true;
      return false;
    }
    const std::optional<Result<DiskMeasurement>> measured = disk_->take();
    disk_.reset();
    // What was stopped shared the machine with requests. One at a time is measured, so it had to end first.
    if (measured && *disk_stopped_) continue;
    *disk_stopped_ = true;
    if (!measured) {
      disk_trouble_ =
          fmt::format("{}: no answer in {}", options_.disk, format_duration(options_.disk_patience));
    } else if (!measured->ok()) {
      disk_trouble_ = measured->status().message();
    } else {
      const DiskMeasurement& found = **measured;
      curves_.disk_read = found.read;
      curves_.disk_write = found.write;
      if (backend_.info().name == "cpu") curves_.disk_charge = found.charge + curves_.host_charge;
    }
    return true;
  }
}

}  // namespace loci
