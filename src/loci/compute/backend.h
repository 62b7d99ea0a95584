// SPDX-License-Identifier: Apache-2.0
// The seam between the engine and a processor. A backend owns the memory of its blocks, computes passes over
// them (pass.h says what blocks, groups, slots, spans and passes are) and moves their state; it decides
// nothing.
//
// There is one way to compute: begin() and finish(). On a device that computes while its caller does
// something else, several passes may have begun and not finished. There is one way to move state: load() and
// save(), for layers of several blocks. The bytes on the host's side are held during the call, or until the
// copy is done. A begin_fill() before a load makes passes wait for the block layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/copy_bytes.h"
#include "loci/base/host_memory.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/pass.h"

namespace loci {

// How a block's state depends on the position at which it was computed. This decides how much of it a
// truncated sequence can keep (AttentionStore §3.4).
enum class Positions : std::uint8_t {
  // Not at all (no positions, or ALiBi, which adds to scores): the state serves any position as it is.
  kNone,
  kRotary,    // its keys were rotated: rotate_keys() moves it to another position
  kAbsolute,  // entirely (positions are added to embeddings): it must be computed again
};

// The host's side of a copy between host memory and a slot: layers of one block's part, one after another.
// The copy reads or fills these bytes.
struct LoadPiece {
  SlotId slot;
  std::span<const std::byte> bytes;
  // How to copy where the device is the host's memory; other devices ignore it.
  CacheUse use = CacheUse::kFill;
};
struct SavePiece {
  SlotId slot;
  std::span<std::byte> bytes;
};

// How long a copy has its pieces' bytes.
enum class BytesHeld : std::uint8_t {
  // The copy is done with the bytes when the call returns. They may lie in any memory.
  kDuringCall,
  // The copy uses the bytes until Backend::after_loads() or after_saves() reports that it is done. Until then
  // nobody else may write them, nor read those of a save. They must come from allocate_host().
  kUntilCopied,
};

// Reports that copies are done; not ok: the device is lost.
using Copied = std::function<void(const Status&)>;

struct BackendInfo {
  std::string name;         // "cpu"
  std::string description;  // for people: instruction set, threads
  std::string layout;       // of a block; movers convert between different layouts
  std::uint32_t layers = 0;
  std::uint32_t vocabulary = 0;
  // 1 to kLayerGroupsMax groups, the one with the longest window first.
  std::vector<LayerGroup> groups;
  std::uint64_t block_bytes = 0;       // a block's parts in all groups
  std::uint64_t hidden_row_bytes = 0;  // one token's captured hidden states in one layer
  std::uint64_t weight_bytes = 0;      // of the weights that this backend holds
  // Memory of the device that was free when the backend had been made, for blocks; 0: it has none of its own.
  std::uint64_t free_bytes = 0;
  bool projects = false;  // it has load_hidden() and project()
  Positions positions = Positions::kAbsolute;
  bool samples = false;            // it has Span::sampling
  std::uint32_t passes_ahead = 0;  // how many further passes may begin before one has ended
  // Above 0: a copy with BytesHeld::kUntilCopied goes on after its call, and copies of fewer bytes than this
  // waste the link. 0: every copy is done when its call returns, so copies are best small.
  std::uint64_t copy_bytes = 0;
};

// Implementations: cpu/cpu_backend.h, cuda/cuda_backend.h; for tests backend_testing.h.
class Backend {
 public:
  virtual ~Backend() = default;

  // Never changes.
  virtual const BackendInfo& info() const = 0;
  // Ok, or kUnavailable for good once the device is lost; from then on all spans end with that error.
  // Thread-safe.
  virtual Status health() const = 0;

  // --- memory ---

  // Makes the group's pool of `count` slots, zeroed; called once for each group, before the first pass.
  // Errors: kResourceExhausted naming the size.
  virtual Status allocate_blocks(std::uint32_t group, std::uint32_t count) = 0;
  // Says that nobody uses the slot before it is written again. If the pool lies in the machine's own memory,
  // the slot's memory goes back to the system meanwhile; else nothing happens. Thread-safe.
  virtual void give_back(std::uint32_t group, SlotId slot) = 0;
  // Memory for copies with BytesHeld::kUntilCopied. Errors: kResourceExhausted. Thread-safe.
  virtual Result<HostMemory> allocate_host(std::uint64_t bytes) = 0;

