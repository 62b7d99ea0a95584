// SPDX-License-Identifier: Apache-2.0
// Which tokens a grammar allows next in one reply. The set is computed ahead, while the pass runs whose
// logits it is for. A thread that needs it earlier computes it itself.
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

// Any thread may call prepare(). All else is for one thread at a time, that of the reply's sampler.
class Constraint {
 public:
  explicit Constraint(std::shared_ptr<const Grammar> grammar);

  // Says that the reply begins with these tokens. Once, before anything else.
  void resume_after(std::vector<TokenId> said);
  // Computes the next mask, unless it has been computed.
  void prepare();

  // Computes the next mask if needed (mask_allows() reads it), and returns whether the reply may end. After
  // kComplete, kStuck or an error (status()) no token may come next. Valid until accept().
  MatchState next();
  std::span<const std::uint32_t> mask() const { return mask_; }
  // Says that `token`, one that the mask allows, comes next.
  MatchState accept(TokenId token);
  // Ok, or kInvalidArgument: the grammar exceeded a bound.
  const Status& status() const { return status_; }

 private:
  void begin_locked() REQUIRES(mutex_);
  void prepare_locked() REQUIRES(mutex_);
  MatchState fail(const Status& status) REQUIRES(mutex_);

  const std::shared_ptr<const Grammar> grammar_;
  Mutex mutex_;
  // Guarded by mutex_ until ready_ is set. Then nobody writes them before accept(), so the sampler's thread
  // reads them without the mutex.
  std::optional<GrammarMatcher> matcher_;  // made by the first prepare()
  std::vector<TokenId> said_;              // with what the reply begins; until the matcher is made
  std::vector<std::uint32_t> mask_;
  MatchState state_ = MatchState::kOpen;
  Status status_;
  bool ready_ GUARDED_BY(mutex_) = false;
};

class Sampler;

// The thread that prepares constraints. Thread-safe. Its queue has at most one entry for each running
// request, and keeps none of them: what ended meanwhile is passed over.
class ConstraintWorker {
 public:
  ConstraintWorker();
  ~ConstraintWorker();
  ConstraintWorker(const ConstraintWorker&) = delete;
  ConstraintWorker& operator=(const ConstraintWorker&) = delete;

  // Prepares these one after the other; a sampler without a grammar costs only the call.
  void prepare(const std::vector<std::shared_ptr<Sampler>>& samplers);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::vector<std::weak_ptr<Sampler>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace loci
