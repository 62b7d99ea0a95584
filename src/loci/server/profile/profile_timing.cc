// SPDX-License-Identifier: Apache-2.0
#include "loci/server/profile/profile_timing.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <latch>
#include <limits>
#include <span>
#include <thread>
#include <utility>

namespace loci {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kSliceTries = 64;

Nanos elapsed(SteadyClock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - begin).count();
}

// Layers of slots go from or to host memory, or begin to; `done` is called when they all have.
struct Link {
  std::function<void(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces)> copy;
  std::function<void(Copied done)> after;
  bool whole = false;  // blocks, else a few layers of all blocks at a time
};

Nanos until_over(const Link& link, SteadyClock::time_point begin) {
  std::latch done(1);
  link.after([&](const Status&) { done.count_down(); });
  done.wait();
  return elapsed(begin);
}

// The slots' blocks, which lie one after another in `host`.
Nanos copy_blocks(const BackendInfo& info, const Link& link, const SpareSlots& slots,
                  std::span<std::byte> host) {
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
      for (std::uint32_t i = 0; i < slots.count; ++i) {
        pieces.push_back(
            {SlotId(slots.first[g] + i),
             host.subspan(i * info.block_bytes + part + first * slice, (range.end - range.begin) * slice)});
      }
      link.copy(g, range, pieces);
    }
    part += group.block_bytes;
  }
  return until_over(link, begin);
}

Nanos copy_slice(const BackendInfo& info, const Link& link, const SpareSlots& slots,
                 std::span<std::byte> host) {
  const SavePiece piece{SlotId(slots.first[0]), host.first(info.groups[0].layer_slice_bytes)};
  const SteadyClock::time_point begin = SteadyClock::now();
  link.copy(0, {0, 1}, {&piece, 1});
  return until_over(link, begin);
}

struct TimedLink {
  LinkCost cost;
  Nanos charge = 0;
};

TimedLink measure_link(const BackendInfo& info, const Link& link, const SpareSlots& slots,
                       std::span<std::byte> host, int tries) {
  Nanos best = std::numeric_limits<Nanos>::max(), slice = best, processor = best;
  for (int i = 0; i < tries; ++i) {
    const Nanos before = processor_time();
    best = std::min(best, copy_blocks(info, link, slots, host));
    processor = std::min(processor, processor_time() - before);
  }
  for (int i = 0; i < kSliceTries; ++i) slice = std::min(slice, copy_slice(info, link, slots, host));
  const double rate =
      static_cast<double>(host.size()) / (static_cast<double>(std::max<Nanos>(best, 1)) / 1e9);
  const double moving = static_cast<double>(info.groups[0].layer_slice_bytes) / rate * 1e9;
  return {.cost = {.latency = std::max<Nanos>(0, slice - static_cast<Nanos>(moving)),
                   .bytes_per_second = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rate))},
          .charge = charge_per_mib(processor, host.size())};
}

}  // namespace

Nanos processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kNanosPerSecond + time.tv_nsec;
}

Nanos charge_per_mib(Nanos processor, std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  const double all = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<Nanos>(static_cast<double>(std::max<Nanos>(processor, 0)) / std::max(mib, 1e-6) / all);
}

Span PassTimer::span_of(std::uint32_t position, std::uint32_t rows, std::uint32_t layers,
                        std::uint64_t slot) const {
  const BackendInfo& info = backend_.info();
  Span span;
  for (std::uint32_t i = 0; i < rows; ++i) {
    span.tokens.emplace_back(
        static_cast<std::uint32_t>((std::uint64_t{position} + i) * 7919 % info.vocabulary));
  }
  span.position = position;
  span.layers = {0, layers};
  for (const std::uint32_t first : slots_.first) {
    std::vector<SlotId> slots;
    for (std::uint64_t block = 0; block * kBlockTokens < std::uint64_t{position} + rows; ++block)
      slots.emplace_back(first + static_cast<std::uint32_t>((slot + block) % slots_.count));
    span.tables.push_back({slots});
  }
  return span;
}

Nanos PassTimer::time(Pass pass) {
  const SteadyClock::time_point begin = SteadyClock::now();
  run_pass(backend_, std::move(pass), results_);
  return elapsed(begin);
}

Nanos PassTimer::run(std::uint32_t position, std::uint32_t rows, std::uint32_t layers, LogitsWanted logits) {
  Pass pass;
  pass.spans.push_back(span_of(position, rows, layers, 0));
  pass.spans.back().logits = logits;
  return time(std::move(pass));
}

Nanos PassTimer::run_decodes(std::uint32_t position, std::uint32_t count) {
  const std::uint64_t blocks = position / kBlockTokens + 1;
  Pass pass;
  for (std::uint32_t i = 0; i < count; ++i) {
    pass.spans.push_back(span_of(position, 1, backend_.info().layers, i * blocks));
    pass.spans.back().logits = LogitsWanted::kLast;
  }
  return time(std::move(pass));
}

Nanos PassTimer::project(const HiddenForm& form, std::uint32_t blocks) {
  const std::vector<std::byte> rows(form.slice_bytes());
  const auto slot = [this](std::uint32_t block) { return SlotId(slots_.first.front() + block); };
  const std::uint32_t layers = backend_.info().layers;
  for (std::uint32_t block = 0; block < blocks; ++block) backend_.begin_fill(0, slot(block));
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    for (std::uint32_t block = 0; block < blocks; ++block)
      backend_.load_hidden(0, slot(block), layer, block * kBlockTokens, rows);
  }
  run(blocks * kBlockTokens, 1, layers, LogitsWanted::kNone);
  return backend_.projected().took;
}

Status measure_host_links(Backend& backend, const SpareSlots& spare, std::uint64_t bytes, int tries,
                          CostCurves& curves) {
  const BackendInfo& info = backend.info();
  SpareSlots slots = spare;
  slots.count = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(bytes / std::max<std::uint64_t>(info.block_bytes, 1), 1, slots.count));
  LOCI_ASSIGN_OR_RETURN(const HostMemory memory, backend.allocate_host(slots.count * info.block_bytes));
  const std::span<std::byte> host(memory.data(), slots.count * info.block_bytes);
  std::fill(host.begin(), host.end(), std::byte{1});
  const Link load{.copy =
                      [&backend](std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) {
                        std::vector<LoadPiece> loads;
                        for (const SavePiece& piece : pieces) loads.push_back({piece.slot, piece.bytes});
                        backend.load(group, layers, loads, BytesHeld::kUntilCopied);
                      },
                  .after = [&backend](Copied done) { backend.after_loads(std::move(done)); }};
  const Link save{.copy =
                      [&backend](std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) {
                        backend.save(group, layers, pieces, BytesHeld::kUntilCopied);
                      },
                  .after = [&backend](Copied done) { backend.after_saves(std::move(done)); },
                  .whole = true};
  const TimedLink loading = measure_link(info, load, slots, host, tries);
  curves.host_load = loading.cost;
  curves.host_charge = info.name == "cpu" ? loading.charge : 0;  // a GPU's computing is not on the processor
  curves.host_save = measure_link(info, save, slots, host, tries).cost;
  return {};
}

}  // namespace loci
