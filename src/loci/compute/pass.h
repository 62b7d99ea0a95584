// SPDX-License-Identifier: Apache-2.0
// What a backend (backend.h) computes: passes over the tokens of sequences, whose state lies in blocks.
//
// A *block* is kBlockTokens consecutive tokens of one sequence, at positions that are a multiple of
// kBlockTokens. Layers whose attention spans the same tokens form a *group*. The keys and values of a block's
// tokens in a group's layers are the block's *part* in that group; it lies in a *slot* of the group's own
// pool. So layers that attend to a window need slots only for the window. A *span* is a run of tokens of one
// sequence over a range of layers; a *pass* is a list of spans that go through the layers together. A decode
// step is a span of one token, a prompt chunk a span of many; nothing here treats them differently.
//
// In each layer all spans write their K and V before any attention. So a span may attend to tokens that
// another span of its pass writes (a hole that is recomputed before a new prompt).
//
// Exactness. On the CPU the bits of a token's K, V and logits depend only on the model and on the tokens
// before it: never on the batch, the chunking, threads, the instruction set, or on whether the context's
// state was computed or loaded. docs/numerics.md says how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/slot_table.h"

namespace loci {

inline constexpr std::uint32_t kBlockTokens = 32;
inline constexpr std::uint32_t kLayerGroupsMax = 4;
// Groups of layers: bit g is set for group g.
using GroupSet = std::uint8_t;
inline constexpr GroupSet kEveryGroup = (1u << kLayerGroupsMax) - 1;
constexpr bool has_group(GroupSet groups, std::uint32_t group) { return (groups >> group & 1) != 0; }
inline constexpr SlotId kNoSlot{UINT32_MAX};

// The layers that share a pool of slots. compute/layer_groups.h divides a model's layers into groups.
struct LayerGroup {
  std::vector<std::uint32_t> layers;    // ascending; each layer of the model is in one group
  std::uint32_t window = 0;             // a token sees itself and the window - 1 before it; 0: all before it
  std::uint64_t layer_slice_bytes = 0;  // one layer of one block's part, contiguous
  std::uint64_t block_bytes = 0;        // one block's part: layers * layer_slice_bytes, contiguous
};

// The first position that a token at `position` sees.
constexpr std::uint32_t first_visible(std::uint32_t window, std::uint32_t position) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

// Layers [begin, end), counted in the model for a span, in the group for Backend::load() and save(). Spans
// start at layer 0. A span that ends below the model's last layer recomputes the state of its layers only,
// and has no logits.
struct LayerRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

enum class LogitsWanted : std::uint8_t { kNone, kLast, kAll };

// How a backend that samples (BackendInfo::samples) draws a token from a span's last logits, which then never
// leave the device. Temperature, top-k, top-p, min-p and the draw have the order and meaning of
// engine/run/sampler.h.
struct DeviceSampling {
  float temperature = 0;    // 0: the greatest logit, the lowest id among equals
  std::uint32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  std::uint64_t seed = 0;
  // How many tokens of the request were drawn before. Seed and draw together give the random number.
  std::uint64_t draw = 0;
};

// Where a sequence's state in one group is: blocks[i] holds positions [i, i + 1) * kBlockTokens. The table
// reaches at least to the span's last token. Blocks that end at or before first_visible() of the span's first
// token are never read and may be kNoSlot.
struct BlockTable {
  SharedSlots blocks;
  // The span writes state from this position on. Before it the state is there already, perhaps in a slot that
  // others read, and is only read. This can include positions of the span itself, whose state another group
  // lacks.
  std::uint32_t write_from = 0;
};

struct Span {
  std::vector<TokenId> tokens;  // at least one
  std::uint32_t position = 0;   // of tokens[0] in its sequence
  LayerRange layers;
  std::vector<BlockTable> tables;  // one a group, in BackendInfo's order
  LogitsWanted logits = LogitsWanted::kNone;
  // Only with kLast: the device samples a token, and SpanResult has no logits.
  std::optional<DeviceSampling> sampling;
  // The token is the one that this span of the pass before samples; it has not reached the host. Only for
  // spans of one token, whose tokens[0] is then ignored.
  std::optional<std::uint32_t> token_of;
  // Where to store the input of each layer's QKV projection, in the form that the projection consumes (H of
  // HCache §4). Empty, or for each layer of the range BackendInfo::hidden_row_bytes * tokens.size() bytes of
  // Backend::allocate_host(), into which a device copies by itself.
  std::vector<std::span<std::byte>> capture;
};

// Copies the state of the first `tokens` tokens of one block's part to the beginning of another's in the same
// group, for a sequence that parts from a shared one inside a block. It is done before the pass's first
// layer.
struct BlockCopy {
  SlotId from;
  SlotId to;
  std::uint32_t tokens = 0;
  std::uint32_t group = 0;
};

inline constexpr Nanos kWaitsForEver = std::numeric_limits<Nanos>::max();

struct Pass {
  OperationId id;
  std::vector<BlockCopy> copies;
  std::vector<Span> spans;
  // How long the pass waits for arriving blocks, in all. Spans whose blocks come later end with kDataLoss;
  // the others go on.
  Nanos patience = kWaitsForEver;
};

struct SpanResult {
  // If it is kDataLoss (a block that the span read failed to arrive) or kUnavailable (the device is lost),
  // nothing that the span computed may be used.
  Status status;
  // [rows, vocabulary], float32: one row (kLast), one row for each token (kAll) or none. Valid until the
  // backend's next finish().
  std::span<const float> logits;
  std::optional<TokenId> sample;  // present if Span::sampling asked for one and the status is ok
};

// What a pass made of blocks that came as hidden states.
struct Projected {
  std::uint64_t slices = 0;  // layers of blocks
  Nanos took = 0;            // while all threads projected
  friend bool operator==(const Projected&, const Projected&) = default;
};

}  // namespace loci
