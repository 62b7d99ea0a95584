// SPDX-License-Identifier: Apache-2.0
// `loci keys add|list|remove`: the file of API keys (docs/tenants.md). A key is shown once, when it is made.
// `loci keys cluster FILE`: the secret that the servers of a cluster share.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/durable_file.h"
#include "loci/base/units.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/paths.h"
#include "loci/cli/status_text.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/serve/files/text_file.h"
#include "loci/serve/tenants/api_key.h"
#include "loci/serve/tenants/keys_file.h"

namespace loci {
namespace {

struct KeysFlags {
  std::string file;
  std::string name;
  std::string tenant;
  bool is_operator = false;
};

// What is wrong in the file, by its name: it may be one that nobody named.
Status in_file(const KeysFlags& flags, const Status& status) {
  const std::string field = status.field().empty() ? "" : status.field() + ": ";
  return {status.code(), fmt::format("{}: {}{}", flags.file, field, status.message())};
}

// Ends the key in the file.
Status remove_from_file(const KeysFlags& flags) {
  LOCI_RETURN_IF_ERROR(
      read_text_file(flags.file).status());  // no lock is left beside a file that is not there
  LOCI_ASSIGN_OR_RETURN(const Descriptor lock, lock_changes(flags.file));
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text_file(flags.file));
  const Result<std::string> after = remove_key(text, flags.name);
  return after.ok() ? replace_file(flags.file, *after) : in_file(flags, after.status());
}

// Under a lock, so that of two commands none loses the other's key, or brings one back that was removed.
Status add_to_file(const KeysFlags& flags, const KeyEntry& entry) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(flags.file).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  LOCI_ASSIGN_OR_RETURN(const Descriptor lock, lock_changes(flags.file));
  const Result<std::string> text = read_text_file(flags.file);
  if (!text.ok() && text.status().code() != StatusCode::kNotFound) return text.status();
  const Result<std::string> after = add_key(text.ok() ? *text : std::string(), entry);
  return after.ok() ? replace_file(flags.file, *after) : in_file(flags, after.status());
}

// False: standard output did not take all of it, or nobody reads it any more.
bool print_now(const std::string& text) {
  std::signal(SIGPIPE, SIG_IGN);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

// Of a key that nobody has seen whole, and whose hash the file has.
Status take_back(const KeysFlags& flags) {
  const std::string why = "standard output could not be written, so nobody has the key";
  const Status removed = remove_from_file(flags);
  if (removed.ok()) return {StatusCode::kUnavailable, why + "; it was removed again"};
  return {StatusCode::kUnavailable,
          fmt::format("{}; `loci keys remove {}` ends it ({})", why, flags.name, removed.message())};
}

Status check_names(const KeysFlags& flags) {
  LOCI_RETURN_IF_ERROR(check_name(flags.name, "NAME"));
  return flags.tenant.empty() ? Status() : check_name(flags.tenant, "--tenant");
}

Status add(const KeysFlags& flags) {
  const std::string tenant = flags.tenant.empty() ? flags.name : flags.tenant;
  LOCI_ASSIGN_OR_RETURN(const std::string key, make_api_key());
  const KeyEntry entry{.name = flags.name,
                       .tenant = tenant,
                       .hash = hash_api_key(key),
                       .is_operator = flags.is_operator,
                       .created = fmt::format("{:%Y-%m-%d}", fmt::gmtime(seconds_since_1970()))};
  LOCI_RETURN_IF_ERROR(add_to_file(flags, entry));
  if (!print_now(key + "\n")) return take_back(flags);
  fmt::print(stderr, "The key '{}' of tenant '{}' is shown this once; {} has its hash.\n", flags.name, tenant,
             flags.file);
  return {};
}

std::string describe(const TenantLimits& limits) {
  std::string out = fmt::format("weight {}", limits.weight);
  const auto add_limit = [&out](const std::optional<std::uint32_t>& limit, const char* of) {
    if (limit) out += fmt::format(", {} {}", *limit, of);
  };
  add_limit(limits.requests_per_minute, "requests a minute");
  add_limit(limits.tokens_per_minute, "tokens a minute");
  add_limit(limits.concurrent_requests, "requests at once");
  add_limit(limits.concurrent_reads, "reads at once");
  if (limits.queue_percent < 100) out += fmt::format(", {} % of the queue", limits.queue_percent);
  out += fmt::format(", stores {} and {} conversations", format_bytes(limits.stored_bytes),
                     format_count(limits.stored_conversations));
  return out;
}

Status list(const KeysFlags& flags) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text_file(flags.file));
  const Result<KeysFile> read = parse_keys_file(text);
  if (!read.ok()) return in_file(flags, read.status());
  const KeysFile& file = *read;
  std::size_t name = 4, tenant = 6;
  for (const KeyEntry& key : file.keys) {
    name = std::max(name, key.name.size());
    tenant = std::max(tenant, key.tenant.size());
  }
  fmt::print("{:<{}}  {:<{}}  {:<10}  {}\n", "NAME", name, "TENANT", tenant, "CREATED", "LIMITS");
  for (const KeyEntry& key : file.keys) {
    fmt::print("{:<{}}  {:<{}}  {:<10}  {}{}\n", key.name, name, key.tenant, tenant,
               key.created.empty() ? "-" : key.created, key.is_operator ? "operator, " : "",
               describe(file.limits_of(key.tenant)));
  }
  return {};
}

