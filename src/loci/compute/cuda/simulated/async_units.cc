// SPDX-License-Identifier: Apache-2.0
// By the PTX manual: "mbarrier", "cp.async.bulk.tensor", "wgmma.mma_async" with its matrix descriptors and
// layouts of shared memory.
#include "loci/compute/cuda/simulated/async_units.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/cuda/simt_warpgroup.h"
#include "loci/compute/cuda/simulated/tile_map.h"

namespace loci::cuda::simulated {
namespace {

// Permuted in 128 bytes: bits 4 to 6 of an address, by bits 7 to 9.
std::uint64_t permuted(std::uint64_t address) { return address ^ (address >> 3 & 0x70); }

std::uint64_t field(std::uint64_t tile, int bit) { return (tile >> bit & 0x3fff) * 16; }

float value_of(MmaType type, std::uint16_t bits) {
  return type == MmaType::kHalf ? to_float(Half{bits}) : to_float(BFloat16{bits});
}

}  // namespace

void AsyncUnits::begin(std::byte* shared, std::uint32_t bytes, std::uint32_t warps, std::uint64_t seed,
                       std::function<void(const void*)> wake) {
  shared_ = shared;
  bytes_ = bytes;
  random_ = seed * 2 + 1;
  wake_ = std::move(wake);
  late_ = draw(2) == 0;
  view_.clear();  // as large as shared memory once something uses it
  barriers_.clear();
  copies_.clear();
  warps_.assign(warps, Warp());
}

void AsyncUnits::end(const char* kernel) {
  if (!copies_.empty()) check_failed(kernel, "a block ends while tiles are copied to its shared memory");
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    if (!warps_[w].products.empty()) check_failed(kernel, "a block ends while its products are under way");
    if (warps_[w].issued != warps_[w / 4 * 4].issued)
      check_failed(kernel, "the four warps of a warpgroup issued different products");
  }
}

std::uint64_t AsyncUnits::draw(std::uint64_t below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_ % below;
}

bool AsyncUnits::advance(bool must) {
  if (copies_.empty() || (!must && (late_ || draw(64) != 0))) return false;
  const std::size_t drawn = draw(copies_.size());
  const Copy copy = copies_[drawn];
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(drawn));
  run(copy);
  return true;
}

void AsyncUnits::begin_arrivals(const void* arrivals, std::uint32_t count) {
  LOCI_CHECK(count > 0, "somebody arrives at a barrier");
  barriers_[arrivals] = {count, count, 0, 0};
}

void AsyncUnits::complete(Barrier& barrier, const void* arrivals) {
  if (barrier.left > 0 || barrier.bytes != 0) return;
  barrier.left = barrier.count;
  ++barrier.phase;
  wake_(arrivals);
}

void AsyncUnits::arrive(const void* arrivals, std::uint32_t bytes) {
  const auto at = barriers_.find(arrivals);
  LOCI_CHECK(at != barriers_.end(), "a barrier was begun before threads arrive at it");
  LOCI_CHECK(at->second.left > 0, "no more threads arrive at a barrier than its phase waits for");
  at->second.bytes += bytes;
  --at->second.left;
  complete(at->second, arrivals);
}

bool AsyncUnits::phase_ended(const void* arrivals, unsigned parity) {
  const auto at = barriers_.find(arrivals);
  LOCI_CHECK(at != barriers_.end(), "a barrier was begun before threads wait at it");
  return (at->second.phase & 1) != (parity & 1);
}

void AsyncUnits::copy_tile(std::byte* to, const TileMap& map, int x, int y, int z, const void* arrivals) {
  check_shared(to, 128);
  LOCI_CHECK(address(to) % 1024 == 0, "a tile in shared memory begins at a multiple of 1024");
  LOCI_CHECK(barriers_.count(arrivals) == 1, "a barrier was begun before a tile's bytes arrive there");
  LOCI_CHECK(reinterpret_cast<std::uintptr_t>(&map) % 64 == 0, "a map is aligned");
  copies_.push_back({.to = to, .arrivals = arrivals, .map = map, .x = x, .y = y, .z = z, .from = {}});
}

