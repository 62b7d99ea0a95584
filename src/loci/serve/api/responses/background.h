// SPDX-License-Identifier: Apache-2.0
// Responses that are made while no client has to wait for them. A client can watch or cancel one that runs,
// and reads its outcome from the store.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/serve/api/responses/response_turn.h"
#include "loci/serve/api/responses/unstored_ends.h"
#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"
#include "loci/serve/generation/reply_sink.h"
#include "loci/serve/store/turn_claims.h"

namespace loci {

class BackgroundRun;

// A bound on the events of all runs together, so that clients which read many of them slowly can't fill the
// memory with what is small enough for each. A run counts for as long as somebody has it: also one that has
// ended and is read still. Network thread only.
class BackgroundEvents {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{128} << 20;

  explicit BackgroundEvents(std::size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  std::size_t size_bytes() const { return size_bytes_; }

  // --- for runs ---

  void join(BackgroundRun& run) { runs_.push_back(&run); }
  void leave(BackgroundRun& run);
  void grow(std::size_t bytes) { size_bytes_ += bytes; }
  void shrink(std::size_t bytes) { size_bytes_ -= bytes; }
  // While there are too many, of the tenant that has most the run that has most gives up the older half of
  // them. What was just appended to `run` stays whatever it takes. O(runs) for each that gives up some.
  void make_room(const BackgroundRun& run);

 private:
  const std::size_t bytes_max_;
  std::size_t size_bytes_ = 0;
  std::vector<BackgroundRun*> runs_;
};

// A response that is being made, or that ended a short time ago. Network thread only.
class BackgroundRun {
 public:
  // How many bytes of its latest events are kept. Those that were appended last are kept whatever they take,
  // until another run needs the room (BackgroundEvents).
  static constexpr std::size_t kEventBytesMax = std::size_t{16} << 20;

  BackgroundRun(boost::asio::io_context& io, std::shared_ptr<BackgroundEvents> all, std::string tenant);
  ~BackgroundRun();
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;

  // Each event wakes all who follow the run: so many of them may.
  static constexpr std::uint32_t kFollowersMax = 16;
  // Whoever follows the run, for as long as this lives.
  class Follower {
   public:
    explicit Follower(BackgroundRun& run) : run_(run) { ++run_.followers_; }
    ~Follower() { --run_.followers_; }
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;

   private:
    BackgroundRun& run_;
  };
  std::uint32_t followers() const { return followers_; }

  // A place in the stream: so many bytes of an event, whose sequence number is `event`, were read.
  struct Position {
    std::uint64_t event = 0;
    std::size_t offset = 0;
  };
  // The stream from `at` on, as far as it is known and at most `bytes_max` bytes of it; moves `at` behind
  // them. Empty: nothing has come yet. The event must not be dropped.
  std::string read(Position& at, std::size_t bytes_max) const;
  // The event is no longer kept.
  bool has_dropped(std::uint64_t event) const { return event < first_; }
  // The sequence number of the next event that is appended.
  std::uint64_t next_event() const { return first_ + events_.size(); }
  const std::string& tenant() const { return tenant_; }
  std::size_t event_bytes() const { return event_bytes_; }  // of those that are kept
  std::size_t last_bytes() const { return last_bytes_; }    // of these, what was appended last
  // Whole server-sent events.
  void append(std::string_view events);
  // Drops the oldest events, so many bytes of them or somewhat more.
  void give_up(std::size_t bytes);

  bool ended() const { return ended_; }
  void end();  // also when the server stops before the response is complete
  bool cancelled() const { return cancelled_; }
  void cancel();
  // `callback` is called once: when the run is cancelled, or now where it was cancelled before.
  void on_cancel(std::function<void()> callback);

  // Returns when something has changed, or when wake() is called.
  boost::asio::awaitable<void> wait();
  void wake();

 private:
  const std::shared_ptr<BackgroundEvents> all_;
  const std::string tenant_;
  std::deque<std::string> events_;  // the oldest first
  std::uint64_t first_ = 0;         // its sequence number
  std::size_t event_bytes_ = 0;
  std::size_t last_bytes_ = 0;
  std::uint32_t followers_ = 0;
  bool ended_ = false;
  bool cancelled_ = false;
  std::function<void()> on_cancel_;
  std::optional<boost::asio::steady_timer> signal_;  // until it has ended: the run may outlive the network
};

// Network thread only.
class BackgroundResponses : public std::enable_shared_from_this<BackgroundResponses> {
 public:
  // How many bytes of events of ended responses are kept, so that their streams can be read again.
  static constexpr std::size_t kEndedBytesMax = std::size_t{16} << 20;

  explicit BackgroundResponses(ApiServices& services)
      : services_(services), ends_(std::make_shared<UnstoredEnds>(services)) {}

  // Stores the response as queued and starts it. `origin`: the tenant and request that it is for. Errors: the
  // store's; 409 where one of that id is being made here, or ended a short time ago.
  boost::asio::awaitable<std::optional<ApiError>> start(ReplyOrigin origin, PreparedResponse prepared,
                                                        HeldTurn held);
  // Null: no response of that id is being made here, or ended a short time ago.
  std::shared_ptr<BackgroundRun> find(const std::string& tenant, const std::string& id) const;
  // A response that has ended, and whose end the store does not have yet. Absent: there is none of that id.
  std::optional<StoredResponse> unstored(std::string_view tenant, std::string_view id) const {
    return ends_->find(tenant, id);
  }
  // Cancels a response that is being made. Returns when the store has its end, or unstored() has.
  boost::asio::awaitable<void> cancel(std::shared_ptr<BackgroundRun> run);
  // Drops the events that are kept of a response that has ended.
  void forget(const std::string& tenant, const std::string& id);
  // Streams the run's events from number `first` on to the call's client, to the end. Refuses the call where
  // that event is dropped or too many follow the run, and cuts the stream where its client reads so slowly
  // that the next one is. The client gets a comment whenever nothing was said for `quiet_limit`.
  static boost::asio::awaitable<void> follow(Call& call, std::shared_ptr<BackgroundRun> run,
                                             std::uint64_t first, Nanos quiet_limit);

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, response

  boost::asio::awaitable<void> run(std::shared_ptr<BackgroundRun> run, ReplyOrigin origin,
                                   PreparedResponse prepared, HeldTurn held);
  boost::asio::awaitable<void> make(std::shared_ptr<BackgroundRun> run, ReplyOrigin origin,
                                    PreparedResponse prepared);
  // The response failed although nothing refused it: an exception was thrown.
  boost::asio::awaitable<void> give_up(BackgroundRun& run, std::string tenant,
                                       std::shared_ptr<const ResponseTurn> turn);
  boost::asio::awaitable<Status> store(std::string tenant, StoredTurn turn);
  void retire(const Key& key);

  ApiServices& services_;
  std::shared_ptr<UnstoredEnds> ends_;
  std::shared_ptr<BackgroundEvents> events_ = std::make_shared<BackgroundEvents>();  // of all runs
  std::map<Key, std::shared_ptr<BackgroundRun>> runs_;
  struct Ended {
    Key key;
    std::size_t event_bytes = 0;  // when it ended
  };
  std::deque<Ended> ended_;  // the oldest first
  std::size_t ended_bytes_ = 0;
};

}  // namespace loci
