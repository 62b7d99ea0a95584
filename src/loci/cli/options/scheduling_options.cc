// Which requests run, and whose state is kept.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {

std::vector<Option> scheduling_options() {
  const std::string group = "scheduling";
  return {
      integer_option(
          {group, "--max-batch-tokens", "tokens in one pass through the model"},
          [](auto& flags) -> auto& { return flags.max_batch_tokens; }, 1, 1 << 20),
      integer_option(
          {group, "--max-running", "requests in the batch"},
          [](auto& flags) -> auto& { return flags.max_running; }, 1, 65536),
      integer_option(
          {group, "--max-queued", "requests that wait; beyond: 429"},
          [](auto& flags) -> auto& { return flags.max_queued; }, 0, 1 << 20),
      choice_option({group, "--eviction", "whose state goes when memory is full"}, "POLICY",
                    {"lru", "fifo", "random"}, [](auto& flags) -> auto& { return flags.eviction; }),
      integer_option(
          {group, "--seed", "of random eviction"}, [](auto& flags) -> auto& { return flags.seed; }, 0,
          UINT64_MAX),
      path_option({group, "--event-log", "write every event and decision to FILE, for `loci replay`"},
                  [](auto& flags) -> auto& { return flags.event_log; }),
  };
}

}  // namespace loci
