// SPDX-License-Identifier: Apache-2.0
#include "loci/server/overflow_rule.h"

#include <algorithm>

namespace loci {

OverflowRule overflow_rule(const ServerConfig& config, const CoreConfig& core) {
  OverflowRule rule{
      .overflow =
          config.context_overflow == "truncate" ? ContextOverflow::kTruncate : ContextOverflow::kRefuse,
      .truncation = {.context_tokens = core.context_tokens, .drop_percent = config.truncation_percent}};
  for (const CoreGroup& group : core.groups) {
    if (group.window != 0) continue;
    const std::uint64_t tokens = std::uint64_t{group.block_count} * kBlockTokens;
    rule.truncation.context_tokens =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(rule.truncation.context_tokens, tokens));
  }
  return rule;
}

}  // namespace loci