Status remove(const KeysFlags& flags) {
  LOCI_RETURN_IF_ERROR(remove_from_file(flags));
  fmt::print(stderr, "The key '{}' is no longer valid.\n", flags.name);
  return {};
}

int report_keys(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "loci keys: {}\n", for_people(status));
  return 1;
}

void add_file_flag(CLI::App& command, KeysFlags& flags) {
  const auto is_named = [](const std::string& path) {
    return path.empty() ? std::string("expected a file's name, found nothing") : std::string();
  };
  command.add_option("--file", flags.file, "the file of keys")
      ->type_name("FILE")
      ->check(CLI::Validator(is_named, ""))
      ->capture_default_str();
}

}  // namespace

void add_keys_command(CLI::App& app, int& exit_code) {
  CLI::App* keys = app.add_subcommand("keys", "make, list and remove API keys; make a cluster's secret");
  keys->group(kManyGroup);
  keys->require_subcommand(1);
  keys->footer(
      "Examples:\n  loci keys add alice\n  loci keys add alice-laptop --tenant alice\n  loci serve default "
      "--api-keys ~/.config/loci/keys.toml");
  auto flags = std::make_shared<KeysFlags>();
  flags->file = default_keys_path();
  CLI::App* adding = keys->add_subcommand("add", "make a key, print it once and write its hash to the file");
  adding->add_option("NAME", flags->name, "the key's name")->required();
  adding->add_option("--tenant", flags->tenant, "the tenant that uses the key")->default_str("NAME");
  adding->add_flag("--operator", flags->is_operator, "the key may declare prefixes public (`loci warm`)");
  add_file_flag(*adding, *flags);
  adding->callback([flags, &exit_code] {
    refuse_unless_ok(check_names(*flags));
    exit_code = report_keys(add(*flags));
  });
  CLI::App* listing = keys->add_subcommand("list", "show the keys' names and limits");
  add_file_flag(*listing, *flags);
  listing->callback([flags, &exit_code] { exit_code = report_keys(list(*flags)); });
  CLI::App* removing = keys->add_subcommand("remove", "end a key");
  removing->add_option("NAME", flags->name, "the key's name")->required();
  add_file_flag(*removing, *flags);
  CLI::App* cluster = keys->add_subcommand(
      "cluster", "make a file with the secret of a cluster, for `loci serve --cluster-secret FILE`");
  cluster->add_option("FILE", flags->file, "a path where nothing is yet")->required();
  cluster->callback([flags, &exit_code] { exit_code = report_keys(make_cluster_secret(flags->file)); });
  removing->callback([flags, &exit_code] { exit_code = report_keys(remove(*flags)); });
}

}  // namespace loci
