// SPDX-License-Identifier: Apache-2.0
// Answers other members of the cluster: which blocks this server has, and their state (MemServe §4.3). It has
// a port and a network thread of its own, and a worker that submits long prompts. It talks only to holders of
// the cluster's secret (peer_tls.h).
//
// Fronts also ask here which prompts' state the server has (cluster/feed/), and members have it compute the
// state of prompts (prefill_wire.h), which they then read.
//
// Nothing is kept for a peer and nothing is pushed. A read names its blocks by key. Only a few blocks are
// held at a time, each until its bytes are sent (engine/core/peer_reads.h). A peer that takes nothing
// for kPeerPatience loses its connection; so does one that has not taken all of a read within its time limit
// and kPeerPatience. So blocks on their way to a peer that no longer reads are freed before other peers,
// which wait longer (PeerStoreOptions::silence_limit), give up.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/cluster/feed/block_feed.h"
#include "loci/cluster/peers/peer_wire.h"
#include "loci/cluster/peers/prefill_wire.h"
#include "loci/engine/mover/peer_outlet.h"
#include "loci/serve/http/server.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

inline constexpr Nanos kPeerPatience = 2 * kNanosPerSecond;
// Prompts that members wait for at once: fewer than connections, so that there is room for reads. Those of
// one tenant are at most as many as are left to others.
inline constexpr std::size_t kPrefillsMax = 64;

// Knows which blocks this server has: the engine (engine/run/engine.h). It reports the result of each call to
// the outlet. Thread-safe.
class PeerSource {
 public:
  virtual ~PeerSource() = default;
  virtual void ask(PeerQuestion question) = 0;
  virtual void read(PeerRead read, Nanos time_limit) = 0;  // the deadline counts from now
  virtual void leave(PeerReadId read) = 0;

  // Computes the state of a prompt. `tell` is called from any thread: when computing begins, if it does,
  // after each pass that computes some, and once with what is_last(). The call computes the prompt's keys, so
  // that of a long one takes long.
  virtual RequestId prefill(PrefillWork work, std::function<void(PrefillNews)> tell) = 0;
  // Nobody waits for it any more.
  virtual void leave_prefill(RequestId prefill) = 0;
};

struct PeerServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  TlsContext tls;
  std::string state;  // the value that kPeerStateHeader must have
  std::uint32_t group_count = 1;
  // Peers keep idle connections: beyond so many the one that is idle longest closes for a new one.
  std::size_t connections_max = 256;
  std::shared_ptr<BlockFeed> feed;  // what fronts are told; null: nothing
};

// The owner's thread calls listen(), start() and stop().
class PeerServer final : public PeerOutlet {
 public:
  PeerServer(const PeerServerOptions& options, const Clock& clock, std::shared_ptr<spdlog::logger> log);
  ~PeerServer() override;  // as stop()

  // Takes connections from now on; questions are answered 503 until start(). Errors: those of
  // HttpServer::listen().
  Status listen();
  std::uint16_t port() const { return http_->port(); }  // until stop()
  // `source`, whose outlet this is, must live until stop().
  void start(PeerSource& source) { source_ = &source; }
  // Ends all exchanges. Blocks that the source gives later are dropped at once.
  void stop();

  void answered(PeerAnswer answer) override;
  void give(const PeerSlices& slices, std::unique_ptr<const PeerBytes> given) override;
  void gone(PeerGone gone) override;

 private:
  struct Exchanged;

  boost::asio::awaitable<void> handle(Exchange& exchange);
  boost::asio::awaitable<void> answer_question(Exchange& exchange, PeerSource& source);
  boost::asio::awaitable<void> answer_read(Exchange& exchange, PeerSource& source);
  // Tells the connection how it stands: with each pulse, and when that changes. True: the last line too.
  boost::asio::awaitable<bool> tell_news(Exchange& exchange, Exchanged& exchanged, Nanos pulse);
  boost::asio::awaitable<void> answer_prefill(Exchange& exchange, PeerSource& source);
  struct Submission;
  // A place among the prompts that are computed, until the last copy goes; null: none is free for the tenant.
  std::shared_ptr<void> take_prefill_place(const TenantId& tenant);
  // Has a worker submit the prompt.
  boost::asio::awaitable<void> submit(std::shared_ptr<Submission> submission, PeerSource& source);
  struct ReadLeft;
  // Sends what the source said next. False: the connection takes no more.
  boost::asio::awaitable<bool> send_piece(Exchange& exchange, Exchanged& exchanged, ReadLeft& left);
  // Answers a front; kPeerStateHeader is not checked.
  boost::asio::awaitable<void> answer_front(Exchange& exchange);
  boost::asio::awaitable<FeedChanges> wait_for_changes(Exchange& exchange, FeedQuestion question);
  boost::asio::awaitable<void> give_whole(Exchange& exchange, std::string body);
  boost::asio::awaitable<void> refuse(Exchange& exchange, int status, std::string_view why);
  boost::asio::awaitable<void> refuse_field(Exchange& exchange, const Status& status);
  std::shared_ptr<Exchanged> begin(PeerReadId id);
  void end(PeerReadId id);
  // Calls `change` with the exchange of that id and wakes the connection that waits for it. False: that
  // connection has ended.
  bool change(PeerReadId id, const std::function<void(Exchanged&)>& change);

  const PeerServerOptions options_;
  const Clock& clock_;
  ServeMetrics metrics_;  // of the connections; not reported anywhere
  std::atomic<PeerSource*> source_{nullptr};
  std::uint64_t last_id_ = 0;  // only for the network thread, as the next one
  std::size_t prefills_ = 0;   // that are computed
  std::map<TenantId, std::size_t> prefills_of_;

  Mutex mutex_;
  std::map<PeerReadId, std::shared_ptr<Exchanged>> open_ GUARDED_BY(mutex_);
  // Last, because their threads use the fields above; null after stop(). The worker's jobs use what the
  // network thread's coroutines hold.
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WorkerPool> worker_;
};

}  // namespace loci
