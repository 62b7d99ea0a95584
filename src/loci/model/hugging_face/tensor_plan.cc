// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/tensor_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "loci/model/hugging_face/tensor_names.h"

namespace loci {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

constexpr std::uint64_t kMxfp4BlockBytes = 16;  // without its scale

std::optional<TensorType> compute_type(std::string_view dtype) {
  if (dtype == "F32") return TensorType::kF32;
  if (dtype == "F16") return TensorType::kF16;
  if (dtype == "BF16") return TensorType::kBF16;
  return std::nullopt;
}

// A published tensor as a matrix: a vector is one row, outer dimensions are rows.
TensorView view_of(const SafetensorsTensor& tensor, TensorType type) {
  TensorView view{.name = tensor.name, .type = type, .rows = 1, .columns = 1, .data = tensor.bytes.data()};
  if (!tensor.shape.empty()) view.columns = tensor.shape.back();
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) view.rows *= tensor.shape[i];
  return view;
}

Result<std::uint64_t> head_count(const PublishedFamily& family, const Metadata& metadata,
                                 std::string_view name) {
  const std::string key = fmt::format("{}.attention.{}", family.family, name);
  const auto found = metadata.find(key);
  const auto* value = found == metadata.end() ? nullptr : std::get_if<std::uint32_t>(&found->second);
  if (value == nullptr || *value == 0)
    return invalid_argument("expected a number of heads, which a fused tensor is divided by", key);
  return std::uint64_t{*value};
}

// Which published row becomes row i of [all queries, all keys, all values].
Result<std::vector<std::uint32_t>> ungroup(std::uint64_t rows, std::uint64_t heads, std::uint64_t kv_heads,
                                           const std::string& published) {
  const std::uint64_t parts = heads + 2 * kv_heads;
  if (heads % kv_heads != 0 || rows % parts != 0 || rows > UINT32_MAX) {
    return invalid_argument(fmt::format("expected rows for {} query heads and {} key/value heads, found {}",
                                        heads, kv_heads, rows),
                            published);
  }
  const std::uint64_t head_dim = rows / parts, queries = heads / kv_heads;
  std::vector<std::uint32_t> order;
  order.reserve(rows);
  // Groups lie one after the other: `queries` heads, then a key and a value.
  const auto add_head = [&](std::uint64_t group, std::uint64_t place) {
    const std::uint64_t first = (group * (queries + 2) + place) * head_dim;
    for (std::uint64_t i = 0; i < head_dim; ++i) order.push_back(static_cast<std::uint32_t>(first + i));
  };
  for (std::uint64_t head = 0; head < heads; ++head) add_head(head / queries, head % queries);
  for (std::uint64_t place = queries; place < queries + 2; ++place)
    for (std::uint64_t group = 0; group < kv_heads; ++group) add_head(group, place);
  return order;
}

// What one of GGUF's tensors is made of, while names are collected.
struct Collected {
  TensorChange change = TensorChange::kNone;
  std::uint32_t turn = 0;
  std::map<std::uint32_t, TensorView> parts;  // by expert; 0 otherwise
  const SafetensorsTensor* blocks = nullptr;
  const SafetensorsTensor* scales = nullptr;
};

bool is_mxfp4(TensorChange change) {
  return change == TensorChange::kMxfp4 || change == TensorChange::kMxfp4Split;
}

// blocks: [..., rows, blocks of a row, 16], scales: the same without the last.
Result<TensorPlan> finish_mxfp4(const std::string& name, const Collected& collected) {
  const SafetensorsTensor* blocks = collected.blocks;
  const SafetensorsTensor* scales = collected.scales;
  if (blocks == nullptr || scales == nullptr) {
    return invalid_argument("expected blocks and scales of MXFP4, found only one of them",
                            blocks == nullptr ? scales->name : blocks->name);
  }
  std::vector<std::uint64_t> shape = scales->shape;
  shape.push_back(kMxfp4BlockBytes);
  const bool halves = collected.change == TensorChange::kMxfp4Split;
  if (blocks->shape != shape || shape.size() < 3 || (halves && shape[shape.size() - 3] % 2 != 0)) {
    return invalid_argument(fmt::format("expected the shape of {} and 16 more for each, {}found another",
                                        scales->name, halves ? "rows of an even number, " : ""),
                            blocks->name);
  }
  const std::uint64_t row_blocks = scales->shape.back();
  return TensorPlan{.name = name,
                    .type = TensorType::kMXFP4,
                    .rows = scales->bytes.size() / row_blocks / (halves ? 2 : 1),
                    .columns = row_blocks * 2 * kMxfp4BlockBytes,
                    .change = collected.change,
                    .turn = collected.turn,
                    .blocks = blocks->bytes,
                    .scales = scales->bytes};
}

