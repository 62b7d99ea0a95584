// SPDX-License-Identifier: Apache-2.0
// Forms passes: which tokens of which running requests the next one computes.
//
// An example, of blocks of four tokens. a decodes; b and c have the same prompt of ten tokens, whose first
// block is there. A budget of eight tokens:
//
//     a   the token after its last one              1 of the budget
//     b   tokens 4 to 9, in a span                  6: it claims the blocks 1 and 2 for this pass
//     c   .                                         block 1 is claimed, so c stops before it, and looks again
//                                                   when the pass is done
//
// So nothing is computed twice, and when the first ends the other goes on from where the block was left. The
// first in order never waits, so nothing deadlocks.
//
// The rules:
//   - A request's missing ranges are taken from the left, a span for every range: holes of its prefix, then
//     its new tokens.
//   - What is being loaded is not computed. A request that is being restored joins a pass when its loads are
//     predicted to arrive in time, or when nobody decodes; the backend then waits for each layer
//     (AttentionStore §3.2.1). Who decodes waits no longer than computing takes.
//   - What decodes leave of a pass is divided among the tenants who have prompts to compute, by weight; what
//     one does not want is the others'. So another's prompts, however many and long, cost a tenant that is
//     within its share at most the rest of its share of each pass. While decodes run, prompts get as many
//     tokens as are predicted to keep the pass within its time (policy/pass_budget.h).
//   - Projecting hidden states takes its time from the share of the tenant whose request it is, then from the
//     shares of those who come after it in that pass; one step (kPassRowsStep) is left to either.
//   - Behind a pass in flight the same goes for what that one leaves (docs/decisions/passes-ahead.md).
//
// It owns what a pass may take of the time, and has no invariant to test. It decides whether a pass joins a
// request's loads (block_tables.h). It requires that blocks that a request's next token opens are there (or
// reserved), and that one pass is formed at a time. It calls the index, the windows, the transfers, the
// flights, the batch, the queue and the times of passes. Where a call gives room back it says so: those that
// lacked blocks may be tried again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/core_pass.h"
#include "loci/engine/core/flights.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"
#include "loci/policy/admission.h"
#include "loci/policy/pass_budget.h"

namespace loci {

// The prompt tokens that running requests still have to compute.
struct CorePrompts {
  struct Tenant {
    const TenantId* name = nullptr;  // of one of its requests, which must outlive this
    std::uint64_t wanted = 0;
  };
  std::vector<Tenant> tenants;  // in the order of their names
  // By prompts(). add() leaves them as they are: they lack who was admitted since (prompt_runs() has all).
  std::vector<PromptRun> runs;
  std::uint64_t total = 0;

  void add(const CoreRequest& request, std::uint64_t tokens) {
    if (const std::optional<std::size_t> place = place_of(request.tenant))
      tenants[*place].wanted += tokens;
    else
      tenants.insert(tenants.begin() + first_from(request.tenant), {&request.tenant, tokens});
    total += tokens;
  }
  // Where the tenant is among `tenants`; absent: it has no prompt here. O(log tenants).
  std::optional<std::size_t> place_of(const TenantId& tenant) const {
    const auto place = static_cast<std::size_t>(first_from(tenant));
    return place < tenants.size() && *tenants[place].name == tenant ? std::optional(place) : std::nullopt;
  }

 private:
  // The first tenant whose name is not before this one's.
  std::ptrdiff_t first_from(const TenantId& tenant) const {
    const auto name = [](const Tenant& one) -> auto& { return *one.name; };
    return std::ranges::lower_bound(tenants, tenant, {}, name) - tenants.begin();
  }
};

// Thread-compatible; used by whoever steps the core. O(blocks that lack state · log) of each request that a
// call looks at.
class PassFormer {
 public:
  // All eight must outlive it.
  PassFormer(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, Windows& windows,
             const Flights& flights, const Batch& batch, const FairQueue& queue, const PassTimes& pass_times)
      : config_(config),
        index_(index),
        transfers_(transfers),
        windows_(windows),
        flights_(flights),
        batch_(batch),
        queue_(queue),
        pass_times_(pass_times),
        group_count_(static_cast<std::uint32_t>(config.groups.size())) {}

