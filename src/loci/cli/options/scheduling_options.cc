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
  Option out = path_option(
      {group, "--profile", "a file of measured costs, as `loci profile` writes it; none assumes costs"},
      [](auto& flags) -> auto& { return flags.profile; });
  out.default_note =
      "the model's own, if it was measured here; else the server measures roughly when it is idle";
  return out;
}

Option baseline_option(const std::string& group) {
  Option out = choice_option({group, "--baseline",
                              "serve with the policies of a paper, to compare with; no option that it "
                              "decides may then be given another value"},
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
           "how many of a tenant's waiting requests are looked at by an order that goes by where state is "
           "(fpf, "
           "relaxed-fpf)"},
          [](auto& flags) -> auto& { return flags.policies.admission_looks; }, 1, 1u << 20),
      integer_option(
          {group, "--lookahead-requests",
           "the most waiting requests whose state is looked ahead to: evicted last, and brought from disk "
           "into host memory; 0 looks ahead to none; the sizes of host memory and disk are a limit in any "
           "case"},
          [](auto& flags) -> auto& { return flags.policies.lookahead_requests; }, 0, kLookaheadUnlimited),
      choice_option({group, "--preload",
                     "what of a request's state begins to move to the device while others run: nothing, "
                     "what would otherwise hold up its first pass (buffer), or all"},
                    "WHAT", {kPreloadRules.begin(), kPreloadRules.end()},
                    [](auto& flags) -> auto& { return flags.policies.preload; }),
      choice_option({group, "--batch",
                     "whether prompts and replies are computed in the same passes, or take turns (split)"},
                    "RULE", {kBatchRules.begin(), kBatchRules.end()},
                    [](auto& flags) -> auto& { return flags.policies.batch; }),
      integer_option(
          {group, "--decode-reserve-percent",
           "the share of the device's memory for state that new requests leave to replies that grow"},
          [](auto& flags) -> auto& { return flags.policies.decode_reserve_percent; }, 0, 90),
      switch_option(
          {group, "--reuse", "let requests use state that earlier ones left; off computes all anew"},
          [](auto& flags) -> auto& { return flags.policies.reuse; }),
  };
}

std::vector<Option> named_policies(const std::string& group) {
  return {
      choice_option({group, "--eviction", "which state goes first when memory is full"}, "POLICY",
                    {kEvictionPolicies.begin(), kEvictionPolicies.end()},
                    [](auto& flags) -> auto& { return flags.policies.eviction; }),
      choice_option({group, "--admission",
                     "which of a tenant's waiting requests runs next: the first one, the one whose state is "
                     "nearest, or both weighed against each other"},
                    "ORDER", {kAdmissionOrders.begin(), kAdmissionOrders.end()},
                    [](auto& flags) -> auto& { return flags.policies.admission; }),
      choice_option({group, "--restore",
                     "how the server decides what of a request's state it loads from slower tiers and what "
                     "it computes again"},
                    "PLAN", {kRestoreRules.begin(), kRestoreRules.end()},
                    [](auto& flags) -> auto& { return flags.policies.restore; }),
  };
}

}  // namespace

std::vector<Option> scheduling_options() {
  const std::string group = "scheduling";
  std::vector<Option> out = {
      integer_option(
          {group, "--max-batch-tokens",
           "the most tokens in one pass through the model; 0 takes 512 on a CPU and 2048 on a GPU"},
          [](auto& flags) -> auto& { return flags.max_batch_tokens; }, 0, 1 << 20),
      limit_duration_option({group, "--pass-time",
                             "how long one pass may take while replies are being written; prompts get what "
                             "fits into it; 0 sets no limit"},
                            [](auto& flags) -> auto& { return flags.pass_time; }),
      integer_option(
          {group, "--max-running", "the most requests that run at once"},
          [](auto& flags) -> auto& { return flags.max_running; }, 1, 65536),
      integer_option(
          {group, "--max-queued", "the most requests that wait; further ones get a 429"},
          [](auto& flags) -> auto& { return flags.max_queued; }, 0, 1 << 20),
      baseline_option(group),
      profile_option(group),
      integer_option(
          {group, "--seed", "the seed of random eviction"}, [](auto& flags) -> auto& { return flags.seed; },
          0, UINT64_MAX),
      path_option({group, "--event-log", "write every event and decision to this file, for `loci replay`"},
                  [](auto& flags) -> auto& { return flags.event_log; }),
      switch_option({group, "--event-log-secret",
                     "write the secret of the blocks' keys to the event log too, so that the log of a server "
                     "with kept state, or that peers read, can be replayed"},
                    [](auto& flags) -> auto& { return flags.event_log_secret; }),
  };
  for (const auto& more : {&named_policies, &policy_numbers}) {
    std::vector<Option> rows = more(group);
    std::move(rows.begin(), rows.end(), std::back_inserter(out));
  }
  return out;
}

}  // namespace loci
