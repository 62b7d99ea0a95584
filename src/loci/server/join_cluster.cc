// SPDX-License-Identifier: Apache-2.0
#include "loci/server/join_cluster.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "loci/base/clock.h"
#include "loci/base/version.h"
#include "loci/cluster/cluster_secret.h"
#include "loci/cluster/handed_prompt.h"
#include "loci/cluster/resumed_request.h"
#include "loci/memory/chain_key.h"
#include "loci/serve/http/page_guard.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/store/open_store.h"
#include "loci/serve/store/postgres_url.h"
#include "loci/serve/store/store_keeper.h"
#include "loci/server/profile/profile_file.h"

namespace loci {
namespace {

// As others reach it.
std::string reachable_host(const std::string& host) { return is_any_address(host) ? machine_name() : host; }

}  // namespace

Status check_advertised(const ServerConfig& config, spdlog::logger& log) {
  const std::string host = reachable_host(config.http.host);
  if (!config.advertise.empty() || !is_loopback_host(host)) return {};
  const std::string address =
      config.http.port == 0 ? host : Member{.host = host, .port = config.http.port}.address();
  const Result<bool> is_local = is_local_database(config.join);
  if (!is_local.ok()) return Status(is_local.status().code(), is_local.status().message(), "join");
  if (*is_local) {
    log.warn(
        "this server tells the cluster that it is at {}, where only this machine finds it (option "
        "`advertise`)",
        address);
    return {};
  }
  return invalid_argument(
      fmt::format(
          "the cluster's database is on another machine, but this server's address would be {}, which "
          "every machine takes for itself: give the HOST:PORT at which others reach this server, or let "
          "it listen on another address (option host: 0.0.0.0)",
          address),
      "advertise");
}

Member member_serving(const ServedModel& served) {
  return {.fingerprint = fingerprint_text(served.model->spec.fingerprint),
          .numerics = fmt::format("{} {}", kNumericsVersion, served.backend.layout),
          .block_tokens = kBlockTokens};
}

Result<std::unique_ptr<Membership>> join_cluster(std::unique_ptr<MemberTable> table,
                                                 const ServerConfig& config, std::uint16_t port,
                                                 const ServedModel& served, std::string store,
                                                 PeerState& peers, std::shared_ptr<spdlog::logger> log) {
  LOCI_ASSIGN_OR_RETURN(const MemberRole role, parse_member_role(config.role));
  Member member = member_serving(served);
  member.id = random_member_id();
  member.host = reachable_host(config.http.host);
  member.port = port;
  member.tls = config.http.tls.given();
  member.models = {served.model->id};
  member.any_model = served.any_name;
  member.version = kVersion;
  member.store = std::move(store);
  member.peer_port = peers.port();
  member.role = role;
  member.models.insert(member.models.end(), served.aliases.begin(), served.aliases.end());
  if (!config.advertise.empty()) {
    LOCI_ASSIGN_OR_RETURN(auto address, parse_member_address(config.advertise));
    std::tie(member.host, member.port) = std::move(address);
  }
  LOCI_RETURN_IF_ERROR(check_names(member));
  const auto load = [engine = served.engine] {
    const CoreStats stats = engine->stats();
    MemberLoad out{.running = stats.running,
                   .queued = stats.queued,
                   .stalls = engine->health().code() == StatusCode::kDeadlineExceeded};
    constexpr std::array kShown = {Tier::kDevice, Tier::kHost, Tier::kDisk};
    static_assert(kShown.size() == kMemberTiers.size());
    for (std::size_t i = 0; i < kShown.size(); ++i) {
      const TierStats& tier = stats.tiers[static_cast<std::size_t>(kShown[i])];
      out.slots[i] = {.held = tier.slots - tier.free, .all = tier.slots};
    }
    return out;
  };
  const std::string said = fmt::format("{} at {}", member.id, member.address());
  const Member self = member;
  Result<std::unique_ptr<Membership>> joined =
      Membership::join(std::move(table), std::move(member), load, log);
  if (!joined.ok()) return Status(joined.status().code(), joined.status().message(), "join");
  log->info("joined the cluster as {}", said);
  LOCI_RETURN_IF_ERROR(watch_peers(peers, config, self, log));
  return joined;
}

Result<std::function<std::optional<ResumedReply>(HttpRequest& request)>> resumed_reader(
    const std::string& secret_file) {
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(secret_file));
  return std::function<std::optional<ResumedReply>(HttpRequest & request)>(
      [key = cluster_reply_key(secret)](HttpRequest& request) { return take_resumed_reply(key, request); });
}

Result<std::function<bool(const HttpRequest& request)>> lost_reader(const std::string& secret_file) {
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(secret_file));
  return std::function<bool(const HttpRequest& request)>(
      [replies = std::make_shared<LostReplies>(cluster_reply_key(secret))](const HttpRequest& request) {
        return replies->take(request, seconds_since_1970());
      });
}

Result<std::function<std::optional<PrefillPlace>(const HttpRequest& request)>> prefill_reader(
    const std::string& secret_file) {
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(secret_file));
  return std::function<std::optional<PrefillPlace>(const HttpRequest& request)>(
      [key = cluster_prefill_key(secret)](const HttpRequest& request) {
        return read_prefill_header(key, request);
      });
}

Result<std::unique_ptr<ClusterLimits>> open_cluster_limits(const ServerConfig& config, std::string member,
                                                           std::shared_ptr<spdlog::logger> log) {
  LOCI_ASSIGN_OR_RETURN(const ClusterSecret secret, read_cluster_secret(config.cluster_secret));
  const std::uint64_t seed = std::hash<std::string>{}(member);  // each member's pauses are its own
  Result<std::unique_ptr<LimitTable>> table =
      LimitTable::open(config.join, cluster_member_key(secret), std::move(member));
  if (!table.ok()) return Status(table.status().code(), table.status().message(), "join");
  return std::make_unique<ClusterLimits>(std::move(table).value(), std::move(log), seed);
}

void watch_other_servers(WorkerPool& store_thread, ConversationStore* store,
                         const std::shared_ptr<Membership>& membership, std::shared_ptr<spdlog::logger> log) {
  constexpr Nanos kPeriod = 2 * kNanosPerSecond;
  if (store == nullptr || store->server().empty()) return;
  const auto ended = [weak = std::weak_ptr(membership)] {
    const std::shared_ptr<Membership> member = weak.lock();
    return member ? member->ended_stores() : std::vector<std::string>();
  };
  fail_interrupted_responses(store_thread, *store, kPeriod, ended, std::move(log));
}

}  // namespace loci
