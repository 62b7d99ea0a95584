// SPDX-License-Identifier: Apache-2.0
// The seam between the engine and a processor. A backend owns the memory of its blocks and computes
// passes over them; it decides nothing. CPU: cpu/cpu_backend.h.
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
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/clock.h"
#include "loci/base/host_memory.h"
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

// Layers [begin, end). Spans start at layer 0: a span that ends below the model's last layer recomputes
// the state of its first layers only, and has no logits.
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
  // kDataLoss: a block that the span read failed to arrive; nothing it computed may be used.
  Status status;
  // [rows, vocabulary], float32; one row (kLast), one a token (kAll) or none. Valid until the
  // backend's next run() or finish().
  std::span<const float> logits;
  std::optional<TokenId> sample;  // where Span::sampling asked for one, and the status is ok
};

// What a block's state knows of the position it was computed at, and so what a truncated sequence can keep of
// it (AttentionStore §3.4).
enum class Positions : std::uint8_t {
  // Nothing (no positions at all, or ALiBi, which adds to scores): it serves any position as it is.
  kNone,
  kRotary,    // its keys were rotated: rotate_keys() takes it to another position
  kAbsolute,  // everything (positions are added to embeddings): it is computed anew
};

// Some layers of one block's part, one after another in host memory, and the slot that they go to or come
// from.
struct LoadPiece {
  SlotId slot;
  std::span<const std::byte> bytes;
};
struct SavePiece {
  SlotId slot;
  std::span<std::byte> bytes;
};

// Tells that copies are done; not ok: the device is lost.
using Copied = std::function<void(const Status&)>;

struct BackendInfo {
  std::string name;         // "cpu"
  std::string description;  // for people: instruction set, threads
  std::string layout;       // of a block; movers convert between unlike ones
  std::uint32_t layers = 0;
  std::uint32_t vocabulary = 0;
  // 1 to kLayerGroupsMax, the one that sees the most first.
  std::vector<LayerGroup> groups;
  std::uint64_t block_bytes = 0;       // a block's parts in all groups
  std::uint64_t hidden_row_bytes = 0;  // one token's captured H in one layer
  std::uint64_t weight_bytes = 0;      // held by this backend
  bool projects = false;               // write_hidden(), project()
  Positions positions = Positions::kAbsolute;
  bool samples = false;            // Span::sampling
  std::uint32_t passes_ahead = 0;  // how many more may begin while one has not ended
  // Above 0: copies between host memory and slots go on behind the calls that begin them, and those of less
  // than so many bytes waste the link. 0: they are made while their caller waits, and are best small.
  std::uint64_t copy_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;

  // Makes the group's pool of `count` slots, zeroed; called once for each group, before the first pass.
  // Errors: kResourceExhausted naming the size.
  virtual Status allocate_blocks(std::uint32_t group, std::uint32_t count) = 0;

  // Nobody uses the slot, and nobody will before it is written again: where its memory is the machine's it
  // goes back to the system meanwhile. Elsewhere nothing happens. Thread-safe.
  virtual void give_back(std::uint32_t /*group*/, SlotId /*slot*/) {}

  // Computes one pass; returns when it has ended. One at a time, from any one thread. `results` gets
  // one entry a span. A pass that breaks this header's rules (no tokens, a slot outside the pool, a
  // table that is too short) is a bug of the caller and aborts.
  virtual void run(const Pass& pass, std::vector<SpanResult>& results) = 0;

  // The two halves of run(): at most 1 + info().passes_ahead passes have begun and not ended; they end in
  // the order in which they began. What finish() gave is valid until the next finish(). From one thread.
  virtual void begin(Pass pass) { begun_ = std::move(pass); }
  virtual void finish(std::vector<SpanResult>& results) {
    const Pass pass = std::move(begun_);
    run(pass, results);
  }

  // kUnavailable, for good, once the device is lost: from then on all spans end so. Thread-safe.
  virtual Status health() const { return {}; }

