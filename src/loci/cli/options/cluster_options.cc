// SPDX-License-Identifier: Apache-2.0
// Membership of a cluster of servers. (--cluster-secret, which names state alike without it, is among the
// state's.)
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/cluster/member.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/store/open_store.h"
#include "loci/server/open_members.h"

namespace loci {

std::vector<Option> cluster_options() {
  const std::string group = "cluster";
  Option join = text_option({group, "--join",
                             "the PostgreSQL database (postgresql://...) that lists the members of a cluster "
                             "(docs/cluster.md): the server becomes one of them, and stores conversations "
                             "there too, unless --store names another place; needs --cluster-secret"},
                            "URL", [](auto& flags) -> auto& { return flags.join; });
  join.set = [set = join.set](ServerConfig& flags, const std::string& text) -> Status {
    if (!text.empty()) LOCI_RETURN_IF_ERROR(check_join_url(text));
    return set(flags, text);
  };
  join.get = [](const ServerConfig& flags) { return std::optional<std::string>(describe_store(flags.join)); };
  Option advertise =
      text_option({group, "--advertise",
                   "the address at which fronts and other members of the cluster reach this server"},
                  "HOST:PORT", [](auto& flags) -> auto& { return flags.advertise; });
  advertise.default_note = "the address that it listens on, or this machine's name";
  advertise.set = [set = advertise.set](ServerConfig& flags, const std::string& text) -> Status {
    if (text.empty()) return set(flags, text);
    LOCI_ASSIGN_OR_RETURN(const auto address, parse_member_address(text));
    if (is_any_address(address.first))
      return invalid_argument(fmt::format(
          "expected an address at which others reach this server, found one to listen on, \"{}\"", text));
    return set(flags, text);
  };
  Option peer_port = integer_option(
      {group, "--peer-port",
       "the port at which other members of the cluster read this server's computed state, and fronts read "
       "which state it has (docs/cluster.md#state-from-one-another); 0 takes a free one; with none the "
       "server gives no state and reads none from other members"},
      [](auto& flags) -> auto& { return flags.peer_port; }, 0, 65535);
  peer_port.type = "PORT";
  peer_port.set = [set = peer_port.set](ServerConfig& flags, const std::string& text) -> Status {
    if (text == "none") {
      flags.peer_port.reset();
      return {};
    }
    if (!set(flags, text).ok())
      return invalid_argument(fmt::format("expected none, or a number up to 65535, found \"{}\"", text));
    return {};
  };
  peer_port.get = [get = peer_port.get](const ServerConfig& flags) {
    return std::optional<std::string>(get(flags).value_or("none"));
  };
  Option role =
      choice_option({group, "--role",
                     "what fronts send this server: requests (both, decode), or only the prompts of other "
                     "members' requests (prefill), whose state those members then read from it "
                     "(docs/cluster.md)"},
                    "ROLE", {"both", "prefill", "decode"}, [](auto& flags) -> auto& { return flags.role; });
  return {std::move(join), std::move(advertise), std::move(peer_port), std::move(role)};
}

}  // namespace loci