void AsyncUnits::copy_bytes(std::byte* to, const std::byte* from, std::uint32_t bytes, const void* arrivals) {
  check_shared(to, bytes);
  LOCI_CHECK(bytes > 0 && (address(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 16 == 0,
             "bytes are copied by sixteen");
  LOCI_CHECK(barriers_.count(arrivals) == 1, "a barrier was begun before bytes arrive there");
  copies_.push_back(
      {.to = to, .arrivals = arrivals, .map = {}, .x = 0, .y = 0, .z = 0, .from = {from, bytes}});
}

void AsyncUnits::run(const Copy& copy) {
  if (view_.empty()) view_.assign(bytes_, std::byte{0xff});
  Barrier& barrier = barriers_[copy.arrivals];
  if (copy.from.empty()) {
    run_tile(copy);
    barrier.bytes -= std::int64_t{shape_of(copy.map).box_rows} * 128;
  } else {
    std::memcpy(copy.to, copy.from.data(), copy.from.size());
    publish({copy.to, copy.from.size()});
    barrier.bytes -= static_cast<std::int64_t>(copy.from.size());
  }
  complete(barrier, copy.arrivals);
}

void AsyncUnits::run_tile(const Copy& copy) {
  const TileMapShape shape = shape_of(copy.map);
  const std::uint32_t rows = shape.box_rows;
  LOCI_CHECK(copy.to + std::size_t{rows} * 128 <= shared_ + bytes_,
             "a tile lies in the block's shared memory");
  const auto inside = [](std::int64_t at, std::uint64_t size) {
    return at >= 0 && static_cast<std::uint64_t>(at) < size;
  };
  for (std::uint32_t row = 0; row < rows; ++row) {
    std::uint16_t bits[64] = {};
    const std::int64_t y = copy.y + row;
    if (inside(y, shape.size[1]) && inside(copy.z, shape.size[2])) {
      const std::byte* from = static_cast<const std::byte*>(shape.base) +
                              y * static_cast<std::int64_t>(shape.stride_bytes[0]) +
                              copy.z * static_cast<std::int64_t>(shape.stride_bytes[1]);
      for (std::int64_t i = 0; i < 64; ++i) {
        if (inside(copy.x + i, shape.size[0])) std::memcpy(bits + i, from + (copy.x + i) * 2, 2);
      }
    }
    for (std::uint32_t chunk = 0; chunk < 8; ++chunk) {
      const std::uint64_t to = permuted(address(copy.to) + row * 128 + chunk * 16) - kFirst;
      std::memcpy(shared_ + to, bits + 8 * chunk, 16);
      std::memcpy(view_.data() + to, bits + 8 * chunk, 16);
    }
  }
}

void AsyncUnits::publish(std::span<const std::byte> bytes) {
  if (view_.empty()) view_.assign(bytes_, std::byte{0xff});
  std::memcpy(view_.data() + (bytes.data() - shared_), bytes.data(), bytes.size());
}

void AsyncUnits::spoil(std::span<const std::byte> bytes) {
  if (view_.empty()) return;
  std::byte* seen = view_.data() + (bytes.data() - shared_);
  if (std::memcmp(seen, bytes.data(), bytes.size()) != 0) std::memset(seen, 0xff, bytes.size());
}

void AsyncUnits::begin_products(std::uint32_t warp) { warps_[warp].fenced = true; }

void AsyncUnits::multiply(std::uint32_t warp, void* const (&lanes)[32]) {
  Warp& mine = warps_[warp];
  LOCI_CHECK(mine.fenced, "begin_products() comes before products whose registers were touched");
  Product product;
  for (int l = 0; l < 32; ++l) product.lanes[l] = *static_cast<WarpProduct*>(lanes[l]);
  const WarpProduct& first = product.lanes[0];
  for (const std::uint64_t part : {first.a_tile, first.b_tile, static_cast<std::uint64_t>(first.columns)}) {
    mine.issued = (mine.issued ^ part) * 0x9e3779b97f4a7c15u;
  }
  const auto [at, fresh] = mine.sums.try_emplace(first.d);
  Sums& sums = at->second;
  if (fresh) {
    sums.columns = first.columns;
    for (int l = 0; l < 32; ++l) {
      float* d = product.lanes[l].d;
      sums.d[l] = d;
      sums.values.insert(sums.values.end(), d, d + first.columns / 2);
      std::fill_n(d, first.columns / 2, std::numeric_limits<float>::quiet_NaN());
    }
  }
  LOCI_CHECK(sums.columns == first.columns, "products with the same sums have one shape");
  mine.products.push_back(product);
  if (draw(2) == 0) run(mine, mine.products.size());
}

void AsyncUnits::commit_products(std::uint32_t warp) {
  warps_[warp].groups.push_back(warps_[warp].products.size());
}

void AsyncUnits::wait_products(std::uint32_t warp, std::uint32_t groups) {
  Warp& mine = warps_[warp];
  mine.fenced = false;
  if (mine.groups.size() <= groups) return;
  const std::size_t ended = mine.groups.size() - groups, end = mine.groups[ended - 1];
  run(mine, end);
  // Sums that no product under way has.
  std::map<const float*, Sums> left;
  for (auto& [key, sums] : mine.sums) {
    bool used = false;
    for (std::size_t i = end; i < mine.products.size(); ++i) used |= mine.products[i].lanes[0].d == key;
    if (used) {
      left.emplace(key, std::move(sums));
      continue;
    }
    const std::size_t each = static_cast<std::size_t>(sums.columns) / 2;
    for (std::size_t l = 0; l < 32; ++l) std::memcpy(sums.d[l], sums.values.data() + l * each, each * 4);
  }
  mine.sums.swap(left);
  mine.products.erase(mine.products.begin(), mine.products.begin() + static_cast<std::ptrdiff_t>(end));
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + static_cast<std::ptrdiff_t>(ended));
  for (std::size_t& group : mine.groups) group -= end;
}

void AsyncUnits::run(Warp& warp, std::size_t end) {
  const auto number = static_cast<std::uint32_t>(&warp - warps_.data());
  for (std::size_t i = 0; i < end; ++i) {
    Product& product = warp.products[i];
    if (!std::exchange(product.done, true)) run(number % 4, product, warp.sums.at(product.lanes[0].d));
  }
}

void AsyncUnits::read_chunk(MmaType type, std::uint64_t address, float (&values)[8]) const {
  const std::uint64_t at = permuted(address) - kFirst;
  LOCI_CHECK(at + 16 <= view_.size(), "a product's tile lies in the block's shared memory");
  std::uint16_t bits[8];
  std::memcpy(bits, view_.data() + at, 16);
  for (int i = 0; i < 8; ++i) values[i] = value_of(type, bits[i]);
}

void AsyncUnits::run(std::uint32_t warp_in_group, Product& product, Sums& sums) {
  const WarpProduct& first = product.lanes[0];
  LOCI_CHECK(!view_.empty(), "a product's operands were published");
  LOCI_CHECK(first.b_tile >> 62 == 1 && (first.a != nullptr || first.a_tile >> 62 == 1),
             "tiles are permuted in 128 bytes");
  float a[16][16], b[16][128];
  float chunk[8];
  if (first.a == nullptr) {
    const std::uint64_t start = field(first.a_tile, 0), stride = field(first.a_tile, 32);
    for (std::uint64_t r = 0; r < 16; ++r) {
      const std::uint64_t row = 16 * warp_in_group + r;
      for (std::uint64_t k = 0; k < 16; k += 8) {
        read_chunk(first.type, start + row / 8 * stride + row % 8 * 128 + k * 2, chunk);
        std::copy_n(chunk, 8, a[r] + k);
      }
    }
  } else {
    for (int l = 0; l < 32; ++l) {
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t both = product.lanes[l].a[i / 2];
        a[l / 4 + 8 * (i / 2 % 2)][2 * (l % 4) + 8 * (i / 4) + i % 2] =
            value_of(first.type, static_cast<std::uint16_t>(both >> (16 * (i % 2))));
      }
    }
  }
  const std::uint64_t start = field(first.b_tile, 0), leading = field(first.b_tile, 16),
                      stride = field(first.b_tile, 32);
  const auto columns = static_cast<std::uint64_t>(first.columns);
  if (first.b_rows) {
    for (std::uint64_t n = 0; n < columns; ++n) {
      for (std::uint64_t k = 0; k < 16; k += 8) {
        read_chunk(first.type, start + n / 8 * stride + n % 8 * 128 + k * 2, chunk);
        for (std::uint64_t i = 0; i < 8; ++i) b[k + i][n] = chunk[i];
      }
    }
  } else {
    for (std::uint64_t k = 0; k < 16; ++k) {
      for (std::uint64_t n = 0; n < columns; n += 8) {
        read_chunk(first.type, start + n / 64 * leading + n % 64 * 2 + k / 8 * stride + k % 8 * 128, chunk);
        std::copy_n(chunk, 8, b[k] + n);
      }
    }
  }
  for (std::uint64_t r = 0; r < 16; ++r) {
    float sum[128] = {};
    for (std::uint64_t k = 0; k < 16; ++k) {
      for (std::uint64_t n = 0; n < columns; ++n) sum[n] += a[r][k] * b[k][n];
    }
    for (std::uint64_t n = 0; n < columns; ++n) {
      const std::uint64_t lane = r % 8 * 4 + n % 8 / 2;
      float& to = sums.values[lane * (columns / 2) + n / 8 * 4 + r / 8 * 2 + n % 2];
      to = (first.add ? to : 0.0f) + sum[n];
    }
  }
}

}  // namespace loci::cuda::simulated
