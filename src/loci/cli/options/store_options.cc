// SPDX-License-Identifier: Apache-2.0
// Conversations that the server keeps.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/serve/store/open_store.h"

namespace loci {

std::vector<Option> store_options() {
  const std::string group = "store";
  Option store = text_option({group, "--store",
                              "where conversations are stored: a file, or a PostgreSQL database "
                              "(postgresql://...); none stores nothing"},
                             "FILE|URL", [](auto& flags) -> auto& { return flags.store; });
  store.default_note = "conversations.db in the user's state folder";
  store.set = [set = store.set](ServerConfig& flags, const std::string& text) -> Status {
    LOCI_RETURN_IF_ERROR(check_store_place(text));
    return set_unless_none(set, flags, text);
  };
  // Never with a password in it: libpq looks for one in ~/.pgpass too.
  store.get = [](const ServerConfig& flags) -> std::optional<std::string> {
    if (!flags.store) return std::nullopt;
    return describe_store(*flags.store);
  };
  Option size = bytes_option({group, "--store-size",
                              "the most space that stored conversations take; beyond it those that were "
                              "unused for longest are deleted; 0 sets no limit"},
                             [](auto& flags) -> auto& { return flags.store_size; });
  size.set = [](ServerConfig& flags, const std::string& text) -> Status {
    const Result<std::uint64_t> bytes = parse_bytes(text, "");
    if (!bytes.ok()) return invalid_argument(bytes.status().message());
    flags.store_size = *bytes > 0 ? std::optional<std::uint64_t>(*bytes) : std::nullopt;
    return {};
  };
  size.get = [](const ServerConfig& flags) {
    return std::optional<std::string>(exact_bytes(flags.store_size.value_or(0)));
  };
  return {
      std::move(store),
      limit_duration_option(
          {group, "--store-age", "how long a conversation is kept after its last use; 0 keeps it for ever"},
          [](auto& flags) -> auto& { return flags.store_age; }),
      std::move(size),
  };
}

}  // namespace loci
