// SPDX-License-Identifier: Apache-2.0
#include "loci/server/baseline.h"

#include "loci/policy/baselines.h"

namespace loci {

Result<ServerBaseline> make_server_baseline(const std::string& name) {
  LOCI_ASSIGN_OR_RETURN(const Baseline baseline, find_baseline(name));
  ServerBaseline out{.config = {},
                     .options = {"eviction", "admission", "admission_looks", "restore", "reuse", "save",
                                 "swap_out_percent", "swap_chunk_tokens", "decode_reserve_percent",
                                 "lookahead_requests", "prefetch_percent", "preload", "preload_retries",
                                 "batch", "pass_time", "hidden", "shared", "peer_port", "context_overflow"}};
  out.config.baseline = name;
  out.config.policies = baseline.policies;
  out.config.pass_time.reset();  // the papers bound a pass by its tokens alone
  out.config.hidden = "off";
  out.config.shared.clear();
  out.config.peer_port.reset();
  out.config.context_overflow = baseline.truncates ? "truncate" : "refuse";
  if (baseline.truncates) {
    out.options.push_back("truncation_percent");
    out.config.truncation_percent = 50;  // AttentionStore figure 10: 2K of 4K tokens
  }
  if (!baseline.host_tier) {
    out.options.push_back("host_memory");
    out.config.host_memory = 0;
  }
  if (!baseline.disk_tier) {
    out.options.push_back("disk");
    out.config.disk.emplace();
  }
  return out;
}

}  // namespace loci
