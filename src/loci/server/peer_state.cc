// SPDX-License-Identifier: Apache-2.0
#include "loci/server/peer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "loci/cluster/feed/block_feed.h"
#include "loci/cluster/peers/peer_tls.h"
#include "loci/cluster/peers/prefill_calls.h"
#include "loci/cluster/routed_request.h"
#include "loci/engine/core/link_times.h"
#include "loci/memory/chain_key.h"
#include "loci/server/open_members.h"
#include "loci/server/profile/profile_file.h"

namespace loci {
namespace {

// Equal where a block of one is the block of another, and both read the same messages.
std::string state_name(const ModelSpec& spec, const BackendInfo& backend) {
  return fmt::format("{}; numerics {}; {}; {} tokens a block; messages {}",
                     fingerprint_text(spec.fingerprint), kNumericsVersion, backend.layout, kBlockTokens,
                     kPeerBytesVersion);
}

std::vector<PeerAddress> peers_of(const Member& self, const std::vector<Member>& members) {
  std::vector<PeerAddress> peers;
  for (const Member& member : members) {
    const bool same = member.fingerprint == self.fingerprint && member.numerics == self.numerics &&
                      member.block_tokens == self.block_tokens;
    if (same && member.id != self.id && member.peer_port != 0)
      peers.push_back({.id = member.id, .host = member.host, .port = member.peer_port});
  }
  return peers;
}

// As fronts name it (cluster/routed_request.h).
PromptNames prompt_names(const HttpRequest& request, std::string_view id, const PromptKey& cluster) {
  const std::string_view target = request.target;
  const PromptKey key = prompt_key_of(request, cluster);
  RoutedPrompt prompt = read_prompt(request.method, target.substr(0, target.find('?')), request.body, key);
  PromptNames out;
  if (prompt.is_conversation) out.ends.push_back(*prompt.continues);
  if (!id.empty()) out.ends.push_back(continued_key(id, key));
  // What is gone on from is a part of the prompt, and not of the text.
  if (prompt.continues) return out;
  out.chunks = std::move(prompt.keys);
  out.chunk_bytes = kPromptChunkBytes;
  out.bytes = prompt.bytes;
  return out;
}

std::uint64_t random_epoch() {
  std::random_device random;
  return ((std::uint64_t{random()} << 32) | random()) | 1;
}

// `computed`: tokens; absent: it did not begin.
PrefillNews last_news(const GenerationEnded& end, std::optional<std::uint32_t> computed) {
  // It has no time limit of its own, so only a stop ends it at one.
  const bool stops = end.status.ok() && end.reason == FinishReason::kDeadline;
  if (stops || (!computed && end.status.code() == StatusCode::kUnavailable))
    return {.says = PrefillNews::Says::kUnable};
  if (!computed) return {.says = PrefillNews::Says::kRefused};
  if (end.status.ok() && end.reason == FinishReason::kLength)
    return {.says = PrefillNews::Says::kDone, .tokens = *computed};
  return {.says = PrefillNews::Says::kBroke};
}

class EngineSource final : public PeerSource {
 public:
  EngineSource(Engine& engine, std::uint32_t vocabulary) : engine_(engine), vocabulary_(vocabulary) {}
  void ask(PeerQuestion question) override { engine_.ask_for_peer(std::move(question)); }
  void read(PeerRead read, Nanos time_limit) override { engine_.read_for_peer(std::move(read), time_limit); }
  void leave(PeerReadId read) override { engine_.leave_peer(read); }
  // A request of one token, which nobody reads: what was computed before it stays as any reply's state does.
  RequestId prefill(PrefillWork work, std::function<void(PrefillNews)> tell) override {
    const auto is_known = [&](TokenId token) { return token.value < vocabulary_; };
    if (!std::ranges::all_of(work.tokens, is_known)) {
      tell({.says = PrefillNews::Says::kRefused});
      return {};
    }
    const auto tokens = static_cast<std::uint32_t>(work.tokens.size());
    GenerationRequest request{.tenant = std::move(work.tenant),
                              .prompt = std::move(work.tokens),
                              .sampling = {},
                              .max_new_tokens = 1,
                              .stop_tokens = {},
                              .time_limit = {},
                              .weight = work.weight,
                              .queued_max = work.queued_max,
                              .salt = std::move(work.salt),
                              .text = std::move(work.text),
                              .tells_computed = true};
    auto listener = [tell = std::move(tell), tokens,
                     computed = std::optional<std::uint32_t>()](const GenerationEvent& event) mutable {
      if (const auto* started = std::get_if<GenerationStarted>(&event)) {
        computed = tokens - std::min(tokens, started->cached_tokens);
        tell({.says = PrefillNews::Says::kComputes});  // what it had may be on its disk yet
      } else if (const auto* restored = std::get_if<GenerationRestored>(&event)) {
        computed = tokens - std::min(tokens, restored->sources.cached());
      } else if (const auto* more = std::get_if<PromptComputed>(&event)) {
        tell({.says = PrefillNews::Says::kComputes, .tokens = more->tokens});
      } else if (const auto* end = std::get_if<GenerationEnded>(&event)) {
        tell(last_news(*end, computed));
      }
    };
    return engine_.submit(std::move(request), std::move(listener));
  }
  void leave_prefill(RequestId prefill) override { engine_.cancel(prefill); }

