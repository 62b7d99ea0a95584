// SPDX-License-Identifier: Apache-2.0
#include "loci/server/self_profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "loci/base/units.h"
#include "loci/compute/touch_slots.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/server/profile/aside.h"
#include "loci/server/profile/profile_rough.h"

namespace loci {
namespace {

constexpr Nanos kQuiet = kNanosPerSecond;
constexpr Nanos kPatience = 2 * kNanosPerSecond;  // with the file's disk
constexpr int kOthersPercent = 25;  // of the machine: then what is measured is of use now, not later

class WhenIdle {
 public:
  WhenIdle(SelfProfile wanted, RoughOptions options, Backend& backend, Engine& engine,
           std::shared_ptr<spdlog::logger> log)
      : wanted_(std::move(wanted)),
        rough_(backend, std::move(options), wanted_.profile.curves),
        engine_(engine),
        log_(std::move(log)) {}

  bool work(const IdleStop& stop) {
    const auto begin = std::chrono::steady_clock::now();
    BusyMachine others;
    const bool done = measured_ || rough_.measure(stop);
    spent_ += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin);
    busy_ = std::max(busy_, others.percent());
    if (!done) return false;
    if (!measured_) take_over();
    measured_ = true;
    if (written_ && !written_->wait(stop)) return false;
    log_->info(
        "costs measured roughly in {} while nobody asked anything, {} (`loci profile` measures better)",
        format_duration(spent_.count()), kept());
    return true;
  }

 private:
  void take_over() {
    CostProfile& profile = wanted_.profile;
    const CostCurves found = rough_.curves();
    if (wanted_.only_disk) {
      profile.curves.disk_read = found.disk_read;
      profile.curves.disk_write = found.disk_write;
      profile.curves.disk_charge = found.disk_charge;
    } else {
      profile.curves = found;
    }
    if (!rough_.disk_trouble().empty())
      log_->warn("the disk's speed was not measured, its costs stay assumed: {}", rough_.disk_trouble());
    if (!rough_.disk_trouble().empty() || wanted_.io_limit > 0) profile.disk_directory.clear();
    profile.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    engine_.set_costs(limited_costs(profile.curves, wanted_.io_limit));
    if (wanted_.path.empty() || busy_ > kOthersPercent) return;
    written_.emplace([path = wanted_.path, profile] { return write_profile(path, profile); }, kPatience);
  }

  // Whether it is kept, for people.
  std::string kept() {
    if (wanted_.path.empty()) return "not kept: another file is in its place";
    if (!written_) return fmt::format("not kept: others took {} % of this machine meanwhile", busy_);
    const std::optional<Status> written = written_->take();
    if (!written) return fmt::format("not kept yet: {} takes long to be written", wanted_.path);
    return written->ok() ? fmt::format("kept in {}", wanted_.path)
                         : fmt::format("not kept: {}", written->message());
  }

  SelfProfile wanted_;
  RoughProfile rough_;
  Engine& engine_;
  std::shared_ptr<spdlog::logger> log_;
  std::chrono::nanoseconds spent_{0};
  int busy_ = 0;
  bool measured_ = false;
  std::optional<Aside<Status>> written_;
};

}  // namespace

std::uint32_t spare_slots(const std::vector<std::uint32_t>& blocks) {
  const std::uint32_t most = blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
  return std::clamp(most / 64, 4u, 32u);
}

SpareSlots spare_slots_behind(const std::vector<std::uint32_t>& blocks) {
  return {.first = blocks, .count = spare_slots(blocks)};
}

void warm_up(Backend& backend, const std::vector<std::uint32_t>& blocks, std::uint32_t batch_tokens,
             std::uint32_t context_tokens) {
  const BackendInfo& info = backend.info();
  PassTimer passes(backend, spare_slots_behind(blocks));
  const std::uint32_t rows = std::min({batch_tokens, context_tokens, passes.rows_max()});
  passes.run(0, rows, representative_layers(info, 1), LogitsWanted::kNone);
  passes.run(0, 1, info.layers, LogitsWanted::kLast);
  if (info.name != "cpu") return;  // a device's memory is there from the start
  for (std::uint32_t g = 0; g < info.groups.size(); ++g) {
    const std::uint64_t most =
        std::min<std::uint64_t>(kTouchedBytes / std::max<std::uint64_t>(info.block_bytes, 1),
                                (context_tokens + kBlockTokens - 1) / kBlockTokens);
    touch_slots(backend, g, static_cast<std::uint32_t>(std::min<std::uint64_t>(most, blocks[g])));
  }
}

CostCurves limited_costs(CostCurves costs, std::uint64_t io_limit) {
  if (io_limit == 0) return costs;
  for (LinkCost* link : {&costs.disk_read, &costs.disk_write})
    link->bytes_per_second = std::min(link->bytes_per_second, io_limit);
  return costs;
}

void profile_when_idle(SelfProfile wanted, Backend& backend, Engine& engine,
                       std::shared_ptr<spdlog::logger> log) {
  const LayerGroup& first = backend.info().groups.front();
  RoughOptions options{.slots = wanted.slots,
                       .batch_tokens = wanted.batch_tokens,
                       .context_tokens = wanted.context_tokens,
                       .disk = wanted.io_limit == 0 ? wanted.profile.disk_directory : "",
                       .disk_read_bytes = default_read_bytes(first.layer_slice_bytes, first.layers.size())};
  auto work =
      std::make_shared<WhenIdle>(std::move(wanted), std::move(options), backend, engine, std::move(log));
  engine.when_idle(kQuiet, [work = std::move(work)](const IdleStop& stop) { return work->work(stop); });
}

}  // namespace loci
