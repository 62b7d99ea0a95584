// SPDX-License-Identifier: Apache-2.0
// A front's readers of what instances publish (feed_wire.h): each instance is asked for changes repeatedly,
// over the peers' port, and its answers go into the front's picture of it (cluster/instances.h).
//
// If an instance answers wrongly, or not at all, its connection is closed and its published state is
// forgotten; the front then guesses as if it published nothing. It is asked again after kPauseMin, then after
// twice as long, up to kPauseMax. A gap, behind which all that the instance has is read again, has the same
// pause after it. Until all is read the earlier picture counts.
//
// All instances together are asked for changes 500 times a second at most, and for pages 500 times; for the
// pages of kSnapshotsMax instances at a time.
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
#include "loci/cluster/feed/feed_pauses.h"
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
  // Instances whose pages are read at a time.
  static constexpr int kSnapshotsMax = 4;
  // Of one instance; an honest one has 64 (kFeedChunksMax / kFeedEntriesMax).
  static constexpr int kPagesMax = 128;

  // `instances` outlives the last turn of `io`, whose coroutines keep the reader.
  FeedReader(boost::asio::io_context& io, TlsContext tls, Instances& instances,
             std::shared_ptr<spdlog::logger> log);

  // Reads what the instance publishes, if it does, as long as it is an instance. Further calls do nothing.
  void follow(std::shared_ptr<Instance> instance);
  // Closes all connections, and no more are made. Also for when the network thread has stopped.
  void stop();
  const FeedReaderStats& stats() const { return stats_; }

 private:
  static boost::asio::awaitable<void> read(std::shared_ptr<FeedReader> self,
                                           std::shared_ptr<Instance> instance);
  boost::asio::awaitable<Status> read_on(Instance& instance, FeedPauses& pauses);
  // Waits until fewer than kSnapshotsMax others are read.
  boost::asio::awaitable<Status> read_snapshot(Instance& instance, FeedQuestion& question);
  boost::asio::awaitable<Status> read_pages(Instance& instance, FeedQuestion& question);
  // The body of the reply.
  boost::asio::awaitable<Result<std::string>> ask(const Instance& instance, std::string_view path,
                                                  std::string body, Nanos limit);
  boost::asio::awaitable<void> wait(Nanos time);
  bool is_read(const Instance& instance) const {
    return !is_stopping_ && instances_.all().contains(instance.number);
  }

  boost::asio::io_context& io_;
  PeerCalls calls_;
  Instances& instances_;
  const std::shared_ptr<spdlog::logger> log_;
  std::set<std::uint32_t> followed_;  // numbers
  int snapshots_now_ = 0;
  bool is_stopping_ = false;
  FeedReaderStats stats_;
};

}  // namespace loci
