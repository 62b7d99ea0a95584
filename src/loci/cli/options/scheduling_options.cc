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
      {group, "--profile", "a file of measured costs, as `loci profile` writes it; none assumes costs"},
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
      choice_option({group, "--eviction", "which state goes first when memory is full"}, "POLICY",
                    {kEvictionPolicies.begin(), kEvictionPolicies.end()},
                    [](auto& flags) -> auto& { return flags.eviction; }),
      choice_option({group, "--admission",
                     "which of a tenant's waiting requests runs next: the first one, the one whose state is "
                     "nearest, or both weighed against each other"},
                    "ORDER", {kAdmissionOrders.begin(), kAdmissionOrders.end()},
                    [](auto& flags) -> auto& { return flags.admission; }),
      choice_option({group, "--restore",
                     "how the server decides what of a request's state it loads from slower tiers and what "
                     "it computes again"},
                    "PLAN", {kRestoreRules.begin(), kRestoreRules.end()},
                    [](auto& flags) -> auto& { return flags.restore; }),
      profile_option(group),
      integer_option(
          {group, "--seed", "the seed of random eviction"}, [](auto& flags) -> auto& { return flags.seed; },
          0, UINT64_MAX),
      path_option({group, "--event-log", "write every event and decision to this file, for `loci replay`"},
                  [](auto& flags) -> auto& { return flags.event_log; }),
      switch_option({group, "--event-log-secret",
                     "write the secret of the disk's keys to the event log too, so that the log of a server "
                     "with kept state can be replayed"},
                    [](auto& flags) -> auto& { return flags.event_log_secret; }),
  };
}

}  // namespace loci
