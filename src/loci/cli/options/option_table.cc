// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/option_table.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "loci/base/check.h"

namespace loci {
namespace {

std::vector<Option> make_table() {
  std::vector<Option> out;
  for (const auto& group :
       {&network_options, &compute_options, &sampling_options, &scheduling_options, &state_options,
        &store_options, &cluster_options, &tenants_options, &logging_options}) {
    std::vector<Option> rows = group();
    std::move(rows.begin(), rows.end(), std::back_inserter(out));
  }
  std::set<std::string> flags;
  for (const Option& option : out) {
    LOCI_CHECK(flags.insert(option.flag).second, "two options have one flag");
    const bool known = std::any_of(option_groups().begin(), option_groups().end(),
                                   [&](const OptionGroup& group) { return group.name == option.group; });
    LOCI_CHECK(known, "an option is in a group that there is not");
  }
  return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<OptionGroup>& option_groups() {
  static const std::vector<OptionGroup> groups = {
      {"network", "where the server listens, and the limits of requests"},
      {"compute", "the model and what computes it"},
      {"sampling", "how tokens are drawn if the request does not say"},
      {"scheduling", "which requests run, and whose state is kept"},
      {"state", "where state is kept besides the device, and for how long"},
      {"store", "conversations that the server keeps"},
      {"cluster", "servers that are members of one cluster"},
      {"tenants", "who may use the server, and how much of it"},
      {"logging", "what is written about the server's work"},
  };
  return groups;
}

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

const Option* find_option(std::string_view key) {
  for (const Option& option : option_table()) {
    if (option.key() == key) return &option;
  }
  return nullptr;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  // A key that is right but for its group is meant more surely than any other.
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  std::string best;
  // (Of two letters any other two are two changes away: `ps` is not `rm`.)
  std::size_t best_distance = name.size() < 4 ? 2 : std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const bool elsewhere = candidate.ends_with(std::string(".").append(leaf));
    const std::size_t distance = elsewhere ? 0 : edit_distance(name.substr(0, 100), candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace loci
