// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/check.h"

namespace loci {
namespace {

using NodePtr = RedisTopology::NodePtr;

constexpr int kRedirectsMax = 5;  // of one command
constexpr Nanos kTendLimit = kNanosPerSecond / 2;
constexpr std::uint64_t kRedirectBytesMax = 64u << 10;
constexpr Nanos kNodeConnectLimit = kNanosPerSecond;  // to one node
// A node that sends nothing of a reply for so long is left alone, so that the others' replies are not lost.
constexpr Nanos kSilenceLimit = 2 * kNanosPerSecond;
constexpr Nanos kDetectLimit = kNanosPerSecond / 2;

Result<std::unique_ptr<RedisConnection>> connect_to_node(RedisNode& node, const Clock& clock,
                                                         const RedisStop& stop, Nanos deadline) {
  return RedisConnection::open(node.address, node.resolver, clock, stop,
                               std::min(deadline, clock.now() + kNodeConnectLimit));
}

// Tells nothing of a node: whoever asked gave up.
bool is_stop(const Status& status) { return status.code() == StatusCode::kCancelled; }

// A single server; what it says of other nodes makes the store a cluster.
class LoneConnection final : public RedisConnection {
 public:
  LoneConnection(std::unique_ptr<RedisConnection> connection, RedisTopology& topology)
      : connection_(std::move(connection)), topology_(topology) {}
  bool is_open() const override { return !topology_.is_cluster() && connection_->is_open(); }
  Status send(const Words& command, Nanos deadline) override { return connection_->send(command, deadline); }
  Status receive(std::uint64_t bytes_max, Nanos deadline, RedisReply& reply) override {
    LOCI_RETURN_IF_ERROR(connection_->receive(bytes_max, deadline, reply));
    if (reply.kind != RedisReply::Kind::kError || !parse_redis_redirect(reply.text())) return {};
    topology_.set_cluster();
    topology_.want_tending();
    return {StatusCode::kUnavailable, "the store is a Redis Cluster, whose nodes are asked from now on"};
  }

 private:
  const std::unique_ptr<RedisConnection> connection_;
  RedisTopology& topology_;
};

class ClusterConnection final : public RedisConnection {
 public:
  ClusterConnection(RedisTopology& topology, RedisDialing dialing, const Clock& clock, const RedisStop& stop)
      : topology_(topology), dialing_(dialing), clock_(clock), stop_(stop) {}

  // To all nodes that are not away. Errors: no node is there.
  Status dial(Nanos deadline) {
    Status last(StatusCode::kUnavailable, "no node of the cluster is reached");
    for (const NodePtr& node : topology_.nodes()) {
      if (node->is_away) continue;
      Result<RedisConnection*> made = line_to(node, deadline);
      if (made.ok() && dialing_ == RedisDialing::kAsNeeded) return {};
      if (!made.ok()) last = made.status();
      if (is_stop(last)) return last;
    }
    return lines_.empty() ? last : Status();
  }

  bool is_open() const override {
    if (dialing_ == RedisDialing::kAsNeeded) return true;  // each line is looked at when it is used
    const std::vector<NodePtr> nodes = topology_.nodes();
    return std::all_of(nodes.begin(), nodes.end(), [this](const NodePtr& node) {
      const auto line = lines_.find(node);
      return node->is_away || (line != lines_.end() && line->second->is_open());
    });
  }

  Status send(const Words& command, Nanos deadline) override {
    LOCI_CHECK(command.size() > 1, "a command with a key");
    const Nanos begun = clock_.now();
    Sent sent{.node = topology_.node_of(redis_slot(command[1])), .words = {}};
    for (const std::string_view word : command) sent.words.emplace_back(word);
    if (sent.node == nullptr) topology_.want_tending();
    if (sent.node == nullptr || sent.node->is_away) {
      sent.node = nullptr;
    } else {
      Result<RedisConnection*> line = line_to(sent.node, deadline);
      if (line.ok()) {
        const Status status = (*line)->send(command, deadline);
        if (!status.ok()) lose(sent.node, status, begun);
        if (!status.ok() && is_over(status, deadline)) return status;
        if (!status.ok()) sent.node = nullptr;
      } else {
        if (is_over(line.status(), deadline)) return line.status();
        sent.node = nullptr;
      }
    }
    sent_.push_back(std::move(sent));
    return {};
  }

