// SPDX-License-Identifier: Apache-2.0
// Who is told where a server's blocks are, and of which prompts they are: it tells others outside this
// server, which know prompts by names of their text alone (cluster/peers/block_feed.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/memory/block_place.h"
#include "loci/memory/chain_key.h"
#include "loci/policy/cost_model.h"

namespace loci {

// A prompt's text, as who sent it on names it.
struct PromptNames {
  // Of each chunk from the first on, all of the same size; none where the text is not all of the prompt.
  std::vector<std::uint64_t> chunks;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t bytes = 0;          // of the whole text
  std::vector<std::uint64_t> ends;  // of all that the prompt is, by which others go on from it
};

// Thread-safe. Must not block: it is called on threads for which requests wait.
class BlockListener {
 public:
  virtual ~BlockListener() = default;
  // The prompt of that text is so many tokens, and its whole blocks have these keys. Called before the
  // request gets to the core. Prompts that were cut are not told; of one that begins with a public prefix
  // these are keys that no block will have.
  virtual void prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) = 0;
  // Changes since the last call, in the order of the core's steps.
  virtual void moved(std::span<const BlockPlace> places) = 0;
  // What computing and loading costs from now on.
  virtual void costs(const CostCurves& curves) = 0;
};

}  // namespace loci
