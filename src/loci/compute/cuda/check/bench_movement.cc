// SPDX-License-Identifier: Apache-2.0
// Movement of Llama-8B-shaped state against the link: blocks as saves move them, layers as loads move them,
// staged slices, both directions at once; and how much a pass is slowed by loads for which it waits layer by
// layer.
#include <fmt/format.h>

#include <algorithm>
#include <latch>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "loci/compute/cuda/block_pool.h"
#include "loci/compute/cuda/check/bench.h"
#include "loci/compute/cuda/products/products.h"

namespace loci::cuda {
namespace {

constexpr double kLinkBar = 0.9;
constexpr double kOverlapBar = 1.05;

struct Shape {
  std::uint32_t layers = 32, kv_heads = 8, head_dim = 128;  // a block is 4 MiB, a layer of it 128 KiB
  std::uint32_t blocks = 128;                               // 4K tokens
  std::uint32_t rows = 512;
  std::uint32_t hidden = 4096, qkv = 6144, feed_forward = 14336;
};
constexpr Shape kSmall{2, 2, 16, 4, 32, 64, 96, 128};

struct Movement {
  Bench& bench;
  Shape shape;
  std::unique_ptr<BlockPool> pool;
  HostMemory host;
  std::vector<SlotId> slots{};

  double bytes() const { return static_cast<double>(host.size()); }
  std::uint64_t block_bytes() const { return pool->groups()[0].block_bytes; }
  std::uint64_t slice_bytes() const { return pool->groups()[0].layer_slice_bytes; }
  std::span<std::byte> at(std::uint32_t block, LayerRange layers) const {
    return {host.data() + block * block_bytes() + layers.begin * slice_bytes(),
            (layers.end - layers.begin) * slice_bytes()};
  }

  void load(LayerRange layers) const {
    std::vector<LoadPiece> pieces;
    for (std::uint32_t block = 0; block < shape.blocks; ++block) {
      pieces.push_back({slots[block], at(block, layers)});
    }
    pool->load(0, layers, pieces, BytesHeld::kUntilCopied);
  }
  void load_by_layer() const {
    for (std::uint32_t i = 0; i < shape.layers; ++i) load({i, i + 1});
  }
  void save() const {
    std::vector<SavePiece> pieces;
    for (std::uint32_t block = 0; block < shape.blocks; ++block) {
      pieces.push_back({slots[block], at(block, {0, shape.layers})});
    }
    pool->save(0, {0, shape.layers}, pieces, BytesHeld::kUntilCopied);
  }
  void stage() const {
    for (std::uint32_t i = 0; i < shape.layers; ++i) {
      for (std::uint32_t block = 0; block < shape.blocks; ++block) {
        const LoadPiece piece{slots[block], at(block, {i, i + 1})};
        pool->load(0, {i, i + 1}, {&piece, 1}, BytesHeld::kDuringCall);
      }
    }
  }
};

Result<Movement> make_movement(Bench& bench) {
  const Shape shape = bench.small() ? kSmall : Shape{};
  LayerGroup group;
  for (std::uint32_t i = 0; i < shape.layers; ++i) group.layers.push_back(i);
  Movement made{.bench = bench, .shape = shape, .pool = nullptr, .host = {}};
  LOCI_ASSIGN_OR_RETURN(made.pool,
                        BlockPool::make(bench.device(), {std::move(group)}, shape.kv_heads, shape.head_dim));
  // Twice as many slots, so that blocks lie apart.
  LOCI_RETURN_IF_ERROR(made.pool->allocate(0, 2 * shape.blocks));
  LOCI_ASSIGN_OR_RETURN(made.host, made.pool->allocate_host(made.block_bytes() * shape.blocks));
  std::fill_n(made.host.data(), made.host.size(), std::byte{1});
  for (std::uint32_t block = 0; block < shape.blocks; ++block) {
    made.slots.emplace_back((block * 7 + 3) % shape.blocks * 2);
  }
  return made;
}

void bench_links(const Movement& movement) {
  Bench& bench = movement.bench;
  const BenchLimits& limits = bench.limits();
  const auto add = [&](const char* name, const std::function<void()>& work, double limit, double bar,
                       const char* note) {
    if (!bench.wanted(name)) return;
    const double gbps = movement.bytes() / bench.measure_wall_ms(work) / 1e6;
    bench.table().add(
        {.name = name, .measured = gbps, .unit = "GB/s", .limit = limit, .bar = bar, .note = note});
  };
  add(
      "movement/host to device, whole blocks", [&] { movement.load({0, movement.shape.layers}); },
      limits.to_device_gbps, kLinkBar, "4 MiB each, scattered");
  add(
      "movement/host to device, layer by layer", [&] { movement.load_by_layer(); }, limits.to_device_gbps,
      kLinkBar, "128 KiB each, 128 in a call");
  add(
      "movement/host to device, staged", [&] { movement.stage(); }, limits.to_device_gbps, 0,
      "slices in any memory, as from the disk: one thread copies them to pinned buffers first");
  add(
      "movement/device to host, whole blocks", [&] { movement.save(); }, limits.to_host_gbps, kLinkBar,
      "4 MiB each, scattered");
  add(
      "movement/both directions at once",
      [&] {
        movement.load_by_layer();
        movement.save();
      },
      std::min(limits.to_device_gbps, limits.to_host_gbps), 0,
      "of each, where movers have saves wait (Pensieve: 18-20 % less)");
}

// The products of a Llama-8B-shaped pass; one layer's matrices serve all (they are more than caches hold).
class Compute {
 public:
  static Result<Compute> make(Bench& bench, const Shape& shape) {
    Compute made;
    LOCI_ASSIGN_OR_RETURN(made.products_,
                          Products::make(bench.device(), ElementType::kBFloat16, false, shape.rows));
    made.rows_ = shape.rows;
    const std::uint32_t widest = std::max({shape.qkv, 2 * shape.feed_forward, shape.hidden});
    for (const auto& [rows, columns] : {std::pair(shape.qkv, shape.hidden),
                                        {shape.hidden, shape.hidden},
                                        {2 * shape.feed_forward, shape.hidden},
                                        {shape.hidden, shape.feed_forward}}) {
      made.matrices_.push_back(matrix_of_elements(
          ElementType::kBFloat16, rows, columns,
          bench.random_values(std::uint64_t{rows} * columns, ElementType::kBFloat16, rows)));
    }
    made.input_ = bench.random_values(std::uint64_t{shape.rows} * widest, ElementType::kBFloat16, 1);
    made.output_ = bench.memory(MemoryKind::kDevice, std::uint64_t{shape.rows} * widest * 2);
    return made;
  }
  // `before_attention`: what the layer waits for once keys and values of its own rows are there.
  void layer(Stream& stream, const std::function<void()>& before_attention) const {
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (i == 1) before_attention();
      products_->multiply({.matrix = &matrices_[i],
                           .input = input_.data(),
                           .input_stride = matrices_[i].columns,
                           .rows = rows_,
                           .output = output_.data(),
                           .output_stride = matrices_[i].rows},
                          stream);
    }
  }