  Status receive(std::uint64_t bytes_max, Nanos deadline, RedisReply& reply) override {
    LOCI_CHECK(!sent_.empty(), "a reply to something");
    const Sent sent = std::move(sent_.front());
    sent_.pop_front();
    const auto line = sent.node == nullptr ? lines_.end() : lines_.find(sent.node);
    if (line == lines_.end()) return all_away() ? nobody() : away(reply);
    const Nanos begun = clock_.now();
    const Nanos patience = std::min(deadline, begun + kSilenceLimit);
    const Status status = line->second->receive(bytes_max, patience, reply);
    if (!status.ok()) {
      lose(sent.node, status, begun);
      if (is_over(status, deadline)) return status;
      return all_away() ? nobody() : away(reply);
    }
    return follow(sent, bytes_max, deadline, reply);
  }

 private:
  struct Sent {
    NodePtr node;  // null: nobody
    std::vector<std::string> words;
  };
  using Lines = std::map<NodePtr, std::unique_ptr<RedisConnection>>;

  static Status away(RedisReply& reply) {
    reply.kind = RedisReply::Kind::kAway;
    reply.bytes.clear();
    reply.integer = 0;
    return {};
  }
  // Whoever asked has no time left, not the node alone.
  bool is_over(const Status& status, Nanos deadline) const {
    return is_stop(status) || clock_.now() >= deadline;
  }
  static Status nobody() { return {StatusCode::kUnavailable, "no node of the cluster answers"}; }
  bool all_away() const {
    const std::vector<NodePtr> nodes = topology_.nodes();
    return std::all_of(nodes.begin(), nodes.end(), [](const NodePtr& node) { return node->is_away.load(); });
  }

  // Replies to what this node was sent since `begun` do not come. All others are told that it is away, unless
  // nobody had the time to wait for it.
  void lose(const NodePtr& node, const Status& why, Nanos begun) {
    for (Sent& one : sent_) {
      if (one.node == node) one.node = nullptr;
    }
    lines_.erase(node);
    asides_.erase(node);
    const bool had_time =
        why.code() != StatusCode::kDeadlineExceeded || clock_.now() - begun >= kRedisFairWait;
    if (!is_stop(why) && had_time) topology_.failed(*node);
  }

  // Connections to nodes that have left the cluster; whoever took their place gets a new one.
  void drop_strangers() {
    const std::vector<NodePtr> nodes = topology_.nodes();
    const auto is_stranger = [&](const auto& line) {
      const NodePtr& node = line.first;
      return std::find(nodes.begin(), nodes.end(), node) == nodes.end() &&
             std::none_of(sent_.begin(), sent_.end(), [&](const Sent& one) { return one.node == node; });
    };
    std::erase_if(lines_, is_stranger);
    std::erase_if(asides_, is_stranger);
  }

  Result<RedisConnection*> line_to(const NodePtr& node, Nanos deadline) {
    auto line = lines_.find(node);
    const auto waits = [&](const Sent& one) { return one.node == node; };
    // What closed it may have been a restart since it was last used.
    if (line != lines_.end() && !line->second->is_open() && std::none_of(sent_.begin(), sent_.end(), waits)) {
      lines_.erase(line);
      line = lines_.end();
    }
    if (line == lines_.end()) {
      drop_strangers();
      const Nanos begun = clock_.now();
      Result<std::unique_ptr<RedisConnection>> made = connect_to_node(*node, clock_, stop_, deadline);
      if (!made.ok()) {
        lose(node, made.status(), begun);
        return made.status();
      }
      line = lines_.emplace(node, std::move(made).value()).first;
    }
    return line->second.get();
  }

  // Asks whoever a reply names, until one answers.
  Status follow(const Sent& sent, std::uint64_t bytes_max, Nanos deadline, RedisReply& reply) {
    NodePtr said_by = sent.node;
    for (int i = 0; reply.kind == RedisReply::Kind::kError; ++i) {
      if (says_redis_away(reply.text())) {
        topology_.want_tending();
        return away(reply);
      }
      const std::optional<RedisRedirect> redirect = parse_redis_redirect(reply.text());
      if (!redirect) return {};
      const NodePtr node = topology_.node_at(redirect->place, *said_by);
      if (i == kRedirectsMax || node == nullptr) {
        topology_.want_tending();
        return away(reply);
      }
      if (!redirect->is_for_once) topology_.moved(redirect->slot, node);
      if (node->is_away) return away(reply);
      const Nanos begun = clock_.now();
      const Status status = ask_aside(node, sent, redirect->is_for_once, bytes_max, deadline, reply);
      if (!status.ok()) {
        lose(node, status, begun);
        if (is_over(status, deadline)) return status;
        return away(reply);
      }
      said_by = node;
    }
    return {};
  }

