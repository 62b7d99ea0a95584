// SPDX-License-Identifier: Apache-2.0
// Which requests run, and whose state is kept.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/policy/restore_plan.h"

namespace loci {
namespace {

Option profile_option(const std::string& group) {
  Option out = path_option(
      {group, "--profile", "measured costs, as `loci profile` writes them; none: costs are assumed"},
      [](auto& flags) -> auto& { return flags.profile; });
  out.default_note =
      "the model's own, if it was measured here; else the server measures roughly when it is idle";
  return out;
}

}  // namespace

std::vector<Option> scheduling_options() {
  const std::string group = "scheduling";
  return {
      integer_option(
          {group, "--max-batch-tokens", "tokens in one pass through the model; 0: 512, on a GPU 2048"},
          [](auto& flags) -> auto& { return flags.max_batch_tokens; }, 0, 1 << 20),
      limit_duration_option(
          {group, "--pass-time",
           "time of one pass while replies are being written; prompts get what fits; 0: no limit"},
          [](auto& flags) -> auto& { return flags.pass_time; }),
      integer_option(
          {group, "--max-running", "requests in the batch"},
          [](auto& flags) -> auto& { return flags.max_running; }, 1, 65536),
      integer_option(
          {group, "--max-queued", "most requests that wait; more get a 429"},
          [](auto& flags) -> auto& { return flags.max_queued; }, 0, 1 << 20),
      choice_option({group, "--eviction", "whose state goes when memory is full"}, "POLICY",
                    {kEvictionPolicies.begin(), kEvictionPolicies.end()},
                    [](auto& flags) -> auto& { return flags.eviction; }),
      choice_option(
          {group, "--admission",
           "which of a tenant's waiting requests is next: the first, the one whose state is nearest, "
           "or both weighed"},
          "ORDER", {kAdmissionOrders.begin(), kAdmissionOrders.end()},
          [](auto& flags) -> auto& { return flags.admission; }),
      choice_option({group, "--restore",
                     "what of a request's state is loaded from slower tiers, and what is computed again"},
                    "PLAN", {kRestoreRules.begin(), kRestoreRules.end()},
                    [](auto& flags) -> auto& { return flags.restore; }),
      profile_option(group),
      integer_option(
          {group, "--seed", "of random eviction"}, [](auto& flags) -> auto& { return flags.seed; }, 0,
          UINT64_MAX),
      path_option({group, "--event-log", "write every event and decision to FILE, for `loci replay`"},
                  [](auto& flags) -> auto& { return flags.event_log; }),
      switch_option({group, "--event-log-secret",
                     "with the secret of the disk's keys, so that a log with entries from before replays"},
                    [](auto& flags) -> auto& { return flags.event_log_secret; }),
  };
}

}  // namespace loci
