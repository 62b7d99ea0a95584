// SPDX-License-Identifier: Apache-2.0
// `loci cluster`: who is a member, what each serves and how much it has to do; drains one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/status_text.h"
#include "loci/server/open_members.h"

namespace loci {
namespace {

struct ClusterFlags {
  std::string join, secret;
  std::optional<std::string> drain, undrain;
};

// How much of a tier has state: "37 %"; "-": the member has no such tier.
std::string share_text(const MemberSlots& slots) {
  if (slots.all == 0) return "-";
  return fmt::format("{:.0f} %", 100.0 * slots.held / slots.all);
}

void print_members(const MemberList& list) {
  std::size_t address = 7;
  for (const Member& member : list.members) address = std::max(address, member.address().size());
  fmt::print("{:<16}  {:<{}}  {:>7}  {:>6}  {:>6}  {:>6}  {:>6}  {:<8}  {:<7}  models\n", "member", "address",
             address, "running", "queued", "device", "host", "disk", "state", "role");
  for (const Member& member : list.members) {
    fmt::print(
        "{:<16}  {:<{}}  {:>7}  {:>6}  {:>6}  {:>6}  {:>6}  {:<8}  {:<7}  {} ({}, numerics {}, blocks of "
        "{})\n",
        member.id, member.address(), address, member.running, member.queued, share_text(member.slots[0]),
        share_text(member.slots[1]), share_text(member.slots[2]), member.draining ? "draining" : "serving",
        member_role_name(member.role), fmt::join(member.models, ", "), member.fingerprint.substr(0, 8),
        member.numerics, member.block_tokens);
  }
  if (list.refused > 0)
    fmt::print(
        "{} rows are not believed: without a seal by this cluster's secret, or not as members write them\n",
        list.refused);
}

Status run_cluster(const ClusterFlags& flags) {
  LOCI_ASSIGN_OR_RETURN(const std::unique_ptr<MemberTable> table, open_members(flags.join, flags.secret));
  if (flags.drain) {
    const Status asked = table->ask_to_drain(*flags.drain, true);
    if (!asked.ok()) return Status(asked.code(), asked.message(), "--drain");
    fmt::print("{} is asked to drain: fronts send it no new requests, and what runs there ends\n",
               *flags.drain);
    return {};
  }
  if (flags.undrain) {
    const Status asked = table->ask_to_drain(*flags.undrain, false);
    if (!asked.ok()) return Status(asked.code(), asked.message(), "--undrain");
    fmt::print("{} is asked to serve again\n", *flags.undrain);
    return {};
  }
  const Result<MemberList> listed = table->list();
  if (!listed.ok()) return Status(listed.status().code(), listed.status().message(), "--join");
  const MemberList& list = *listed;
  print_members(list);
  return {};
}

}  // namespace

void add_cluster_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("cluster", "list the members of a cluster, or drain one");
  command->group(kManyGroup);
  auto flags = std::make_shared<ClusterFlags>();
  command->add_option("--join", flags->join, "the database of the cluster's members, postgresql://...")
      ->envname("LOCI_JOIN")
      ->required();
  command->add_option("--cluster-secret", flags->secret, "the cluster's secret (`loci keys cluster`)")
      ->envname("LOCI_CLUSTER_SECRET")
      ->required();
  // (An empty one counts as given: a script's variable may be empty.)
  const auto member_option = [command](const char* name, std::optional<std::string>& to, const char* help) {
    return command->add_option_function<std::string>(name, [&to](const std::string& id) { to = id; }, help);
  };
  CLI::Option* drain =
      member_option("--drain", flags->drain, "drain the member of this id: fronts send it no new requests");
  member_option("--undrain", flags->undrain,
                "end the drain of the member of this id: fronts send it requests again")
      ->excludes(drain);
  command->footer("Example:\n  loci cluster --join postgresql://db/loci --cluster-secret cluster.secret");
  command->callback([flags, &exit_code] {
    if (const Status url = check_join_url(flags->join); !url.ok())
      refuse_unless_ok(invalid_argument(url.message(), "--join"));
    const Status status = run_cluster(*flags);
    if (status.ok()) return;
    fmt::print(stderr, "loci cluster: {}\n", for_people(status));
    exit_code = 1;
  });
}

}  // namespace loci
