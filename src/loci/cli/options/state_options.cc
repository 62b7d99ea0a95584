// SPDX-License-Identifier: Apache-2.0
// Where the model's state is kept beside the device, and for how long.
#include "loci/cli/options/disk_flag.h"
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/policy/policy_set.h"
#include "loci/server/shared_tier.h"

namespace loci {

namespace {

Option save_option(const std::string& group) {
  return choice_option(
      {group, "--save",
       "when state is copied to slower tiers: while it fills (through), before it is evicted "
       "(ahead), or never (off)"},
      "WHEN", {kSaveRules.begin(), kSaveRules.end()},
      [](auto& flags) -> auto& { return flags.policies.save; });
}

Option swap_out_option(const std::string& group) {
  return integer_option(
      {group, "--swap-out-percent",
       "with --save ahead: the server saves the state that would be evicted next, while less than this "
       "percentage of a tier is free or saved already"},
      [](auto& flags) -> auto& { return flags.policies.swap_out_percent; }, 0, 100);
}

Option swap_chunk_option(const std::string& group) {
  return integer_option(
      {group, "--swap-chunk-tokens",
       "with --save ahead: how many tokens of a sequence are judged and saved together, a multiple of 32"},
      [](auto& flags) -> auto& { return flags.policies.swap_chunk_tokens; }, kBlockTokens,
      kSwapChunkTokensMax);
}

Option hidden_option(const std::string& group) {
  return choice_option(
      {group, "--hidden",
       "keep state on disk as hidden states, which are smaller if a model has many heads of keys and values; "
       "the server computes keys and values from them when they come back; auto does so for the share of "
       "blocks for which it is faster by the costs that `loci profile` measured"},
      "WHICH", {"off", "auto", "on"}, [](auto& flags) -> auto& { return flags.hidden; });
}

Option disk_option(const std::string& group) {
  Option disk = list_option(
      {group, "--disk",
       "the directories in which state is kept, each with the space that the state of all models together "
       "may take there (by default a tenth of what is free, at most 16GiB); `none` keeps no state on disk"},
      "DIR[:SIZE]", [](auto& flags) -> auto& { return flags.disk; }, &parse_disk_flags, &disk_flags);
  disk.default_note = "`loci/state` in the user's state folder";
  return disk;
}

Option shared_option(const std::string& group) {
  Option shared = text_option(
      {group, "--shared",
       "a store through which servers with the same cluster secret share their state; one that speaks "
       "Redis's protocol: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// with TLS; or "
       "S3's: s3://BUCKET[/PREFIX], followed by ?endpoint=URL, region=NAME and style=path or virtual, "
       "joined by &, where they differ from Amazon's, with credentials from where Amazon's own programs "
       "look for them"},
      "URL", [](auto& flags) -> auto& { return flags.shared; });
  shared.get = [](const ServerConfig& flags) {
    return std::optional<std::string>(describe_shared(flags.shared));
  };
  return shared;
}

}  // namespace

std::vector<Option> state_options() {
  const std::string group = "state";
  Option host = bytes_option({group, "--host-memory",
                              "the machine's memory for state that the device has no room for; 0 uses none; "
                              "on a CPU it is the same memory as the device's"},
                             [](auto& flags) -> auto& { return flags.host_memory; });
  host.default_note = "none on a CPU; beside a GPU half of what is free";
  std::vector<std::string> types;
  for (const StateType type : kStateTypes) types.emplace_back(state_type_name(type));
  const auto parse_type = [](const std::string& text) { return parse_state_type(text); };
  Option limit = bytes_option(
      {group, "--io-limit",
       "the most bytes that the server reads and writes on its disks in a second, at least 1MiB; for disks "
       "that others use too"},
      [](auto& flags) -> auto& { return flags.io_limit; }, 1 << 20);
  limit.default_note = "as fast as it can";
  const auto write_type = [](StateType of) { return std::string(state_type_name(of)); };
  Option type = choice_option(
      {group, "--state-type",
       "the type in which keys and values are kept; q8 takes little more than half as much memory as the "
       "others, in every tier"},
      "TYPE", types, [](auto& flags) -> auto& { return flags.state_type; }, parse_type, write_type);
  type.default_note = "f16 on a CPU; on a GPU the 16-bit type of the model's products";
  return {
      std::move(type),
      std::move(host),
      disk_option(group),
      choice_option({group, "--disk-io",
                     "how the disk is read and written; auto takes io_uring if the system allows it, "
                     "otherwise threads"},
                    "HOW", {"auto", "io_uring", "threads"},
                    [](auto& flags) -> auto& { return flags.disk_io; }),
      std::move(limit),
      save_option(group),
      swap_out_option(group),
      swap_chunk_option(group),
      hidden_option(group),
      path_option({group, "--cluster-secret",
                   "the file with the secret that all servers of a cluster share (`loci keys cluster` makes "
                   "it); with it they give the same state the same keys"},
                  [](auto& flags) -> auto& { return flags.cluster_secret; }),
      shared_option(group),
      limit_duration_option(
          {group, "--shared-ttl",
           "how long servers use state in the shared store that nobody wrote or used since; Redis drops it "
           "then, a bucket needs a rule for that; 0 sets no limit, not even for deleted state if the store "
           "did not take its deletion"},
          [](auto& flags) -> auto& { return flags.shared_ttl; }),
      choice_option({group, "--context-overflow",
                     "what happens to a conversation that outgrows the context: its next turn is refused "
                     "(refuse), or its oldest part after the system prompt is dropped (truncate)"},
                    "RULE", {"refuse", "truncate"},
                    [](auto& flags) -> auto& { return flags.context_overflow; }),
      integer_option(
          {group, "--truncation-percent",
           "with --context-overflow truncate: the percentage of the context that one cut drops"},
          [](auto& flags) -> auto& { return flags.truncation_percent; }, 1, 90),
      limit_duration_option(
          {group, "--state-ttl",
           "how long state that nobody uses is kept, also when its model is served no more: another server "
           "with a disk in the same directory drops it then; 0 keeps it for as long as there is room"},
          [](auto& flags) -> auto& { return flags.state_ttl; }),
  };
}

}  // namespace loci