  // Runs task(0) .. task(count - 1), each once, on the threads that compute passes, in any order; for what
  // is to be done with a pass's logits. Between passes, by the thread that runs them.
  virtual void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) {
    for (std::uint32_t i = 0; i < count; ++i) task(i);
  }

  // --- for movers; thread-safe, also while a pass runs ---
  // `layer` is one of the model; its group's slot is meant. What is written to a slot nobody else reads or
  // writes, but passes that wait for it; what is read from a slot, passes that have ended have written
  // (docs/cuda-movement.md says how the core holds to that).

  // Memory that load_layers() and save_layers() copy from and to. Errors: kResourceExhausted.
  virtual Result<HostMemory> allocate_host(std::uint64_t bytes) { return HostMemory::map(bytes); }

  // The layers of the slot are about to arrive: passes that read it wait for each layer.
  virtual void begin_fill(std::uint32_t group, SlotId slot) = 0;
  // Copies one layer's slice into the slot, or out of it, from or to any memory. Sizes are the group's
  // layer_slice_bytes. The slice is the caller's again, or filled, when it returns.
  virtual void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice) = 0;
  virtual void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const = 0;
  // The group's layers up to this one have arrived, or are on their way: passes may count on them. They
  // arrive in order. After the last one the slot is whole.
  virtual void layer_arrived(SlotId slot, std::uint32_t layer) = 0;
  // Brings layers of several blocks, and lets them arrive; takes layers of several blocks out. `layers`
  // counts within the group. The pieces' bytes are allocate_host()'s, and stay as they are until the copies
  // are done.
  virtual void load_layers(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces) {
    const std::uint64_t slice_bytes = info().groups[group].layer_slice_bytes;
    for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
      const std::uint32_t layer = info().groups[group].layers[i];
      for (const LoadPiece& piece : pieces) {
        write_layer(piece.slot, layer, piece.bytes.subspan((i - layers.begin) * slice_bytes, slice_bytes));
        layer_arrived(piece.slot, layer);
      }
    }
  }
  virtual void save_layers(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) const {
    const std::uint64_t slice_bytes = info().groups[group].layer_slice_bytes;
    for (const SavePiece& piece : pieces) {
      for (std::uint32_t i = layers.begin; i < layers.end; ++i) {
        read_layer(piece.slot, info().groups[group].layers[i],
                   piece.bytes.subspan((i - layers.begin) * slice_bytes, slice_bytes));
      }
    }
  }
  // `done` is called once, when all that its caller has begun by then is in place: loads (also
  // write_layer()'s), or saves. Before this returns, or later, on a thread of the backend that it must not
  // hold up; calls of each kind are in order.
  virtual void after_loads(Copied done) const { done({}); }
  virtual void after_saves(Copied done) const { done({}); }
  // Takes one layer's slice of a block (outside the pool, aligned to 16 bytes) to the positions `delta` later
  // ones, before zero: earlier ones. What is rotated twice is rounded twice, so rotate what was computed,
  // once. A delta of 0 changes nothing; so does any delta where positions are kNone. Where they are
  // kAbsolute a call is a bug.
  virtual void rotate_keys(std::uint32_t /*layer*/, std::int32_t /*delta*/,
                           std::span<std::byte> /*slice*/) const {
    LOCI_CHECK(info().positions == Positions::kNone, "this state cannot be moved to other positions");
  }

  // In one layer's slice of a block (outside the pool) what the tokens from `first` on left becomes zeros: in
  // the slot of a block that is not full there is what others left there, and that is nobody's to keep.
  virtual void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const = 0;

  // --- hidden states (HCache §3.2), where info().projects ---
  // `rows`: one layer's rows of a whole block, [token][hidden_row_bytes], as Span::capture got them, less
  // than a slice of the layer (hidden_form.h); `position`: of the block's first token.

  // In place of write_layer() and layer_arrived(). The rows lie in the slot until somebody reads the layer:
  // the first pass that does projects them to keys and values, on all threads, as part of itself; else
  // read_layer(). What is read then has the bits of computing.
  virtual void write_hidden(SlotId /*slot*/, std::uint32_t /*layer*/, std::uint32_t /*position*/,
                            std::span<const std::byte> /*rows*/) {
    LOCI_CHECK(info().projects, "this backend takes no hidden states");
  }
  // The slice that a pass would have written. (On the caller's thread alone.)
  virtual void project(std::uint32_t /*layer*/, std::uint32_t /*position*/,
                       std::span<const std::byte> /*rows*/, std::span<std::byte> /*slice*/) const {
    LOCI_CHECK(info().projects, "this backend takes no hidden states");
  }

  // What has not arrived will not: spans of the running pass that read it end with kDataLoss.
  virtual void fill_failed(std::uint32_t group, SlotId slot) = 0;

 private:
  Pass begun_;  // of backends that compute while their caller waits
};

}  // namespace loci
