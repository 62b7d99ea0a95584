// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/products/products.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/library_products.h"
#include "loci/compute/cuda/products/packing.h"
#include "loci/compute/cuda/products/product_kernels.h"
#include "loci/compute/cuda/products/product_rows.h"

namespace loci::cuda {
namespace {

// From here on the library is asked, where it may be: fewer rows are at the memory's rate in own kernels.
constexpr std::uint32_t kLibraryRows = 33;
// And from here on for packed matrices, which are decoded for it: writing and reading 16 bits a weight takes
// as long as own kernels lose against the library's in so many rows (docs/cuda-products.md).
constexpr std::uint32_t kDecodedRows = 256, kDecodedRowsOfWarpgroups = 640;
// From here on warpgroups take packed matrices, where they may.
constexpr std::uint32_t kWarpgroupRows = 33;
constexpr std::uint64_t kDecodedBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kDecodedBytesSimulated = 64 << 10;  // tests see matrices in slices
// Room for activations that are arranged for warpgroups: 9 tiles of the widest matrix of a Llama 8B, 128 rows
// each.
constexpr std::uint64_t kArrangedBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kArrangedBytesSimulated = 256 << 10;  // and rows in slices

std::uint64_t element_bytes(ProductOutput mode) { return mode == ProductOutput::kElements ? 2 : 4; }

// Which kernel takes a product, and whether its segments are spread over blocks.
struct Choice {
  void (*launch)(const ProductParams&, Stream&) = nullptr;
  std::uint32_t tile_rows = kFewRows;
  bool spread = false;
  bool warpgroups = false;
};

// `arranged_bytes_max`: room for activations that are arranged for warpgroups; 0 where there are none, or
// sums may not be in an order of theirs.
Choice choose(const ProductLaunchers& launchers, const ProductParams& p, std::uint32_t multiprocessors,
              std::uint64_t arranged_bytes_max) {
  // Of a mixture the rows of one expert on average.
  const std::uint32_t rows = p.offsets == nullptr ? p.rows : ceil_div(p.rows, p.experts);
  if (rows <= kFewRows) return {launchers.few, kFewRows, false};
  const std::uint32_t big_tiles = ceil_div(p.outputs, kBigTileRows);
  const auto tiles = [&](std::uint32_t tile_rows) { return big_tiles * row_tiles(p, tile_rows); };
  if (rows >= kWarpgroupRows && launchers.warpgroup64 != nullptr &&
      arranged_bytes(p.columns, rows > 64 ? 128 : 64) <= arranged_bytes_max) {
    return {rows > 64 ? launchers.warpgroup128 : launchers.warpgroup64, rows > 64 ? 128u : 64u, false, true};
  }
  if (rows > 64 && tiles(128) >= multiprocessors * 3 / 4) return {launchers.many128, 128};
  Choice choice = rows <= 16   ? Choice{launchers.many16, 16}
                  : rows <= 32 ? Choice{launchers.many32, 32}
                               : Choice{launchers.many64, 64};
  choice.spread = p.offsets == nullptr && p.segments > 1 && tiles(choice.tile_rows) < multiprocessors;
  return choice;
}

class DeviceProducts : public Products {
 public:
  DeviceProducts(const Device& device, ElementType type, std::unique_ptr<LibraryProducts> library,
                 std::string about, Memory workspace, Memory decoded, Memory arranged)
      : multiprocessors_(device.properties().multiprocessors),
        type_(type),
        library_(std::move(library)),
        about_(std::move(about)),
        workspace_(std::move(workspace)),
        decoded_(std::move(decoded)),
        arranged_(std::move(arranged)) {}

  void multiply(const ProductArguments& arguments, Stream& stream) override {
    for (const MatrixPart& part : arguments.matrix->parts) {
      ProductParams params = params_of(arguments, part);
      if (params.outputs == 0) continue;
      if (is_packed(part.format) && library_ != nullptr && params.rows >= decoded_rows() &&
          decoded_.size() > 0) {
        multiply_decoded(params, part.format, stream);
      } else if (is_packed(part.format) || !multiply_by_library(params, stream)) {
        run(params, part.format, stream);
      }
    }
  }

  void multiply_experts(const ProductArguments& arguments, const std::uint32_t* offsets,
                        std::uint32_t experts, Stream& stream) override {
    LOCI_CHECK(experts == arguments.matrix->experts, "a mixture's matrix was loaded for its experts");
    LOCI_CHECK(arguments.first_output == 0 && arguments.outputs == 0, "experts make all their outputs");
    for (const MatrixPart& part : arguments.matrix->parts) {
      ProductParams params = params_of(arguments, part);
      params.offsets = offsets;
      params.experts = experts;
      run(params, part.format, stream);
    }
  }

  const std::string& library() const override { return about_; }

 private:
  std::uint32_t decoded_rows() const {
    return arranged_.size() > 0 ? kDecodedRowsOfWarpgroups : kDecodedRows;
  }

