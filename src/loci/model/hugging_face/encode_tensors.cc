// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/encode_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <thread>

#include "loci/model/quantize.h"

namespace loci {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kRowsAtOnce = 16;

bool is_layer_matrix(std::string_view name) {
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) return false;
  for (const std::string_view kept : {"norm", "ffn_gate_inp", "sinks"})
    if (name.find(kept) != name.npos) return false;
  return true;
}

bool fits(const TensorPlan& plan, TensorType type) {
  return plan.columns % tensor_type_info(type).block_elements == 0;
}

Result<OwnedBytes> allocate(std::uint64_t bytes, const std::string& name) {
  const std::uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) {
    return resource_exhausted(fmt::format("expected {} bytes of memory for it, found less", bytes), name);
  }
  return OwnedBytes(memory);
}

// Calls `body(row)` for every row, from several threads.
template <class Body>
void for_rows(std::uint64_t rows, unsigned threads, Body body) {
  std::atomic<std::uint64_t> next{0};
  const auto work = [&] {
    for (std::uint64_t begin; (begin = next.fetch_add(kRowsAtOnce)) < rows;)
      for (std::uint64_t row = begin; row < std::min(rows, begin + kRowsAtOnce); ++row) body(row);
  };
  std::vector<std::jthread> others;
  const std::uint64_t useful = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (std::uint64_t i = 1; i < std::min<std::uint64_t>(threads, useful); ++i) others.emplace_back(work);
  work();
}

// Fills `view`, whose type is the one chosen for `plan`. Errors: a value that is not finite.
Status fill(const TensorPlan& plan, const TensorView& view, std::byte* out, unsigned threads) {
  const std::uint64_t row_bytes = view.row_bytes();
  if (view.type == plan.type) {
    for_rows(plan.rows, threads,
             [&](std::uint64_t row) { plan.copy_row(row, {out + row * row_bytes, row_bytes}); });
    return {};
  }
  std::atomic<std::uint64_t> bad_row{UINT64_MAX};
  for_rows(plan.rows, threads, [&](std::uint64_t row) {
    std::vector<float> values(plan.columns);
    plan.decode_row(row, values);
    if (std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
      encode_row(view.type, values, {out + row * row_bytes, row_bytes});
    else
      bad_row = row;
  });
  if (bad_row == UINT64_MAX) return {};
  return invalid_argument(
      fmt::format("expected finite values, found others in row {}: it can't be quantised", bad_row.load()),
      plan.name);
}

// "210 tensors as Q4_0, 1 as Q8_0 (...)"
class Census {
 public:
  void count(const TensorPlan& plan, TensorType made, std::optional<TensorType> wanted) {
    if (!wanted || made == plan.type) return;
    ++by_type_[tensor_type_info(made).name];
    if (is_layer_matrix(plan.name) && made != *wanted)
      fallen_back_.push_back(
          fmt::format("{} ({} columns) as {}", plan.name, plan.columns, tensor_type_info(made).name));
  }
  std::vector<std::string> notes(std::optional<TensorType> wanted) const {
    std::vector<std::string> notes;
    if (!wanted) return notes;
    std::string line;
    for (const auto& [type, count] : by_type_)
      line += fmt::format("{}{} tensors as {}", line.empty() ? "" : ", ", count, type);
    notes.push_back(
        fmt::format("quantised {}; embedding and output are Q8_0, norms, biases and routers stay as "
                    "published",
                    line.empty() ? "nothing" : line));
    if (fallen_back_.empty()) return notes;
    const TensorTypeInfo& info = tensor_type_info(*wanted);
    notes.push_back(fmt::format("{} tensors have rows that are no multiple of {}'s {} elements: {}{}",
                                fallen_back_.size(), info.name, info.block_elements, fallen_back_.front(),
                                fallen_back_.size() > 1 ? ", ..." : ""));
    return notes;
  }

 private:
  std::map<std::string_view, std::uint64_t> by_type_;
  std::vector<std::string> fallen_back_;
};

}  // namespace

void FreeAligned::operator()(std::byte* bytes) const { std::free(bytes); }

TensorType choose_type(const TensorPlan& plan, std::optional<TensorType> quantize) {
  if (!quantize || tensor_type_info(plan.type).block_elements > 1) return plan.type;
  const bool is_table = plan.name == "token_embd.weight" || plan.name == "output.weight";
  if (!is_table && !is_layer_matrix(plan.name)) return plan.type;
  if (const TensorType wanted = is_table ? TensorType::kQ8_0 : *quantize; fits(plan, wanted)) return wanted;
  return fits(plan, TensorType::kQ8_0) ? TensorType::kQ8_0 : TensorType::kF16;
}

Result<MadeTensors> make_tensors(const std::vector<TensorPlan>& plans, std::optional<TensorType> quantize,
                                 unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  MadeTensors made;
  Census census;
  for (const TensorPlan& plan : plans) {
    TensorView view{.name = plan.name,
                    .type = choose_type(plan, quantize),
                    .rows = plan.rows,
                    .columns = plan.columns,
                    .data = nullptr};
    census.count(plan, view.type, quantize);
    if (view.type == plan.type && plan.is_view()) {
      view.data = plan.parts[0].data;
    } else {
      LOCI_ASSIGN_OR_RETURN(OwnedBytes memory, allocate(view.size_bytes(), plan.name));
      view.data = memory.get();
      LOCI_RETURN_IF_ERROR(fill(plan, view, memory.get(), threads));
      made.memory.push_back(std::move(memory));
      for (const TensorView& part : plan.parts) release_mapped({part.data, part.size_bytes()});
      if (!plan.blocks.empty()) release_mapped(plan.blocks);
    }
    made.tensors.push_back(std::move(view));
  }
  made.notes = census.notes(quantize);
  return made;
}

}  // namespace loci
