// SPDX-License-Identifier: Apache-2.0
// Modelled hardware: how long a pass takes, and how long moving state takes. Plain values and closed forms,
// no clock.
//
//   pass = fixed + max(weights / memory, 2 parameters rows / products) + sum over spans of their attention
//   attention of a span = max(4 count (context before it + count / 2) width layers / attention,
//                             state that it reads / memory)
//
// Here products, attention and memory are the rates that the machine reaches in practice. A machine with
// several processors counts as one with the sum of their rates.
//
// A machine that was measured takes what its profile says:
//
//   pass = fixed + rows (all rows) + logits (rows that are sampled) + sum over spans of their attention
//
// Here the attention of decodes has a curve of its own. A rough profile has no such curves; then
// pass = fixed + max(a pass of one row, the rows' tokens) + attention.
//
// Hidden states (HCache §3.2, §4.2.2). A pass projects those that it reads, and copies out those that it
// makes:
//
//   projecting = tokens layers 2 width 2 state width / projection
//   capturing  = rows layers row bytes / the link to host memory
//   a pass with both = max(pass + projecting, capturing)
//
// Where they are projected on arrival (Projecting), that lengthens whichever pass runs meanwhile. Where they
// are saved directly, capturing is a write to the disk for each row and layer, one after another:
//   rows layers (small write + row bytes / disk).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/policy/cost_model.h"
#include "loci/server/profile/profile_file.h"

namespace loci::sim {

// The properties of a model that determine its costs.
struct ModelShape {
  std::string name;
  double parameters = 0;    // that one token uses
  double weight_bytes = 0;  // that one pass reads
  std::uint32_t layers = 1;
  std::uint32_t width = 1;        // of the queries of all heads: heads * size of one
  std::uint32_t state_width = 1;  // of keys (and of values): KV heads * size of one
  std::uint32_t state_bytes = 2;  // of an element
  std::uint32_t context_tokens = 4096;
  std::uint64_t hidden_row_bytes = 0;  // of a token's hidden state in a layer; 0: `width` such elements
  std::uint64_t token_bytes() const { return std::uint64_t{2} * layers * state_width * state_bytes; }
  std::uint64_t hidden_token_bytes() const {
    return layers * (hidden_row_bytes > 0 ? hidden_row_bytes : std::uint64_t{width} * state_bytes);
  }
};

// How the hidden states that a pass makes leave the device.
enum class HiddenSaving : std::uint8_t {
  kTwoStages,  // those of a layer in one copy to host memory; whole blocks are written from there
  kDirect,     // each row is written to the disk before the pass goes on (HCache §6.3.3, "DirectIO")
};

// When blocks that come as hidden states are projected.
enum class Projecting : std::uint8_t {
  kInPasses,  // in the first pass that reads them, as the CPU backend does
  // Each layer as soon as it has come, before all that the processor does meanwhile: HCache's restoration
  // phase (§5), of which no backend has the like.
  kOnArrival,
};

// The rates that a machine reaches in practice, not its peak rates.
struct Machine {
  std::string name;
  double memory_bytes = 0;         // of the device; 0: not known
  double product_flops = 1e12;     // of products with weights, a second
  double attention_flops = 1e12;   // of attention, a second
  double memory_bandwidth = 1e11;  // bytes a second
  Nanos fixed = 0;                 // of a pass: starting kernels, sampling
  double projection_flops = 0;     // of products with hidden states; 0: as of all products
  bool split_passes = false;       // prompts and decodes are passes of their own, one after the other
  HiddenSaving hidden_saving = HiddenSaving::kTwoStages;
  Projecting projecting = Projecting::kInPasses;
  Nanos small_write = 30'000;  // what a row takes that is written directly, beside its bytes
  LinkCost host_load, host_save, disk_read, disk_write;
  double duplex_percent = 81;  // of a direction's rate that is left while the other direction is busy
  bool disk_shared = true;     // one read or write at a time; else reads run beside writes
  // Measured costs (`loci profile`) that replace the rates above, but not the links.
  std::optional<CostCurves> measured = std::nullopt;
  PassCurves passes;                                       // where `measured` is; empty: not measured
  std::uint64_t network_bytes_per_second = 1'000'000'000;  // what an instance sends to others
};

// Tokens [position, position + count) of a sequence, computed in a pass.
struct SpanShape {
  std::uint32_t position = 0;
  std::uint32_t count = 0;
  bool decode = false;
  bool sampled = false;  // its last row's logits are wanted
};

struct PassTime {
  Nanos prompts = 0;  // cost of the spans of prompts
  Nanos decodes = 0;  // cost of the spans of decodes
  Nanos total() const { return prompts + decodes; }
};

// Immutable; thread-safe. If prompts and decodes share a pass, the common part of its cost (weights, fixed,
// products) is divided between them in proportion to their rows, and that of logits to what is sampled.
class PassModel {
 public:
  PassModel(const ModelShape& model, const Machine& machine);
  const ModelShape& shape() const { return model_; }
  PassTime time(std::span<const SpanShape> spans) const;
  // What these tokens take without what a pass takes whatever is in it: products and attention.
  Nanos work(const SpanShape& span) const;
  // The time of one pass over `count` tokens of one prompt after `before` tokens.
  Nanos prefill(std::uint32_t before, std::uint32_t count) const;
  // What a pass takes more that projects the hidden states of so many tokens. 0: not measured.
  Nanos projecting(std::uint64_t tokens) const;
  // A pass that copies the hidden states of so many rows out takes no less.
  Nanos capturing(std::uint64_t rows) const;
  // The same costs as curves, as a core would have measured them on this machine.
  CostCurves curves() const;

 private:
  CostCurves computed_curves() const;  // without links
  double attention(const SpanShape& span) const;
  double common(std::uint64_t rows) const;
  double logits(std::uint64_t rows) const;
  ModelShape model_;
  Machine machine_;
  std::optional<CostModel> measured_;
};

// The models and machines of the papers. A machine's rates are the peak rates of one processor; `efficiency`
// and the number of processors turn them into a Machine.
struct MachinePreset {
  std::string_view name;
  double peak_flops;             // fp16, dense, of one processor
  double memory_bandwidth;       // of one
  double memory_bytes;           // of one
  std::uint64_t link_bandwidth;  // bytes a second, each way, all processors together
  std::uint64_t disk_read, disk_write;
};
struct Efficiency {
  double products = 0.6;   // of peak_flops
  double attention = 0.4;  // of peak_flops
  double memory = 0.8;     // of memory_bandwidth
  double projection = 0;   // of peak_flops; 0: as products
};
std::span<const MachinePreset> machine_presets();
std::span<const ModelShape> model_presets();
Machine machine_of(const MachinePreset& preset, std::uint32_t processors, const Efficiency& efficiency);

}  // namespace loci::sim