  // The part's share of a product: it may have no outputs.
  ProductParams params_of(const ProductArguments& arguments, const MatrixPart& part) const {
    const DeviceMatrix& matrix = *arguments.matrix;
    LOCI_CHECK(arguments.input_stride % 8 == 0 && arguments.input_stride >= matrix.columns,
               "rows of inputs are aligned and as wide as the matrix");
    LOCI_CHECK(reinterpret_cast<std::uintptr_t>(arguments.input) % 16 == 0, "inputs are aligned to 16 bytes");
    const std::uint32_t part_end = part.first_output + part.outputs;
    const std::uint32_t begin = std::max(part.first_output, arguments.first_output);
    const std::uint32_t end =
        arguments.outputs == 0 ? part_end : std::min(part_end, arguments.first_output + arguments.outputs);
    ProductParams p;
    if (begin >= end) return p;  // of no outputs
    const std::uint32_t before = begin - part.first_output;
    p.weights = matrix.data.data() + part.data_offset;
    if (is_packed(part.format)) {
      LOCI_CHECK(before % kTileRows == 0, "outputs of packed weights begin with a tile");
      p.tile_bytes = tile_bytes(part.format, matrix.columns);
      p.weights += before / kTileRows * p.tile_bytes;
    } else {
      p.weights += std::uint64_t{before} * matrix.columns * 2;
    }
    p.outputs = end - begin;
    p.columns = matrix.columns;
    p.segments = segments_of(matrix.columns);
    p.mode = arguments.mode;
    p.input = arguments.input;
    p.input_stride = arguments.input_stride;
    p.rows = arguments.rows;
    p.output = static_cast<std::byte*>(arguments.output) +
               (begin - arguments.first_output) * element_bytes(arguments.mode);
    p.output_stride = arguments.output_stride;
    p.bias_stride = matrix.outputs();
    p.bias = arguments.bias == nullptr ? nullptr : arguments.bias + begin;
    return p;
  }

  // Of elements. False where the library is not there, has no kernel, or would be slower.
  bool multiply_by_library(const ProductParams& p, Stream& stream) const {
    if (library_ == nullptr || p.rows < kLibraryRows) return false;
    LibraryProduct product;
    product.weights = p.weights;
    product.outputs = p.outputs;
    product.columns = p.columns;
    product.input = p.input;
    product.input_stride = p.input_stride;
    product.rows = p.rows;
    product.output = p.output;
    product.output_stride = p.output_stride;
    product.floats = p.mode != ProductOutput::kElements;
    product.added = p.mode == ProductOutput::kAdded || p.bias != nullptr;
    if (!library_->serves(product)) return false;
    if (p.bias != nullptr) {
      place_bias({p.output, p.output_stride, p.rows, p.outputs, p.bias, p.mode, type_}, stream);
    }
    // A refusal, whatever the library's status: its kernels also fail to start for lack of memory. If the
    // device is lost, the next operation is told so.
    if (Status failed = library_->multiply(product, stream); !failed.ok())
      stream.note_failure(std::move(failed));
    return true;
  }

  // Very many rows: packed weights are decoded for the library, in slices of outputs that the workspace
  // holds, all about as large.
  void multiply_decoded(const ProductParams& p, MatrixFormat format, Stream& stream) const {
    const ProductLaunchers& launchers = product_launchers(format, type_);
    const std::uint64_t most = decoded_.size() / (std::uint64_t{p.columns} * 2) / kBigTileRows * kBigTileRows;
    if (most == 0) {
      ProductParams all = p;
      return run(all, format, stream);
    }
    const std::uint32_t slices = ceil_div(p.outputs, most);
    const std::uint32_t each = ceil_div(p.outputs, std::uint64_t{slices} * kBigTileRows) * kBigTileRows;
    for (std::uint32_t first = 0; first < p.outputs; first += each) {
      ProductParams slice = p;
      slice.outputs = std::min(each, p.outputs - first);
      slice.output = static_cast<std::byte*>(p.output) + first * element_bytes(p.mode);
      slice.bias = p.bias == nullptr ? nullptr : p.bias + first;
      const std::byte* packed = p.weights + first / kTileRows * p.tile_bytes;
      launchers.decode({packed, p.tile_bytes, slice.outputs, p.columns, decoded_.data()}, stream);
      slice.weights = decoded_.data();
      if (multiply_by_library(slice, stream)) continue;
      slice.weights = packed;
      run(slice, format, stream);
    }
  }

  void run(ProductParams& p, MatrixFormat format, Stream& stream) const {
    if (p.rows == 0) return;
    const Choice choice = choose(product_launchers(format, type_), p, multiprocessors_, arranged_.size());
    if (choice.warpgroups) return run_warpgroups(p, choice, stream);
    if (choice.spread) {
      const std::uint64_t tiles = ceil_div(p.outputs, kBigTileRows) * row_tiles(p, choice.tile_rows);
      const std::uint64_t bytes = tiles * p.segments * choice.tile_rows * kBigTileRows * sizeof(float);
      LOCI_CHECK(bytes <= workspace_.size(), "the workspace holds the partial sums of all spread launches");
      p.partials = workspace_.as<float>();
    }
    choice.launch(p, stream);
  }

