// SPDX-License-Identifier: Apache-2.0
// A front takes clients' requests and passes each on to a member of the cluster; it has no model of its own
// (MemServe §6). Requests and replies pass unchanged; the instances check keys and limits.
#pragma once

#include <spdlog/logger.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/feed_reader.h"
#include "loci/cluster/handed_prompt.h"
#include "loci/cluster/instances.h"
#include "loci/cluster/member_table.h"
#include "loci/cluster/resumed_request.h"
#include "loci/cluster/routed_request.h"
#include "loci/cluster/upstream.h"
#include "loci/serve/http/byte_budget.h"
#include "loci/serve/http/exchange.h"
#include "loci/serve/http/page_guard.h"
#include "loci/serve/telemetry/tracer.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

struct FrontOptions {
  InstancesOptions instances;
  PromptKey prompt_key{};                       // the cluster's
  ReplyKey reply_key{};                         // likewise
  PrefillKey prefill_key{};                     // likewise
  PageGuard pages;                              // the names under which clients reach the front
  Nanos connect_timeout = 2 * kNanosPerSecond;  // for a connection to an instance, and for a question whether
                                                // it lives
  Nanos request_timeout = 3600 * kNanosPerSecond;
  // A stream that waits so long for another instance to go on with it gets a comment, as instances write them
  // (GenerationServices::quiet_limit).
  Nanos quiet_limit = 10 * kNanosPerSecond;
  // Bytes kept of bodies of requests whose streams have begun, so that another instance can continue them.
  // The body of a request beyond this, or beyond its key's share (serve/http/byte_budget.h), is not kept, and
  // its stream ends with its instance.
  std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;
  bool access_log = true;
  bool page = true;  // there is a web page (serve/page)
};

// Counters for /metrics.
struct FrontCounts {
  std::uint64_t answered = 0;    // requests that an instance answered
  std::uint64_t refused = 0;     // requests that the front itself refused
  std::uint64_t retried = 0;     // requests that were sent again to another instance
  std::uint64_t redirected = 0;  // sent on to the instance that another one had named
  std::uint64_t moved = 0;       // streams that another instance continued
  std::array<std::uint64_t, kPrefillEnds>
      prefills{};                  // prompts that a prefill member was to compute, by PrefillEnd
  std::uint64_t lost = 0;          // requests whose instance ended, so that the client got an error
  std::uint64_t refused_rows = 0;  // rows of the latest list that were not believed
  std::array<std::uint64_t, kRoutedWhys> chosen{};  // requests that are generated, by why their instance was
};

// Only for the network thread, except the constructor.
class Front {
 public:
  // `workers` and `clock` must outlive it. It must outlive the coroutines on `io`; close() says what becomes
  // of its connections.
  Front(const FrontOptions& options, boost::asio::io_context& io, WorkerPool& workers, const Clock& clock,
        std::shared_ptr<spdlog::logger> log);
  // Certificates that are trusted for members with TLS. Call it before the first request.
  void trust(TlsContext tls) { pool_.trust(std::move(tls)); }
  // From now on it reads what instances publish, as a member of the cluster (make_peer_client_tls()). Before
  // the first list.
  void follow(TlsContext tls);
  // From now on requests are traced. Before the first one; the tracer must outlive the front.
  void trace_with(Tracer& tracer) { tracer_ = &tracer; }

  // Takes the latest list of members.
  void update(const MemberList& list);
  // From now on /health reports that the front stops.
  void drain() { is_draining_ = true; }
  // Ends what still runs, with an error: of a stream that has begun an event. For the end of the time that a
  // stop leaves to replies.
  void cut_off();
  boost::asio::awaitable<void> handle(Exchange& exchange);
  // Closes its connections. To be called when the network thread has stopped, before `io` goes, which they
  // must not outlive. Nothing may be asked of the front after that.
  void close();

 private:
  class Sent;
  struct Request;
  struct Traced;
  enum class Outcome : std::uint8_t {
    kAnswered,
    kNotSent,    // no connection
    kLost,       // the connection broke; the instance may have read the request (of a stream, parts may have
                 // been passed on)
    kDrained,    // it was told to stop, and cut the stream off: the request is not what ended it
    kRefused,    // the instance stops or is still loading: it did nothing
    kElsewhere,  // it did nothing, because another instance has what the request asks after (Request::owner)
    kDiffers,    // the other instance's reply differs from the beginning that the client has
  };

  // True: the request may be sent again after it was lost.
  bool may_repeat(const Request& request) const;
  ApiError lost_error(const Request& request, Outcome last) const;
  // Why there is no instance for a request that was sent to none.
  const char* why_nobody() const;