Result<TensorPlan> finish(const std::string& name, const Collected& collected, const PublishedFamily& family,
                          const Metadata& metadata) {
  if (is_mxfp4(collected.change)) return finish_mxfp4(name, collected);
  TensorPlan plan{.name = name, .change = collected.change, .turn = collected.turn};
  const TensorView& first = collected.parts.begin()->second;
  plan.type = collected.change == TensorChange::kAddOne ? TensorType::kF32 : first.type;
  plan.columns = first.columns;
  for (const auto& [expert, view] : collected.parts) {
    if (expert != plan.parts.size()) {
      return invalid_argument(
          fmt::format("expected expert {} before this one, found none", plan.parts.size()), view.name);
    }
    if (view.type != first.type || view.rows != first.rows || view.columns != first.columns) {
      return invalid_argument(fmt::format("expected [{}, {}] of the same dtype as {}, found [{}, {}]",
                                          first.rows, first.columns, first.name, view.rows, view.columns),
                              view.name);
    }
    plan.rows += view.rows;
    plan.parts.push_back(view);
  }
  if (collected.change == TensorChange::kGroupedQkv) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t heads, head_count(family, metadata, "head_count"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t kv_heads, head_count(family, metadata, "head_count_kv"));
    const std::uint64_t rows = first.rows == 1 ? first.columns : first.rows;
    LOCI_ASSIGN_OR_RETURN(plan.order, ungroup(rows, heads, kv_heads, first.name));
  }
  if (collected.change == TensorChange::kSplit) {
    if (first.columns % 2 != 0) {
      return invalid_argument(fmt::format("expected rows of an even number, found {}", first.columns),
                              first.name);
    }
    plan.columns /= 2;
  }
  return plan;
}

// Published: byte i holds elements 2i (low) and 2i + 1. GGUF: elements i (low) and i + 16.
void regroup_mxfp4(const std::byte* published, std::byte* out) {
  const auto element = [&](std::size_t i) {
    return (published[i / 2] >> (i % 2 == 0 ? 0 : 4)) & std::byte{0x0f};
  };
  for (std::size_t i = 0; i < kMxfp4BlockBytes; ++i) out[i] = element(i) | (element(i + 16) << 4);
}

}  // namespace

bool TensorPlan::is_view() const {
  // Kernels read elements in place: they must lie on multiples of their size.
  const std::uint64_t element_bytes = tensor_type_info(type).block_bytes;
  return change == TensorChange::kNone &&
         reinterpret_cast<std::uintptr_t>(parts[0].data) % element_bytes == 0;
}

std::uint64_t TensorPlan::row_bytes() const {
  const TensorTypeInfo& info = tensor_type_info(type);
  return columns / info.block_elements * info.block_bytes;
}