  Status ask_aside(const NodePtr& node, const Sent& sent, bool is_for_once, std::uint64_t bytes_max,
                   Nanos deadline, RedisReply& reply) {
    std::unique_ptr<RedisConnection>& aside = asides_[node];
    if (aside == nullptr || !aside->is_open()) {
      aside.reset();
      LOCI_ASSIGN_OR_RETURN(aside, connect_to_node(*node, clock_, stop_, deadline));
    }
    if (is_for_once) LOCI_RETURN_IF_ERROR(aside->send({"ASKING"}, deadline));
    const Words words(sent.words.begin(), sent.words.end());
    LOCI_RETURN_IF_ERROR(aside->send(words, deadline));
    const Nanos patience = std::min(deadline, clock_.now() + kSilenceLimit);
    if (is_for_once) LOCI_RETURN_IF_ERROR(aside->receive(kRedirectBytesMax, patience, reply));
    return aside->receive(bytes_max, patience, reply);
  }

  RedisTopology& topology_;
  const RedisDialing dialing_;
  const Clock& clock_;
  const RedisStop& stop_;
  Lines lines_;            // for commands, in order
  Lines asides_;           // for commands that were redirected
  std::deque<Sent> sent_;  // without a reply yet
};

Status read_map(RedisTopology& topology, RedisNode& node, RedisConnection& connection, Nanos deadline) {
  RedisReply reply;
  LOCI_RETURN_IF_ERROR(connection.send({"CLUSTER", "NODES"}, deadline));
  LOCI_RETURN_IF_ERROR(connection.receive(kRedisNodesBytesMax, deadline, reply));
  if (reply.kind != RedisReply::Kind::kBytes)
    return {StatusCode::kUnavailable,
            fmt::format("the store does not say which nodes it has: {}", reply.text().substr(0, 200))};
  LOCI_ASSIGN_OR_RETURN(const std::vector<RedisSlotRange> ranges, parse_redis_nodes(reply.text()));
  topology.load(ranges, node);
  return {};
}

// By the first node that says it, the seed last.
Status read_map(RedisTopology& topology, const Clock& clock, const RedisStop& stop, Nanos deadline) {
  std::vector<NodePtr> nodes = topology.nodes();
  if (nodes.back() != topology.seed()) nodes.push_back(topology.seed());
  Status last;
  for (const NodePtr& node : nodes) {
    if (node->is_away && node != topology.seed()) continue;
    Result<std::unique_ptr<RedisConnection>> made = connect_to_node(*node, clock, stop, deadline);
    last = made.ok() ? read_map(topology, *node, **made, deadline) : made.status();
    if (last.ok() || is_stop(last)) return last;
  }
  return last;
}

Result<std::unique_ptr<RedisConnection>> open_cluster(RedisTopology& topology, RedisDialing dialing,
                                                      const Clock& clock, const RedisStop& stop,
                                                      Nanos deadline) {
  auto cluster = std::make_unique<ClusterConnection>(topology, dialing, clock, stop);
  LOCI_RETURN_IF_ERROR(cluster->dial(deadline));
  return std::unique_ptr<RedisConnection>(std::move(cluster));
}

Result<std::unique_ptr<RedisConnection>> connect_to_seed(RedisTopology& topology, const Clock& clock,
                                                         const RedisStop& stop, Nanos deadline) {
  RedisNode& seed = *topology.seed();
  return RedisConnection::open(seed.address, seed.resolver, clock, stop, deadline);
}

}  // namespace

Result<std::unique_ptr<RedisConnection>> open_redis(RedisTopology& topology, RedisDialing dialing,
                                                    const Clock& clock, const RedisStop& stop,
                                                    Nanos deadline) {
  if (topology.is_cluster()) return open_cluster(topology, dialing, clock, stop, deadline);
  LOCI_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> seed,
                        connect_to_seed(topology, clock, stop, deadline));
  if (topology.begin_detection()) {
    const Nanos limit = std::min(deadline, clock.now() + kDetectLimit);
    const Status read = read_map(topology, *topology.seed(), *seed, limit);
    if (read.ok()) topology.set_cluster();
    if (read.ok()) return open_cluster(topology, dialing, clock, stop, deadline);
    if (is_stop(read)) return read;
    // Some proxies close the connection upon what they do not know.
    LOCI_ASSIGN_OR_RETURN(seed, connect_to_seed(topology, clock, stop, deadline));
  }
  return std::unique_ptr<RedisConnection>(std::make_unique<LoneConnection>(std::move(seed), topology));
}

bool tend_redis_cluster(RedisTopology& topology, const Clock& clock, const RedisStop& stop) {
  topology.tended();
  const Status read = read_map(topology, clock, stop, clock.now() + kTendLimit);
  bool is_well = read.ok();
  for (const NodePtr& node : topology.nodes()) {
    if (!node->is_away || is_stop(read)) continue;
    const bool is_there = connect_to_node(*node, clock, stop, clock.now() + kTendLimit).ok();
    if (is_there) topology.reached(*node);
    is_well = is_well && is_there;
  }
  return is_well;
}

}  // namespace loci