  // --- computing; from one thread ---

  // Begins a pass. At most 1 + info().passes_ahead passes may have begun and not ended. A pass that breaks
  // the rules of pass.h (no tokens, a slot outside the pool, a table that is too short) is a bug of the
  // caller and aborts.
  virtual void begin(Pass pass) = 0;
  // Waits for the end of the pass that began first. `results` gets one entry for each span.
  virtual void finish(std::vector<SpanResult>& results) = 0;
  // What the pass that finish() ended last has projected; nothing if info().projects is false.
  virtual Projected projected() const = 0;
  // Runs task(0) .. task(count - 1), each once, on threads of the backend, in any order, and returns when all
  // have ended. It is for work on a pass's logits. A backend may run passes on the same threads, so do not
  // call it between begin() and finish() unless info().passes_ahead > 0.
  virtual void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) = 0;

  // --- moving; thread-safe, also while a pass runs ---
  // `layers` counts within the group. While a slot is loaded nobody else reads or writes it, except passes
  // that wait for the load. Saves take only what passes that have ended, or loads, have written
  // (docs/cuda-movement.md says how the core ensures that).

  // Says that the slot's layers are about to arrive: passes that read the slot wait for each layer.
  virtual void begin_fill(std::uint32_t group, SlotId slot) = 0;
  // Copies the same layers of several blocks into their slots, and tells waiting passes that they have come.
  // A slot's layers must be loaded in order; after the last one the slot is whole.
  virtual void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
                    BytesHeld held) = 0;
  // Loads one layer of a block as hidden states (HCache §3.2) instead of keys and values; only if
  // info().projects. `rows`: the block's rows, [token][hidden_row_bytes], as Span::capture got them; they
  // take fewer bytes than the layer's slice (hidden_form.h). `position`: of the block's first token. The rows
  // lie in the slot until somebody reads the layer. The first pass that reads it projects them to keys and
  // values as a part of itself, on all threads; a save() or a view() projects them too. The result has the
  // same bits as computing. Holds `rows` during the call.
  virtual void load_hidden(std::uint32_t group, SlotId slot, std::uint32_t layer, std::uint32_t position,
                           std::span<const std::byte> rows) = 0;
  // Says that the layers that have not arrived will not come: spans of the running pass that read them end
  // with kDataLoss.
  virtual void fill_failed(std::uint32_t group, SlotId slot) = 0;
  // Copies the same layers of several blocks out of their slots.
  virtual void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
                    BytesHeld held) const = 0;
  // The memory of some layers of a block, with the bytes that save() would copy; empty: the host cannot read
  // it. Only of layers that are whole. Layers that lie there as hidden states are projected first, on this
  // thread, so ask for few at a time. The bytes stay as they are while the slot holds the block.
  virtual std::span<const std::byte> view(std::uint32_t /*group*/, SlotId /*slot*/,
                                          LayerRange /*layers*/) const {
    return {};
  }
  // `done` is called once, when all loads (or all saves) that were begun before this call are done. It is
  // called before this returns, or later on a thread of the backend, which it must not block. Calls of each
  // kind come in order.
  virtual void after_loads(Copied done) const = 0;
  virtual void after_saves(Copied done) const = 0;

  // --- one layer's slice of a block in host memory; thread-safe, on the caller's thread ---
  // `layer` is one of the model; a slice is aligned to 16 bytes.

  // Moves the slice's keys to positions that are `delta` later; below zero: earlier. Each rotation rounds, so
  // rotate keys once, as they were computed. A delta of 0 changes nothing, nor does any delta if positions
  // are kNone. If they are kAbsolute a call is a bug.
  virtual void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const = 0;
  // Zeroes the tokens from `first` on. If a block is not full, its slot holds there what earlier users left,
  // which must not be saved.
  virtual void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const = 0;
  // Makes of `rows` the slice that a pass would have written; only if info().projects. `rows` and `position`
  // are as for load_hidden().
  virtual void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
                       std::span<std::byte> slice) const = 0;
};

// Computes one pass and waits for its end. No other pass may be running.
inline void run_pass(Backend& backend, Pass pass, std::vector<SpanResult>& results) {
  backend.begin(std::move(pass));
  backend.finish(results);
}

}  // namespace loci