  // Later calls happen at this time.
  void advance(Nanos now) { now_ = now; }

  // --- what prompts lack ---

  // The tokens that the request is to compute before it decodes; at least one.
  std::uint64_t missing_tokens(const CoreRequest& request) const;
  // What running prompts lack that a pass may compute now; and how much that is together.
  CorePrompts prompts() const;
  std::uint64_t prompt_tokens() const;
  // The same in their order, as if what they lack were their last tokens: those see the most.
  std::vector<PromptRun> prompt_runs() const;
  // Somebody who decodes waits for the pass.
  bool has_time_limit() const { return config_.pass_time != kNever && batch_.any(RequestPhase::kDecode); }
  // The budget becomes what fits into the time of a pass, up to `tokens_max`: of these prompts, then of such
  // as begin and have not been admitted yet. Nothing happens where there is no limit.
  void keep_to_time(CorePass& pass, std::vector<PromptRun> prompts, std::uint32_t tokens_max) const;

  // --- adding to a pass ---

  // Adds what the request lacks, from the left: a span for every range. True: it gave room back.
  [[nodiscard]] bool add_spans(CoreRequest& request, CorePass& pass);
  // Divides what is left of the pass among the tenants. The one that was given least so far comes first. What
  // a tenant cannot use (another request fills the block that it lacks) goes to the next. True: room was
  // given back.
  [[nodiscard]] bool add_prompts(const CorePrompts& prompts, CorePass& pass);

  // --- behind the pass in flight ---

  // What the pass in flight samples for the request has a token after it, unless it stops.
  bool may_follow(const CoreRequest& request) const;
  // `span`: of the pass in flight, that samples the token.
  void add_following(CoreRequest& request, std::uint32_t span, CorePass& pass) const;

  // --- the pass is formed ---

  PassWork work_of(const CorePass& pass) const;
  // How long the pass waits for what arrives. Who decodes in it waits no longer than computing takes, others
  // half a second more, as somebody may come meanwhile. So a load that does not come (a disk that hangs)
  // costs its own request the pass, and nobody else much.
  Nanos patience_of(const CorePass& pass) const;
  // Writes the pass, which is in flight now, into the plan. Returns its rows.
  std::uint64_t write(const CorePass& pass, Nanos patience, Plan& plan) const;

 private:
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  // It has a prompt of which a pass may compute something now.
  bool lacks_tokens(const CoreRequest& request) const {
    return request.phase.is(RequestPhase::kPrompt) &&
           (request.passes->in_flight == 0 || flights_.goes_on(request));
  }
  static PromptRun run_of(const CoreRequest& request, std::uint64_t missing);
  bool any_loading(const CoreRequest& request) const;
  Nanos projecting(const CoreRequest& request) const;
  void charge_projecting(CoreRequest& request, CorePass& pass) const;
  static void pay_for_projecting(CorePass& pass);
  std::uint32_t first_loading(const CoreRequest& request) const;
  bool decodes_wait(const PassWork& work) const;
  bool joins(CoreRequest& request, const CorePass& pass);
  std::optional<CorePiece> open_piece(CoreRequest& request, std::uint32_t block_number, CorePass& pass);
  bool continues(const CoreSpan& span, const Block& block) const;
  void add_piece(CoreRequest& request, std::uint32_t position, std::uint32_t count, CorePiece piece,
                 bool adjacent, CorePass& pass) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  Windows& windows_;
  const Flights& flights_;
  const Batch& batch_;
  const FairQueue& queue_;
  const PassTimes& pass_times_;
  std::uint32_t group_count_;
  Nanos now_ = 0;
};

}  // namespace loci