void TensorPlan::copy_row(std::uint64_t index, std::span<std::byte> out) const {
  if (is_mxfp4(change)) {
    const std::uint64_t row_blocks = columns / (2 * kMxfp4BlockBytes);
    const std::uint64_t from = change == TensorChange::kMxfp4Split ? 2 * index + turn : index;
    for (std::uint64_t i = 0; i < row_blocks; ++i) {
      std::byte* block = &out[i * (1 + kMxfp4BlockBytes)];
      block[0] = scales[from * row_blocks + i];
      regroup_mxfp4(&blocks[(from * row_blocks + i) * kMxfp4BlockBytes], block + 1);
    }
    return;
  }
  const TensorView& first = parts[0];
  if (change == TensorChange::kSplit) {
    const std::size_t element_bytes = tensor_type_info(type).block_bytes;
    const std::byte* row = first.row(index).data();
    for (std::size_t i = 0; i < columns; ++i)
      std::memcpy(&out[i * element_bytes], row + (2 * i + turn) * element_bytes, element_bytes);
    return;
  }
  if (change == TensorChange::kAddOne) {
    std::vector<float> values(columns);
    decode_row(index, values);
    std::memcpy(out.data(), values.data(), out.size());
  } else if (!order.empty() && rows == 1) {
    const std::size_t element_bytes = tensor_type_info(type).block_bytes;
    for (std::size_t i = 0; i < order.size(); ++i)
      std::memcpy(&out[i * element_bytes], first.data + order[i] * element_bytes, element_bytes);
  } else {
    const std::uint64_t from = order.empty() ? index : order[index];
    std::memcpy(out.data(), parts[from / first.rows].row(from % first.rows).data(), out.size());
  }
}

void TensorPlan::decode_row(std::uint64_t index, std::span<float> out) const {
  if (change == TensorChange::kAddOne) {
    loci::decode_row(parts[0], index, out);
    for (float& value : out) value += 1;
    return;
  }
  std::vector<std::byte> bytes(row_bytes());
  copy_row(index, bytes);
  loci::decode_row({.name = {}, .type = type, .rows = 1, .columns = columns, .data = bytes.data()}, 0, out);
}

namespace {

// Notes `tensor` as a part of GGUF's `name`, of which it is the `turn`-th where it is split.
Status collect(const SafetensorsTensor& tensor, const MatchedName& match, const std::string& name,
               std::uint32_t turn, std::map<std::string, Collected>& collected, TensorPlans& plans) {
  const TensorChange change = match.entry->change;
  const bool packed = is_mxfp4(change) && tensor.type->name == "U8";
  const std::optional<TensorType> type = compute_type(tensor.type->name);
  const TensorView view = view_of(tensor, type.value_or(TensorType::kF32));
  if (!type && !packed) {
    plans.opaques.push_back({.name = name,
                             .type_number = kNoTypeNumber,
                             .type_name = std::string(tensor.type->name),
                             .rows = view.rows,
                             .columns = view.columns,
                             .size_bytes = tensor.bytes.size()});
    return {};
  }
  Collected& target = collected[name];
  target.change = change;
  target.turn = turn;
  if (is_mxfp4(change)) {
    if (!packed) {
      return invalid_argument(fmt::format("expected MXFP4's bytes (U8), found {}", tensor.type->name),
                              tensor.name);
    }
    (tensor.name.ends_with("_scales") ? target.scales : target.blocks) = &tensor;
    return {};
  }
  const std::uint32_t expert = change == TensorChange::kStack ? match.expert.value_or(0) : 0;
  const auto [place, is_new] = target.parts.emplace(expert, view);
  if (is_new) return {};
  return invalid_argument(
      fmt::format("expected one tensor for {}, found this one and {}", name, place->second.name),
      tensor.name);
}

}  // namespace

Result<TensorPlans> plan_tensors(const Shards& shards, const PublishedFamily& family,
                                 const Metadata& metadata) {
  std::map<std::string, Collected> collected;
  TensorPlans plans;
  for (const SafetensorsTensor& tensor : shards.tensors) {
    const std::optional<MatchedName> match = match_name(tensor.name, family.tensors);
    if (!match) {
      return invalid_argument(
          fmt::format("expected only tensors that models of type {} are known to have, found this one",
                      family.model_type),
          tensor.name);
    }
    if (match->name.empty()) continue;
    LOCI_RETURN_IF_ERROR(collect(tensor, *match, match->name, 0, collected, plans));
    if (!match->second.empty()) {
      LOCI_RETURN_IF_ERROR(collect(tensor, *match, match->second, 1, collected, plans));
    }
  }
  for (const auto& [name, parts] : collected) {
    LOCI_ASSIGN_OR_RETURN(TensorPlan plan, finish(name, parts, family, metadata));
    plans.tensors.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace loci
