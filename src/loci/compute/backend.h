// SPDX-License-Identifier: Apache-2.0
// The seam between the engine and a processor. A backend owns the memory of its blocks, computes passes over
// them (pass.h says what blocks, groups, slots, spans and passes are) and moves their state; it decides
// nothing.
//
// There is one way to compute: begin() and finish(), which many passes may be between on a device that
// computes while its caller does not wait. There is one way to move: load() and save() of layers of several
// blocks, whose host bytes are held during the call or until the copy is done; begin_fill() before a load
// makes passes wait for it layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/host_memory.h"
#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/pass.h"

namespace loci {

// What a block's state knows of the position it was computed at, and so what a truncated sequence can keep of
// it (AttentionStore §3.4).
enum class Positions : std::uint8_t {
  // Nothing (no positions at all, or ALiBi, which adds to scores): it serves any position as it is.
  kNone,
  kRotary,    // its keys were rotated: rotate_keys() takes it to another position
  kAbsolute,  // everything (positions are added to embeddings): it is computed anew
};

// What a copy between host memory and a slot takes or fills on the host's side: layers of one block's part,
// one after another.
struct LoadPiece {
  SlotId slot;
  std::span<const std::byte> bytes;
};
struct SavePiece {
  SlotId slot;
  std::span<std::byte> bytes;
};

// How long a copy has its pieces' bytes.
enum class BytesHeld : std::uint8_t {
  // The copy has taken or filled them when the call returns. They may lie in any memory.
  kDuringCall,
  // Until Backend::after_loads() or after_saves() tells of the copy: till then nobody else writes them, nor
  // reads those of a save. They are allocate_host()'s.
  kUntilCopied,
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
  bool projects = false;               // load_hidden(), project()
  Positions positions = Positions::kAbsolute;
  bool samples = false;            // Span::sampling
  std::uint32_t passes_ahead = 0;  // how many more may begin while one has not ended
  // Above 0: a copy that holds its bytes until it is done goes on after the call that begins it, and one of
  // less than so many bytes wastes the link. 0: every copy is done when its call returns, and is best small.
  std::uint64_t copy_bytes = 0;
};

// Implementations: cpu/cpu_backend.h, cuda/cuda_backend.h; for tests backend_testing.h.
class Backend {
 public:
  virtual ~Backend() = default;

  // The same for ever.
  virtual const BackendInfo& info() const = 0;
  // kUnavailable, for good, once the device is lost: from then on all spans end so. Thread-safe.
  virtual Status health() const = 0;

  // --- memory ---

  // Makes the group's pool of `count` slots, zeroed; called once for each group, before the first pass.
  // Errors: kResourceExhausted naming the size.
  virtual Status allocate_blocks(std::uint32_t group, std::uint32_t count) = 0;
  // Nobody uses the slot, and nobody will before it is written again: where its memory is the machine's it
  // goes back to the system meanwhile. Elsewhere nothing happens. Thread-safe.
  virtual void give_back(std::uint32_t group, SlotId slot) = 0;
  // Memory that copies may hold until they are done. Errors: kResourceExhausted. Thread-safe.
  virtual Result<HostMemory> allocate_host(std::uint64_t bytes) = 0;

  // --- computing; from one thread ---

  // Begins a pass. At most 1 + info().passes_ahead have begun and not ended. A pass that breaks the
  // rules of pass.h (no tokens, a slot outside the pool, a table that is too short) is a bug of the caller
  // and aborts.
  virtual void begin(Pass pass) = 0;
  // Waits for the end of the pass that began first; `results` gets one entry a span.
  virtual void finish(std::vector<SpanResult>& results) = 0;
  // Runs task(0) .. task(count - 1), each once, on threads of the backend, in any order, and returns when all
  // have ended; for what is to be done with a pass's logits. A backend may run passes on the same threads, so
  // not between begin() and finish() unless info().passes_ahead > 0.
  virtual void run_tasks(std::uint32_t count, const std::function<void(std::uint32_t)>& task) = 0;

  // --- moving; thread-safe, also while a pass runs ---
  // `layers` counts within the group. What is loaded into a slot nobody else reads or writes, except passes
  // that wait for it. What is saved from a slot was written by passes that have ended or by loads
  // (docs/cuda-movement.md says how the core holds to that).

  // The layers of the slot are about to arrive: passes that read it wait for each layer.
  virtual void begin_fill(std::uint32_t group, SlotId slot) = 0;
  // Brings the same layers of several blocks, and says to passes that they come. A slot's layers come in
  // order; after the last one the slot is whole.
  virtual void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
                    BytesHeld held) = 0;
  // Brings one layer of a block as hidden states (HCache §3.2) in place of its keys and values; only where
  // info().projects. `rows`: the block's rows, [token][hidden_row_bytes], as Span::capture got them, fewer
  // bytes than the layer's slice (hidden_form.h); `position`: of the block's first token. The rows lie in the
  // slot until somebody reads the layer: the first pass that does projects them to keys and values, on all
  // threads, as part of itself; else save(). What is read then has the bits of computing. Holds `rows` during
  // the call.
  virtual void load_hidden(std::uint32_t group, SlotId slot, std::uint32_t layer, std::uint32_t position,
                           std::span<const std::byte> rows) = 0;
  // What has not arrived will not: spans of the running pass that read it end with kDataLoss.
  virtual void fill_failed(std::uint32_t group, SlotId slot) = 0;
  // Takes the same layers of several blocks.
  virtual void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
                    BytesHeld held) const = 0;
  // `done` is called once, when all loads, or all saves, that the caller has begun by then are done: before
  // this returns, or later, on a thread of the backend that it must not hold up. Calls of each kind are in
  // order.
  virtual void after_loads(Copied done) const = 0;
  virtual void after_saves(Copied done) const = 0;

  // --- one layer's slice of a block in host memory; thread-safe, on the caller's thread ---
  // `layer` is one of the model; a slice is aligned to 16 bytes.

  // Takes the slice's keys to the positions `delta` later, before zero: earlier. What is rotated twice is
  // rounded twice, so rotate what was computed, once. A delta of 0 changes nothing; so does any delta where
  // positions are kNone. Where they are kAbsolute a call is a bug.
  virtual void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const = 0;
  // Zeroes the tokens from `first` on. A slot whose block is not full has there what earlier users left,
  // which must not be kept.
  virtual void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const = 0;
  // Makes the slice that a pass would have written of `rows`, which are as for load_hidden(); only where
  // info().projects.
  virtual void project(std::uint32_t layer, std::uint32_t position, std::span<const std::byte> rows,
                       std::span<std::byte> slice) const = 0;
};

// Computes one pass while its caller waits. No other has begun.
inline void run_pass(Backend& backend, Pass pass, std::vector<SpanResult>& results) {
  backend.begin(std::move(pass));
  backend.finish(results);
}

}  // namespace loci