  // As many tiles of rows at a time as their activations have room for. A block has a multiprocessor for
  // itself: segments are as many as make that many blocks.
  void run_warpgroups(ProductParams& p, const Choice& choice, Stream& stream) const {
    const std::uint32_t all = row_tiles(p, choice.tile_rows);
    const std::uint64_t room = arranged_.size() / arranged_bytes(p.columns, choice.tile_rows);
    p.arranged = arranged_.data();
    // Weights are read once for each slice of tiles; so all are alike.
    const auto slices = static_cast<std::uint32_t>((all + room - 1) / room);
    const std::uint32_t each = ceil_div(all, std::max(slices, 1u));
    for (p.first_tile = 0; p.first_tile < all; p.first_tile += p.tiles) {
      p.tiles = std::min(each, all - p.first_tile);
      const std::uint32_t outputs = warpgroup_outputs(choice.tile_rows);
      const std::uint32_t tiles = p.tiles * ceil_div(p.outputs, outputs);
      const std::uint32_t most = std::min(kSegmentsMax, padded_columns(p.columns) / kStepColumns);
      p.segments = p.offsets == nullptr ? std::clamp(multiprocessors_ / tiles, 1u, most) : 1;
      p.partials = nullptr;
      if (p.segments > 1) {
        const std::uint64_t blocks = std::uint64_t{tiles} * p.segments;
        LOCI_CHECK(blocks * choice.tile_rows * outputs * sizeof(float) <= workspace_.size(),
                   "the workspace holds the partial sums of all spread launches");
        p.partials = workspace_.as<float>();
      }
      choice.launch(p, stream);
    }
  }

  const std::uint32_t multiprocessors_;
  const ElementType type_;
  const std::unique_ptr<LibraryProducts> library_;
  const std::string about_;
  const Memory workspace_;  // partial sums
  const Memory decoded_;    // elements of a packed matrix's slice; none: they are not decoded
  const Memory arranged_;   // activations for warpgroups; none: their kernels are not used
};

}  // namespace

const ProductLaunchers& product_launchers(MatrixFormat format, ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  switch (format) {
    case MatrixFormat::kHalf:
      LOCI_CHECK(type == ElementType::kHalf, "a matrix of elements is of the model's element type");
      return kHalfProducts;
    case MatrixFormat::kBFloat16:
      LOCI_CHECK(type == ElementType::kBFloat16, "a matrix of elements is of the model's element type");
      return kBFloat16Products;
    case MatrixFormat::kQ8_0: return kQ8_0Products[index];
    case MatrixFormat::kQ4_0: return kQ4_0Products[index];
    case MatrixFormat::kQ4_1: return kQ4_1Products[index];
    case MatrixFormat::kQ4_K: return kQ4_KProducts[index];
    case MatrixFormat::kQ6_K: break;
  }
  return kQ6_KProducts[index];
}

Result<std::unique_ptr<Products>> Products::make(const Device& device, ElementType type, bool deterministic,
                                                 std::uint32_t rows_max) {
  std::string about = "own kernels: deterministic";
  std::unique_ptr<LibraryProducts> library;
  if (!deterministic) library = LibraryProducts::open(device, type, about);
  // A launch is spread where its tiles are fewer than multiprocessors: of 64 rows each, at most. (Those of
  // warpgroups have at most as many blocks as there are multiprocessors, of 64 KiB of sums.)
  const std::uint64_t tiles = device.properties().multiprocessors;
  const std::uint64_t tile_rows = rows_max <= 16 ? 16 : 64;
  const std::uint64_t partials = tiles * kSegmentsMax * tile_rows * kBigTileRows * sizeof(float);
  LOCI_ASSIGN_OR_RETURN(Memory workspace,
                        Memory::allocate(device, MemoryKind::kDevice, partials, "the workspace of products"));
  const bool warpgroups = !deterministic && has_warpgroups(device.properties());
  Memory decoded;
  if (library != nullptr && rows_max >= (warpgroups ? kDecodedRowsOfWarpgroups : kDecodedRows)) {
    const std::uint64_t bytes = device.properties().simulated ? kDecodedBytesSimulated : kDecodedBytes;
    LOCI_ASSIGN_OR_RETURN(decoded, Memory::allocate(device, MemoryKind::kDevice, bytes, "decoded weights"));
  }
  Memory arranged;
  if (warpgroups && rows_max >= kWarpgroupRows) {
    const std::uint64_t bytes = device.properties().simulated ? kArrangedBytesSimulated : kArrangedBytes;
    LOCI_ASSIGN_OR_RETURN(arranged, Memory::allocate(device, MemoryKind::kDevice, bytes, "arranged rows"));
  }
  return std::unique_ptr<Products>(std::make_unique<DeviceProducts>(device, type, std::move(library),
                                                                    std::move(about), std::move(workspace),
                                                                    std::move(decoded), std::move(arranged)));
}

}  // namespace loci::cuda
