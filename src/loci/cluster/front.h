// SPDX-License-Identifier: Apache-2.0
// A front: takes clients' requests and passes each on to a member of the cluster, without a model of its own
// (MemServe, section 6). Requests and replies go through as they are; keys and limits are the instances'.
#pragma once

#include <spdlog/logger.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/feed/feed_reader.h"
#include "loci/cluster/instances.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/routed_request.h"
#include "loci/cluster/upstream.h"
#include "loci/serve/http/body_budget.h"
#include "loci/serve/http/connection.h"
#include "loci/serve/http/page_guard.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

struct FrontOptions {
  InstancesOptions instances;
  PromptKey prompt_key{};                       // the cluster's
  PageGuard pages;                              // by which names the front is called
  Nanos connect_timeout = 2 * kNanosPerSecond;  // to an instance, and of a question whether it lives
  Nanos request_timeout = 3600 * kNanosPerSecond;
  // Bodies of requests whose streams have begun, kept so that another instance can go on with them. Beyond, a
  // stream ends with its instance.
  std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;
  bool access_log = true;
};

// What /metrics tells.
struct FrontCounts {
  std::uint64_t answered = 0;      // by an instance
  std::uint64_t refused = 0;       // by the front itself
  std::uint64_t retried = 0;       // sent to another instance
  std::uint64_t moved = 0;         // streams that another instance went on with
  std::uint64_t lost = 0;          // whose instance ended, told to the client
  std::uint64_t refused_rows = 0;  // of the latest list
};

// Network thread only, but for the constructor.
class Front {
 public:
  // `io`, `workers` and `clock` outlive it; it outlives the coroutines on `io`.
  Front(const FrontOptions& options, boost::asio::io_context& io, WorkerPool& workers, const Clock& clock,
        std::shared_ptr<spdlog::logger> log);
  // Trusted by members that speak TLS. Before the first request.
  void trust(TlsContext tls) { pool_.trust(std::move(tls)); }
  // From now on it reads what instances publish, as a member of the cluster (make_peer_client_tls()). Before
  // the first list.
  void follow(TlsContext tls);

  // The latest list of members.
  void update(const MemberList& list);
  // From now on /health says that it stops.
  void drain() { is_draining_ = true; }
  boost::asio::awaitable<void> handle(Exchange& exchange);

 private:
  class Sent;
  struct Request;
  enum class Outcome : std::uint8_t {
    kAnswered,
    kNotSent,  // no connection
    kLost,     // it may have been read; nothing of an answer was passed on
    kRefused,  // it stops, or is still loading: nothing was done
    kDiffers,  // it goes on with another reply than the client has the beginning of
  };

  // After it was lost.
  static bool may_repeat(const Request& request);
  static ApiError lost_error(const Request& request, Outcome last);

  boost::asio::awaitable<void> pass_on(Exchange& exchange);
  boost::asio::awaitable<void> send_until_answered(Request& request);
  boost::asio::awaitable<Outcome> try_at(Request& request, std::shared_ptr<Instance> instance,
                                         std::uint64_t work_bytes);
  boost::asio::awaitable<Outcome> ask(Request& request, Instance& instance, Upstream& upstream, Sent& sent);
  boost::asio::awaitable<Outcome> answer(Request& request, Instance& instance, Upstream& upstream,
                                         const Upstream::Header& header);
  boost::asio::awaitable<Outcome> answer_whole(Request& request, Instance& instance, Upstream& upstream,
                                               const Upstream::Header& header);
  boost::asio::awaitable<Outcome> answer_stream(Request& request, Instance& instance, Upstream& upstream,
                                                const Upstream::Header& header);
  boost::asio::awaitable<Outcome> go_on(Request& request, Instance& instance, Upstream& upstream,
                                        const Upstream::Header& header);
  boost::asio::awaitable<Outcome> pass_events(Request& request, Upstream& upstream, std::string_view first);
  boost::asio::awaitable<Outcome> pass_bytes(Request& request, Upstream& upstream, std::string_view first);
  // The instances can't answer, or go on with what they began to.
  boost::asio::awaitable<void> give_up(Request& request, ApiError error);
  void keep_body(Request& request);
  void learn(Request& request, const Instance& instance, std::string_view reply);
  // Before a large body is read: an instance says whether the request's key may use it. False: it has been
  // answered.
  boost::asio::awaitable<bool> let_in(Exchange& exchange);
  // Nothing: it does not answer.
  boost::asio::awaitable<std::optional<HttpResponse>> ask_models(const HttpRequest& request,
                                                                 std::string_view request_id,
                                                                 std::shared_ptr<Instance> instance);
  boost::asio::awaitable<void> answer_models(Exchange& exchange);
  boost::asio::awaitable<void> answer_health(Exchange& exchange);
  boost::asio::awaitable<void> answer_metrics(Exchange& exchange);
  boost::asio::awaitable<void> refuse(Exchange& exchange, RoutedApi api, ApiError error);
  boost::asio::awaitable<void> look_after(std::shared_ptr<Instance> instance);

  const FrontOptions options_;
  boost::asio::io_context& io_;
  WorkerPool& workers_;
  const Clock& clock_;
  const std::shared_ptr<spdlog::logger> log_;
  Instances instances_;
  std::shared_ptr<FeedReader> feeds_;  // null: nothing is read
  UpstreamPool pool_;
  BodyBudget kept_bodies_;
  FrontCounts counts_;
  std::set<std::uint32_t> looked_after_;     // instances that are asked whether they live
  std::map<PromptKey, Nanos> let_in_until_;  // by prompt_key_of()
  std::uint64_t next_sent_ = 1;
  std::mt19937_64 random_;  // draws seeds of requests
  bool is_draining_ = false;
};

}  // namespace loci
