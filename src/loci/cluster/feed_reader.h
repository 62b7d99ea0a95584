// SPDX-License-Identifier: Apache-2.0
// A front's readers of what instances publish (feed_wire.h): each instance is asked for changes repeatedly,
// over the peers' port, and its answers go into the front's picture of it (cluster/instances.h).
//
// If an instance answers wrongly, or not at all, its connection is closed and its published state is
// forgotten; the front then guesses as if it published nothing. It is asked again after kPauseMin, then after
// twice as long, up to kPauseMax. All instances together are asked a thousand times a second at most.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cluster/feed/feed_wire.h"
#include "loci/cluster/instances.h"
#include "loci/cluster/peers/peer_calls.h"

namespace loci {

struct FeedReaderStats {
  std::uint64_t changes_total = 0;
  std::uint64_t snapshots_total = 0;
  std::uint64_t failures_total = 0;
};

// Only for the network thread.
class FeedReader : public std::enable_shared_from_this<FeedReader> {
 public:
  static constexpr Nanos kPauseMin = kNanosPerSecond, kPauseMax = 8 * kNanosPerSecond;

  // `instances` outlives the last turn of `io`, whose coroutines keep the reader.
  FeedReader(boost::asio::io_context& io, TlsContext tls, Instances& instances,
             std::shared_ptr<spdlog::logger> log);

  // Reads what the instance publishes, if it does, as long as it is an instance. Further calls do nothing.
  void follow(std::shared_ptr<Instance> instance);
  const FeedReaderStats& stats() const { return stats_; }

 private:
  static boost::asio::awaitable<void> read(std::shared_ptr<FeedReader> self,
                                           std::shared_ptr<Instance> instance);
  boost::asio::awaitable<Status> read_on(Instance& instance);
  boost::asio::awaitable<Status> read_pages(Instance& instance, FeedQuestion& question);
  // The body of the reply.
  boost::asio::awaitable<Result<std::string>> ask(const Instance& instance, std::string_view path,
                                                  std::string body, Nanos limit);
  bool is_instance(const Instance& instance) const { return instances_.all().contains(instance.number); }

  boost::asio::io_context& io_;
  PeerCalls calls_;
  Instances& instances_;
  const std::shared_ptr<spdlog::logger> log_;
  std::set<std::uint32_t> followed_;  // numbers
  FeedReaderStats stats_;
};

}  // namespace loci
