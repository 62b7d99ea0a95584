// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/hardware.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace loci::sim {
namespace {

Nanos nanos(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

// A curve at powers of two; straight between them, and in proportion beyond the last.
Nanos at(const std::vector<Nanos>& curve, std::uint64_t count) {
  if (count == 0) return 0;
  const auto power = static_cast<std::size_t>(std::bit_width(count) - 1);
  const double share = static_cast<double>(count);
  if (power + 1 >= curve.size())
    return std::llround(static_cast<double>(curve.back()) * share / std::exp2(curve.size() - 1));
  const double low = static_cast<double>(curve[power]), high = static_cast<double>(curve[power + 1]);
  return std::llround(low + (high - low) * (share / std::exp2(power) - 1));
}

ModelShape model(const char* name, double billions, std::uint32_t layers, std::uint32_t width,
                 std::uint32_t state_width, std::uint32_t context) {
  return {name, billions * 1e9, billions * 2e9, layers, width, state_width, 2, context};
}

}  // namespace

PassModel::PassModel(const ModelShape& model, const Machine& machine) : model_(model), machine_(machine) {
  if (machine.measured) measured_.emplace(*machine.measured);
}

double PassModel::attention(const SpanShape& span) const {
  if (measured_ && machine_.passes.measured() && span.count == 1)
    return static_cast<double>(at(machine_.passes.decode_attention, span.position)) * 1e-9;
  if (measured_) {
    const Nanos tokens = measured_->curves().token * span.count;
    return static_cast<double>(measured_->compute(span.position, span.count) - tokens) * 1e-9;
  }
  const double before = span.position, count = span.count;
  const double flops = 4.0 * count * (before + count / 2) * model_.width * model_.layers;
  const double bytes = (before + count) * static_cast<double>(model_.token_bytes());
  return std::max(flops / machine_.attention_flops, bytes / machine_.memory_bandwidth);
}

double PassModel::common(std::uint64_t rows) const {
  const double fixed = static_cast<double>(machine_.fixed) * 1e-9;
  if (measured_) {
    const Nanos pass = machine_.passes.measured() ? at(machine_.passes.rows, rows)
                                                  : measured_->pass(static_cast<std::uint32_t>(rows), 0);
    return fixed + static_cast<double>(pass) * 1e-9;
  }
  const double products = 2.0 * model_.parameters * static_cast<double>(rows) / machine_.product_flops;
  return fixed + std::max(products, model_.weight_bytes / machine_.memory_bandwidth);
}

double PassModel::logits(std::uint64_t rows) const {
  if (!measured_ || !machine_.passes.measured()) return 0;
  return static_cast<double>(at(machine_.passes.logits, rows)) * 1e-9;
}

PassTime PassModel::time(std::span<const SpanShape> spans) const {
  std::array<std::uint64_t, 2> rows{}, sampled{};  // of prompts, of decodes
  std::array<double, 2> seconds{};
  for (const SpanShape& span : spans) {
    rows[span.decode] += span.count;
    sampled[span.decode] += span.sampled;
    seconds[span.decode] += attention(span);
  }
  const std::uint64_t all = rows[0] + rows[1];
  if (all == 0) return {};
  const auto part = [this](std::uint64_t mine, std::uint64_t both, const auto& cost) {
    if (mine == 0) return 0.0;
    if (machine_.split_passes) return cost(mine);
    return cost(both) * static_cast<double>(mine) / static_cast<double>(both);
  };
  for (std::size_t kind = 0; kind < 2; ++kind) {
    seconds[kind] += part(rows[kind], all, [this](std::uint64_t count) { return common(count); });
    seconds[kind] +=
        part(sampled[kind], sampled[0] + sampled[1], [this](std::uint64_t count) { return logits(count); });
  }
  return {nanos(seconds[0]), nanos(seconds[1])};
}

Nanos PassModel::work(const SpanShape& span) const {
  const double products = measured_ ? static_cast<double>(measured_->curves().token) * span.count * 1e-9
                                    : 2.0 * model_.parameters * span.count / machine_.product_flops;
  return nanos(products + attention(span));
}

Nanos PassModel::prefill(std::uint32_t before, std::uint32_t count) const {
  const SpanShape span{before, count, false};
  return time({&span, 1}).total();
}

Nanos PassModel::projecting(std::uint64_t tokens) const {
  if (measured_) return measured_->curves().projection * static_cast<Nanos>(tokens);
  const double flops = machine_.projection_flops > 0 ? machine_.projection_flops : machine_.product_flops;
  return nanos(4.0 * model_.width * model_.state_width * model_.layers * static_cast<double>(tokens) / flops);
}

Nanos PassModel::capturing(std::uint64_t rows) const {
  const auto copied = [&](const LinkCost& link) {
    const double bytes = static_cast<double>(rows * model_.hidden_token_bytes());
    return bytes / static_cast<double>(std::max<std::uint64_t>(link.bytes_per_second, 1));
  };
  if (machine_.hidden_saving == HiddenSaving::kTwoStages) return nanos(copied(machine_.host_save));
  return nanos(copied(machine_.disk_write)) + static_cast<Nanos>(rows * model_.layers) * machine_.small_write;
}

CostCurves PassModel::curves() const {
  CostCurves curves = measured_ ? measured_->curves() : computed_curves();
  // A measured machine's links are its profile's, but for those that the scenario names.
  curves.host_load = machine_.host_load;
  curves.host_save = machine_.host_save;
  curves.disk_read = machine_.disk_read;
  curves.disk_write = machine_.disk_write;
  return curves;
}

CostCurves PassModel::computed_curves() const {
  CostCurves curves;
  curves.token = nanos(2.0 * model_.parameters / machine_.product_flops);
  curves.attention.clear();
  for (std::uint32_t before = 1; before <= (1u << 20); before *= 2) {
    const double flops = 4.0 * before * model_.width * model_.layers;
    curves.attention.push_back(nanos(flops / machine_.attention_flops));
  }
  curves.projection = std::max<Nanos>(1, projecting(1));
  curves.host_charge = curves.disk_charge = 0;  // the machine's links take nothing of its processor
  curves.pass = machine_.fixed + nanos(model_.weight_bytes / machine_.memory_bandwidth);
  return curves;
}

// Peaks: HCache table 2 (TFLOP/s, GB/s of the links); memory bandwidths are the vendor's, as no paper has
// them. AttentionStore §2.4: 26 GB/s over PCIe 4, below 5 GB/s from its disks.
std::span<const MachinePreset> machine_presets() {
  static constexpr std::uint64_t kGiga = 1'000'000'000;
  static constexpr std::array<MachinePreset, 9> kPresets = {{
      {"a100-80g", 312e12, 2.0e12, 80e9, 26 * kGiga, 5 * kGiga, 3 * kGiga},
      {"a100-40g", 312e12, 1.56e12, 40e9, 32 * kGiga, 6'900'000'000, 4 * kGiga},
      {"a30", 165e12, 0.93e12, 24e9, 32 * kGiga, 6'900'000'000, 4 * kGiga},
      {"4090", 330e12, 1.0e12, 24e9, 32 * kGiga, 6'900'000'000, 4 * kGiga},
      {"l20", 120e12, 0.86e12, 48e9, 32 * kGiga, 6'900'000'000, 4 * kGiga},
      {"h800", 990e12, 3.35e12, 80e9, 64 * kGiga, 6'900'000'000, 4 * kGiga},
      {"3090", 71e12, 0.94e12, 24e9, 12 * kGiga, 2 * kGiga, 1 * kGiga},
      {"h100-80g", 990e12, 3.35e12, 80e9, 55 * kGiga, 6'900'000'000, 4 * kGiga},
      {"laptop", 0.3e12, 40e9, 16e9, 10 * kGiga, 1 * kGiga, kGiga / 2},
  }};
  return kPresets;
}

std::span<const ModelShape> model_presets() {
  static const std::vector<ModelShape> kPresets = {
      model("opt-13b", 12.9, 40, 5120, 5120, 16384),
      model("opt-30b", 30, 48, 7168, 7168, 16384),
      model("opt-66b", 66, 64, 9216, 9216, 16384),
      model("llama2-7b", 6.74, 32, 4096, 4096, 4096),
      model("llama2-13b", 13.0, 40, 5120, 5120, 4096),
      model("llama2-13b-10heads", 12.0, 40, 5120, 1280, 16384),
      model("llama-65b", 65.2, 80, 8192, 8192, 2048),
      model("llama2-70b", 69, 80, 8192, 1024, 4096),
      model("falcon-40b", 41, 60, 8192, 512, 2048),
      model("mistral-7b", 7.24, 32, 4096, 1024, 32768),
      model("wizardcoder-15b", 15.5, 40, 6144, 128, 8192),
      model("smollm2-135m", 0.135, 30, 576, 192, 8192),
  };
  return kPresets;
}

Machine machine_of(const MachinePreset& preset, std::uint32_t processors, const Efficiency& efficiency) {
  Machine machine;
  machine.name = preset.name;
  machine.memory_bytes = preset.memory_bytes * processors;
  machine.product_flops = preset.peak_flops * processors * efficiency.products;
  machine.attention_flops = preset.peak_flops * processors * efficiency.attention;
  machine.projection_flops = preset.peak_flops * processors * efficiency.projection;
  machine.memory_bandwidth = preset.memory_bandwidth * processors * efficiency.memory;
  machine.host_load = machine.host_save = {20'000, preset.link_bandwidth};
  machine.disk_read = {100'000, preset.disk_read};
  machine.disk_write = {100'000, preset.disk_write};
  return machine;
}

}  // namespace loci::sim