 private:
  std::unique_ptr<Products> products_;
  std::vector<DeviceMatrix> matrices_;
  Memory input_, output_;
  std::uint32_t rows_ = 0;
};

// A mover's thread queues loads layer by layer while the pass is issued that waits for each.
Status bench_overlap(const Movement& movement) {
  constexpr const char* kName = "movement/512 tokens computed while 4K load";
  Bench& bench = movement.bench;
  if (!bench.wanted(kName)) return {};
  LOCI_ASSIGN_OR_RETURN(const Compute compute, Compute::make(bench, movement.shape));
  const auto pass = [&](bool waits) {
    for (std::uint32_t layer = 0; layer < movement.shape.layers; ++layer) {
      compute.layer(bench.stream(), [&] {
        if (waits) movement.pool->wait_layer(layer, movement.slots, bench.stream());
      });
    }
  };
  const double alone_ms = bench.measure_wall_ms([&] { pass(false); });
  const double load_ms = bench.measure_wall_ms([&] { movement.load_by_layer(); });
  const auto beside = [&](bool waits) {
    return bench.measure_wall_ms([&] {
      for (const SlotId slot : movement.slots) movement.pool->begin_fill(0, slot);
      const std::jthread mover([&] { movement.load_by_layer(); });
      pass(waits);
    });
  };
  const double both_ms = beside(true);
  const bool link_bound = load_ms > alone_ms;
  bench.table().add(
      {.name = kName,
       .measured = both_ms,
       .unit = "ms",
       .limit = std::max(alone_ms, load_ms),
       .bar = kOverlapBar,
       .better = BenchRow::Better::kLower,
       .note = fmt::format("products of 32 layers alone {:.2f} ms, loads alone {:.2f} ms: {}", alone_ms,
                           load_ms, link_bound ? "the link is the limit" : "computing is the limit")});
  bench.table().add({.name = "movement/512 tokens computed while 4K load, no layer waits",
                     .measured = beside(false),
                     .unit = "ms",
                     .limit = std::max(alone_ms, load_ms),
                     .better = BenchRow::Better::kLower,
                     .note = "what the two cost each other by running at once"});
  return {};
}

void measure_movement(Bench& bench) {
  const Result<Movement> movement = make_movement(bench);
  const Status status = !movement.ok() ? movement.status() : [&] {
    bench_links(*movement);
    return bench_overlap(*movement);
  }();
  if (!status.ok()) bench.table().fail("movement/", status);
}

}  // namespace

void bench_movement(Bench& bench) {
  bench.attempt("movement/", [&] { measure_movement(bench); });
}

}  // namespace loci::cuda
