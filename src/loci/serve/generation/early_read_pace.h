// SPDX-License-Identifier: Apache-2.0
// Which parts of a prompt a decode member reads while a prefill member computes the rest, and what came of it
// (docs/decisions/roles.md). Servers drive it by early_reads.h, the simulator in virtual time. An example:
//
//     ready there    next()    because
//     200            nothing   a read brings 256 tokens at least
//     512            512
//     1,024          nothing   that read has not ended
//     1,536          1,536     and brings the 1,024 that are new
#pragma once

#include <cstdint>
#include <optional>

#include "loci/base/status.h"
#include "loci/engine/core/plan.h"

namespace loci {

// A value, of one prompt. Thread-compatible.
class EarlyReadPace {
 public:
  // How many of the prompt's first tokens, in whole blocks, a read is to bring now that `ready` of its
  // `prompt` tokens have state; absent: none.
  std::optional<std::uint32_t> next(std::uint32_t ready, std::uint32_t prompt) const;

  // A read of so many tokens begins, is admitted (`from`: where it found them), has read them (what failed to
  // come it has computed), ends.
  void begin(std::uint32_t tokens);
  void started(const ContextSources& from);
  void restored(const ContextSources& from);
  void ended(StatusCode code);

  bool is_open() const { return is_open_; }      // a read has not ended
  bool is_queued() const { return is_queued_; }  // nor was it admitted
  // A read was refused for good, found too little at the peers, or brought back what the one before had
  // read: more reads would cost others more than they bring.
  bool is_over() const { return is_over_; }
  // That began to be brought from peers. Of a read that was given up while it waited nobody says what was
  // loaded ahead for it: all that it asked for beyond the one before.
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t computed() const { return computed_; }  // that the reads had to compute themselves

  // Where the state of the prompt comes from, as its request found it: what reads of it brought came from
  // peers, wherever it is now.
  ContextSources as_read(ContextSources found) const;

 private:
  std::uint32_t asked_ = 0;    // tokens, by the last read
  std::uint32_t reached_ = 0;  // the same, by the last one of which something may have been brought
  std::uint32_t tokens_ = 0, computed_ = 0;
  std::uint32_t had_ = 0;  // that this server had before the first read
  ContextSources found_;   // by the last one that was admitted
  bool is_open_ = false, is_queued_ = false, is_over_ = false;
  bool has_started_ = false;  // a read was admitted
};

}  // namespace loci