 private:
  Engine& engine_;
  const std::uint32_t vocabulary_;
};

}  // namespace

void PeerState::start(Engine& engine) {
  if (!server) return;
  source = std::make_unique<EngineSource>(engine, vocabulary);
  server->start(*source);
}

void PeerState::stop() {
  watch.reset();
  if (server) server->stop();
}

bool takes_part_in_peers(const ServerConfig& config) {
  return !config.join.empty() && !config.cluster_secret.empty() && config.peer_port.has_value();
}

Result<PeerState> open_peer_state(const ServerConfig& config, const std::optional<ClusterSecret>& secret,
                                  const ModelSpec& spec, const BackendInfo& backend, EngineOptions& options,
                                  const Clock& clock, std::shared_ptr<spdlog::logger> log) {
  PeerState state;
  if (!takes_part_in_peers(config) || !secret) return state;
  const PeerKey key = cluster_peer_key(*secret);
  LOCI_ASSIGN_OR_RETURN(TlsContext accepts, make_peer_server_tls(key));
  LOCI_ASSIGN_OR_RETURN(TlsContext connects, make_peer_client_tls(key));
  const std::string name = state_name(spec, backend);
  const auto feed = std::make_shared<BlockFeed>(
      BlockFeedOptions{.epoch = random_epoch(),
                       .block_bytes = backend.block_bytes,
                       .peer_read = options.mover.shared ? std::optional(kPeersAssumed) : std::nullopt});
  state.server = std::make_shared<PeerServer>(
      PeerServerOptions{.host = config.http.host,
                        .port = *config.peer_port,
                        .tls = std::move(accepts),
                        .state = name,
                        .group_count = static_cast<std::uint32_t>(backend.groups.size()),
                        .feed = feed},
      clock, log);
  const Status listens = state.server->listen();
  if (!listens.ok())
    return Status(listens.code(), listens.message(),
                  listens.field() == "port" ? "peer_port" : listens.field());
  state.list = std::make_shared<PeerList>();
  PeerStoreOptions store{.peers = state.list,
                         .tls = connects,
                         .state = name,
                         .groups = {},
                         .store = std::move(options.mover.shared),
                         .warn = [log](const std::string& line) { log->warn(line); }};
  for (const LayerGroup& group : backend.groups) {
    store.groups.push_back({.layers = static_cast<std::uint32_t>(group.layers.size()),
                            .layer_slice_bytes = group.layer_slice_bytes});
  }
  options.core.writes_shared = store.store != nullptr;
  options.core.shared_rounds = store.rounds;
  options.mover.shared = make_peer_store(std::move(store), clock);
  options.mover.peers = state.server;
  options.listener = feed;
  state.vocabulary = spec.vocabulary;
  state.ask_for_prefill = prefill_caller(connects, name, state.list);
  state.feed_stats = [feed] { return feed->stats(); };
  state.name_prompt = [key = cluster_prompt_key(*secret)](const HttpRequest& request, std::string_view id) {
    return prompt_names(request, id, key);
  };
  return state;
}

void know_peers(PeerState& peers, const Member& self, const MemberList& members) {
  if (peers.list) peers.list->set(peers_of(self, members.members));
}

Status watch_peers(PeerState& peers, const ServerConfig& config, const Member& self,
                   std::shared_ptr<spdlog::logger> log) {
  if (!peers.list) return {};
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<MemberTable> table, open_members(config.join, config.cluster_secret));
  const auto tell = [list = peers.list, self](const MemberList& members) {
    list->set(peers_of(self, members.members));
  };
  peers.watch = std::make_unique<MemberWatch>(std::move(table), tell, std::move(log));
  return {};
}

}  // namespace loci