  boost::asio::awaitable<void> trace_and_pass_on(Exchange& exchange);
  // `traced`: null where nothing is.
  boost::asio::awaitable<void> pass_on(Exchange& exchange, Traced* traced);
  boost::asio::awaitable<void> send_until_answered(Request& request);
  // Who is asked next; null: nobody is left.
  Instances::Choice choose(Request& request);
  // Tries it there, and makes a span of that.
  boost::asio::awaitable<Outcome> trace_try(Request& request, const Instances::Choice& choice);
  boost::asio::awaitable<Outcome> try_at(Request& request, std::shared_ptr<Instance> instance,
                                         std::uint64_t work_bytes);
  // Counts the request at the prefill member until its reply begins, and has the instance ask that member.
  void hand_over(Request& request, const Instances::Prefill& prefill);
  // What the instance says of it.
  void note_prefill(Request& request, PrefillEnd end);
  boost::asio::awaitable<Outcome> ask(Request& request, Instance& instance, Upstream& upstream);
  boost::asio::awaitable<Outcome> answer(Request& request, Instance& instance, Upstream& upstream,
                                         const Upstream::Header& header);
  boost::asio::awaitable<Outcome> answer_whole(Request& request, Instance& instance, Upstream& upstream,
                                               const Upstream::Header& header);
  boost::asio::awaitable<Outcome> answer_stream(Request& request, Instance& instance, Upstream& upstream,
                                                const Upstream::Header& header);
  boost::asio::awaitable<Outcome> go_on(Request& request, Instance& instance, Upstream& upstream,
                                        const Upstream::Header& header);
  boost::asio::awaitable<Outcome> pass_events(Request& request, Instance& instance, Upstream& upstream,
                                              std::string_view first);
  boost::asio::awaitable<Outcome> pass_bytes(Request& request, Upstream& upstream, std::string_view first);
  // Answers the client, or ends its stream, with an error, because no instance can answer or continue.
  boost::asio::awaitable<void> give_up(Request& request, ApiError error);
  // True: the instance that is called so in the store of conversations (kOwnerHeader) can still be asked; it
  // is the request's owner now.
  bool find_owner(Request& request, std::string_view owner);
  void keep_body(Request& request);
  static Instances::Answering answering(const Request& request, const Instance& instance);
  // Of a reply that has begun: who gives it, and its id where the next turn may name that.
  void learn(Request& request, const Instance& instance, std::string_view reply);
  void learn_id(Request& request, const Instance& instance, std::string_view reply);
  // Of a stream that had begun before: how the prompt's computation at the prefill member ended.
  void learn_prefill(Request& request, const Instance& instance, PrefillEnd end);
  // Called before a large body is read: asks an instance whether the request's key may use it. False: the
  // request has been refused and answered, or its client has gone.
  boost::asio::awaitable<bool> let_in(Exchange& exchange);
  // Absent: the instance does not answer, or the client has gone.
  boost::asio::awaitable<std::optional<HttpResponse>> ask_models(Exchange& exchange,
                                                                 const HttpRequest& question,
                                                                 std::shared_ptr<Instance> instance);
  struct BriefAnswer {
    bool has_begun = false;  // its header came
    std::optional<HttpResponse> whole;
  };
  // A question of the front's own, on a connection of its own, which whoever asks may close meanwhile.
  // Not whole: it did not end within connect_timeout, or has more than `bytes_max` bytes.
  boost::asio::awaitable<BriefAnswer> ask_briefly(std::shared_ptr<Upstream> upstream, const Member& member,
                                                  std::string head, std::uint64_t bytes_max);
  boost::asio::awaitable<void> answer_models(Exchange& exchange);
  // At a path of the front's own, which is only read.
  boost::asio::awaitable<void> answer_other_method(Exchange& exchange);
  boost::asio::awaitable<void> answer_health(Exchange& exchange);
  boost::asio::awaitable<void> answer_metrics(Exchange& exchange);
  boost::asio::awaitable<void> answer_page(Exchange& exchange);
  boost::asio::awaitable<void> refuse(Exchange& exchange, RoutedApi api, ApiError error);
  // True: its port takes connections.
  boost::asio::awaitable<bool> takes_connections(const Member& member);
  // True: it answers as a server of Loci does, and its device does not stand still: then what waits for it
  // would wait for nothing.
  boost::asio::awaitable<bool> is_alive(const Member& member);
  boost::asio::awaitable<void> look_after(std::shared_ptr<Instance> instance);

  const FrontOptions options_;
  boost::asio::io_context& io_;
  WorkerPool& workers_;
  const Clock& clock_;
  const std::shared_ptr<spdlog::logger> log_;
  Instances instances_;
  std::shared_ptr<FeedReader> feeds_;  // null: nothing is read
  UpstreamPool pool_;
  Tracer* tracer_ = nullptr;  // null: nothing is traced
  // Bodies and tokens of replies that have begun: tokens, four bytes each, take what is left.
  ByteBudget kept_bodies_;
  FrontCounts counts_;
  std::set<std::uint32_t> looked_after_;     // instances that are being asked whether they live
  std::map<PromptKey, Nanos> let_in_until_;  // by prompt_key_of()
  std::uint64_t next_sent_ = 1;
  bool is_draining_ = false, is_cut_off_ = false;
};

}  // namespace loci
