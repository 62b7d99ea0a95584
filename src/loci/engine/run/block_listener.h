// SPDX-License-Identifier: Apache-2.0
// Is told where a server's blocks are and to which prompts they belong. It tells fronts, which know only
// names of the prompts' text (cluster/feed/block_feed.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/memory/block_place.h"
#include "loci/memory/chain_key.h"
#include "loci/policy/cost_model.h"

namespace loci {

// The names of a prompt's text, as the front that sent it makes them.
struct PromptNames {
  // Of the chunks that have names (policy/routing/named_chunks.h), all of the same size; none where the text
  // is not all of the prompt.
  std::vector<std::uint64_t> chunks;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t bytes = 0;          // of the whole text
  std::vector<std::uint64_t> ends;  // of all that the prompt is, by which others go on from it
  std::uint64_t tenant = 0;         // whose prompt it is: a number for each tenant
};

// What a listener has told fronts.
struct FeedStats {
  std::uint64_t changes_total = 0;
  std::uint64_t gaps_total = 0;  // questions for changes that were not known any more
  std::uint32_t chunks = 0;      // of prompts that are known, wherever their blocks are
};

// Thread-safe. Must not block: it is called in the core's steps, for which all requests wait.
class BlockListener {
 public:
  virtual ~BlockListener() = default;
  // The prompt with this text has `tokens` tokens, and its whole blocks have these keys. Called once the core
  // has taken the request, so not for one that it refused. Not called for prompts that were cut. If a prompt
  // begins with a public prefix, no block will have these keys.
  virtual void prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) = 0;
  // Changes since the last call, in the order of the core's steps.
  virtual void moved(std::span<const BlockPlace> places) = 0;
  // The costs of computing and loading from now on.
  virtual void costs(const CostCurves& curves) = 0;
};

}  // namespace loci
