// SPDX-License-Identifier: Apache-2.0
// What a grammar lets one reply say next. The set of allowed tokens is computed ahead, while the pass runs
// whose logits it is for; whoever needs it earlier computes it himself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/model/grammar.h"

namespace loci {

// prepare(): any thread. The rest: one thread at a time, that of the reply's sampler.
class Constraint {
 public:
  explicit Constraint(std::shared_ptr<const Grammar> grammar);

  // Computes the next mask unless it is there.
  void prepare();

  // The tokens that may come next (mask_allows()), and whether the reply may end; computed unless prepared.
  // Nothing may come next after kComplete, kStuck and an error (status()). Valid until accept().
  MatchState next();
  std::span<const std::uint32_t> mask() const { return mask_; }
  // `token`, one of the mask, comes next.
  MatchState accept(TokenId token);
  // kInvalidArgument: the grammar passed a bound.
  const Status& status() const { return status_; }

 private:
  void prepare_locked() REQUIRES(mutex_);
  MatchState fail(const Status& status) REQUIRES(mutex_);

  const std::shared_ptr<const Grammar> grammar_;
  Mutex mutex_;
  // Under mutex_ until ready_; then nobody writes them before accept(), and the sampler's thread reads them
  // without it.
  std::optional<GrammarMatcher> matcher_;  // made by the first prepare()
  std::vector<std::uint32_t> mask_;
  MatchState state_ = MatchState::kOpen;
  Status status_;
  bool ready_ GUARDED_BY(mutex_) = false;
};

class Sampler;

// The thread that prepares constraints. Thread-safe. Its queue is bounded by the requests there are.
class ConstraintWorker {
 public:
  ConstraintWorker();
  ~ConstraintWorker();
  ConstraintWorker(const ConstraintWorker&) = delete;
  ConstraintWorker& operator=(const ConstraintWorker&) = delete;

  // Prepares these in turn; those without a grammar cost nothing but the call.
  void prepare(std::vector<std::shared_ptr<Sampler>> samplers);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::vector<std::shared_ptr<Sampler>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace loci
