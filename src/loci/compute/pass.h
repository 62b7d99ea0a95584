// SPDX-License-Identifier: Apache-2.0
// What a backend (backend.h) computes: passes over the tokens of sequences, whose state lies in blocks.
//
// A *block* is kBlockTokens consecutive tokens of one sequence, at positions that are a multiple of
// kBlockTokens. Layers whose attention spans the same tokens form a *group*; what a block's tokens left
// in a group's layers (keys and values) is the block's *part* in that group, and lies in a *slot* of the
// group's own pool. So layers that attend to a window need slots for the window alone. A *span* is a run
// of tokens of one sequence over a range of layers; a *pass* is a list of spans that go through the
// layers together. A decode step is a span of one token, a prompt chunk a span of many; nothing here
// knows the one from the other.
//
// Within each layer all writes of K and V of all spans precede all attention, so a span may attend to
// what another span of its pass writes (a hole that is recomputed below a new prompt).
//
// Exactness. On the CPU the bits of K, V and logits of a token depend on the model and on the tokens
// before it alone: never on the batch, the chunking, threads, instruction set, or on how the context's
// state came to be where it is. docs/numerics.md says how.
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

namespace loci {

inline constexpr std::uint32_t kBlockTokens = 32;
inline constexpr std::uint32_t kLayerGroupsMax = 4;
inline constexpr SlotId kNoSlot{UINT32_MAX};

// Layers of one pool of slots. compute/layer_groups.h says which a model has.
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

// Layers [begin, end): of the model in a span, of the group in Backend::load() and save(). Spans start at
// layer 0: a span that ends below the model's last layer recomputes the state of its first layers only, and
// has no logits.
struct LayerRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

enum class LogitsWanted : std::uint8_t { kNone, kLast, kAll };

// What a backend that samples (BackendInfo::samples) does with a span's last logits, which then stay where
// they are: temperature, top-k, top-p, min-p, draw, as engine/run/sampler.h orders and means them.
struct DeviceSampling {
  float temperature = 0;    // 0: the greatest logit, the lowest id among equals
  std::uint32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  std::uint64_t seed = 0;
  // How many tokens of the request were drawn before: with the seed, the random number.
  std::uint64_t draw = 0;
};

// Where a sequence's state in one group is: blocks[i] holds positions [i, i + 1) * kBlockTokens. It
// reaches at least to the span's last token. Blocks that end at or before first_visible() of the span's
// first token may be kNoSlot; they are never read.
struct BlockTable {
  std::vector<SlotId> blocks;
  // The span writes its positions from here on and reads those before, also its own: their state is
  // there already (in a slot that others may be reading), while another group lacks it.
  std::uint32_t write_from = 0;
};

struct Span {
  std::vector<TokenId> tokens;  // at least one
  std::uint32_t position = 0;   // of tokens[0] in its sequence
  LayerRange layers;
  std::vector<BlockTable> tables;  // one a group, in BackendInfo's order
  LogitsWanted logits = LogitsWanted::kNone;
  // With kLast: the token is sampled there, and SpanResult has no logits.
  std::optional<DeviceSampling> sampling;
  // tokens[0] is what this span of the pass that was begun before this one samples: it has not reached the
  // host. Of spans of one token alone; tokens[0] says nothing.
  std::optional<std::uint32_t> token_of;
  // Where the input of each layer's QKV projection is stored, in the form the projection consumes (H of
  // HCache §4): empty, or one buffer of BackendInfo::hidden_row_bytes * tokens.size() for each layer of
  // the range.
  std::vector<std::span<std::byte>> capture;
};

// The first `tokens` tokens' state of one block's part becomes the beginning of another's in the same
// group (a sequence that parts from a shared one inside a block). Done before the pass's first layer.
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
  // How long the pass waits, all its waits together, for blocks that arrive: spans whose blocks come later
  // end with kDataLoss, the others go on.
  Nanos patience = kWaitsForEver;
};

struct SpanResult {
  // Nothing that the span computed may be used where it is kDataLoss (a block that it read failed to arrive)
  // or kUnavailable (the device is lost).
  Status status;
  // [rows, vocabulary], float32; one row (kLast), one a token (kAll) or none. Valid until the
  // backend's next finish().
  std::span<const float> logits;
  std::optional<TokenId> sample;  // where Span::sampling asked for one, and the status is ok
};

}  // namespace loci
