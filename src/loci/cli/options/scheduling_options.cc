// SPDX-License-Identifier: Apache-2.0
// Which requests run, and whose state is kept.
#include <iterator>

#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/policy/admission_order.h"
#include "loci/policy/baselines.h"
#include "loci/policy/eviction.h"
#include "loci/policy/policy_set.h"
#include "loci/policy/restore_plan.h"

namespace loci {
namespace {

Option profile_option(const std::string& group) {
  Option out = path_option({group, "--profile",
                            "the file of this machine's measured costs, as `loci profile` writes it; `none` "
                            "assumes costs and measures nothing"},
                           [](auto& flags) -> auto& { return flags.profile; });
  out.default_note =
      "the model's own file, if `loci profile` made one here; otherwise the server measures roughly while it "
      "is idle";
  return out;
}

Option baseline_option(const std::string& group) {
  Option out = choice_option({group, "--baseline",
                              "serve with the policies of a paper, to compare with them (docs/policies.md); "
                              "an option that the baseline decides may not be given another value"},
                             "NAME", {kBaselines.begin(), kBaselines.end()},
                             [](auto& flags) -> auto& { return flags.baseline; });
  out.default_note = "this server's own policies";
  return out;
}

// The policies that have numbers or switches (policy/policy_set.h).
std::vector<Option> policy_numbers(const std::string& group) {
  return {
      integer_option(
          {group, "--admission-looks",
           "with --admission fpf or relaxed-fpf: how many of a tenant's waiting requests the server "
           "compares, the earliest ones"},
          [](auto& flags) -> auto& { return flags.policies.admission_looks; }, 1, 1u << 20),
      integer_option(
          {group, "--lookahead-requests",
           "for how many waiting requests the server prepares state: it evicts that state last, and brings "
           "it from disk into host memory; 0 prepares none; it never prepares more than host memory and disk "
           "have room for"},
          [](auto& flags) -> auto& { return flags.policies.lookahead_requests; }, 0, kLookaheadUnlimited),
      integer_option(
          {group, "--prefetch-percent",
           "the percentage of host memory for state that may be filled from the disk for waiting requests"},
          [](auto& flags) -> auto& { return flags.policies.prefetch_percent; }, 0, 100),
      choice_option(
          {group, "--preload",
           "what of a request's state begins to move to the device before the request is admitted: none of "
           "it "
           "(off), as much as would otherwise hold up its first pass (buffer), or all of it (unbounded)"},
          "WHAT", {kPreloadRules.begin(), kPreloadRules.end()},
          [](auto& flags) -> auto& { return flags.policies.preload; }),
      integer_option(
          {group, "--preload-retries",
           "for how many waiting requests the server tries again to move state ahead, each time there is "
           "more room; what had no room the first time else waits until the request is admitted"},
          [](auto& flags) -> auto& { return flags.policies.preload_retries; }, 0, kPreloadRetriesMax),
      choice_option({group, "--batch",
                     "whether prompts and replies are computed in the same passes (unified), or in passes "
                     "that take turns (split)"},
                    "RULE", {kBatchRules.begin(), kBatchRules.end()},
                    [](auto& flags) -> auto& { return flags.policies.batch; }),
      integer_option(
          {group, "--decode-reserve-percent",
           "the percentage of the device's memory for state that new requests leave free at most, so that "
           "running replies can grow"},
          [](auto& flags) -> auto& { return flags.policies.decode_reserve_percent; }, 0, 90),
      switch_option(
          {group, "--reuse",
           "let requests use the state that earlier ones left; off computes each prompt from its beginning"},
          [](auto& flags) -> auto& { return flags.policies.reuse; }),
  };
}

std::vector<Option> named_policies(const std::string& group) {
  return {
      choice_option({group, "--eviction", "which state goes first when memory is full (docs/policies.md)"},
                    "POLICY", {kEvictionPolicies.begin(), kEvictionPolicies.end()},
                    [](auto& flags) -> auto& { return flags.policies.eviction; }),
      choice_option({group, "--admission",
                     "which of a tenant's waiting requests runs next: the first that came (fcfs), the one "
                     "whose state is nearest (fpf), or a balance of both (relaxed-fpf)"},
                    "ORDER", {kAdmissionOrders.begin(), kAdmissionOrders.end()},
                    [](auto& flags) -> auto& { return flags.policies.admission; }),
      choice_option({group, "--restore",
                     "which part of a request's state the server loads from slower tiers, and which part it "
                     "computes again (docs/policies.md); auto does what it predicts to be fastest"},
                    "PLAN", {kRestoreRules.begin(), kRestoreRules.end()},
                    [](auto& flags) -> auto& { return flags.policies.restore; }),
  };
}

Option event_log_option(const std::string& group) {
  Option log =
      path_option({group, "--event-log",
                   "write every event and decision of the scheduler to this file, so that `loci replay` can "
                   "run them again; a log that is there becomes FILE.1"},
                  [](auto& flags) -> auto& { return flags.event_log; });
  log.set = [set = log.set](ServerConfig& flags, const std::string& text) {
    return set_unless_none(set, flags, text);
  };
  return log;
}

}  // namespace

std::vector<Option> scheduling_options() {
  const std::string group = "scheduling";
  std::vector<Option> out = {
      integer_option(
          {group, "--max-batch-tokens",
           "the most tokens in one pass through the model; 0 takes 512 on a CPU and 2048 on a GPU"},
          [](auto& flags) -> auto& { return flags.max_batch_tokens; }, 0, 1 << 20),
      limit_duration_option(
          {group, "--pass-time",
           "how long one pass through the model may take while replies are being written; a pass takes only "
           "as many tokens of new prompts as fit into this time; 0 sets no limit"},
          [](auto& flags) -> auto& { return flags.pass_time; }),
      integer_option(
          {group, "--max-running", "the most requests that run at once; further ones wait"},
          [](auto& flags) -> auto& { return flags.max_running; }, 1, 65536),
      integer_option(
          {group, "--max-queued", "the most requests that wait; further ones get a 429"},
          [](auto& flags) -> auto& { return flags.max_queued; }, 0, 1 << 20),
      baseline_option(group),
      profile_option(group),
      integer_option(
          {group, "--seed", "the seed of the random numbers for --eviction random"},
          [](auto& flags) -> auto& { return flags.seed; }, 0, UINT64_MAX),
      event_log_option(group),
      switch_option(
          {group, "--event-log-secret",
           "also write to the event log the secret from which blocks get their keys; without it the log of a "
           "server that begins with kept state, or whose peers read its state, cannot be replayed"},
          [](auto& flags) -> auto& { return flags.event_log_secret; }),
  };
  for (const auto& more : {&named_policies, &policy_numbers}) {
    std::vector<Option> rows = more(group);
    std::move(rows.begin(), rows.end(), std::back_inserter(out));
  }
  return out;
}

}  // namespace loci
