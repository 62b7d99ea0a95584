// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_store.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "loci/base/check.h"
#include "loci/cluster/peers/peer_calls.h"
#include "loci/cluster/peers/peer_health.h"
#include "loci/cluster/peers/peer_places.h"
#include "loci/cluster/peers/peer_table.h"
#include "loci/cluster/peers/peer_wire.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// Longer than anybody waits: it tells whether a peer lives.
constexpr Nanos kAnswerLimit = 2 * kNanosPerSecond;
// From so many reads in a row on that brought first layers alone, each counts as a failure.
constexpr std::uint32_t kPartialReadsMax = 5;
constexpr std::size_t kOpenMax = 1024;  // questions of this server; beyond them nobody is asked

struct Question {
  explicit Question(asio::io_context& io) : timer(io) {}
  std::vector<ChainKey> keys;
  SharedStore::Answer answer;
  std::vector<PeerPlaceOf> places;         // by key
  std::vector<std::uint8_t> store_groups;  // by key: what the store has
  std::size_t left = 0;                    // who has not answered
  bool is_over = false;
  asio::steady_timer timer;
};

// A part of a call of read(): the items that one peer is to give.
struct ReadFromPeer {
  std::vector<std::size_t> items;  // places in the call
  std::vector<PeerWant> wants;
  std::uint8_t rounds = 1;
  std::shared_ptr<BlockReadSink> sink;
  std::vector<bool> ended;  // by item
  std::size_t good = 0, damaged = 0;
  bool has_layers = false;   // some verified
  bool is_too_slow = false;  // PeerStoreOptions::transfer_limit cut it, though blocks came

  void end(std::size_t index, Status status) {
    if (ended[index]) return;
    ended[index] = true;
    sink->done(items[index], std::move(status));
  }
  std::size_t left() const { return static_cast<std::size_t>(std::count(ended.begin(), ended.end(), false)); }
  void end_all(const Status& status) {
    for (std::size_t i = 0; i < items.size(); ++i) end(i, status);
  }
};

// Hands on what the store brings of some of a call's items, and tells of each whether the store worked.
class SomeItems final : public BlockReadSink {
 public:
  SomeItems(std::shared_ptr<BlockReadSink> sink, std::vector<std::size_t> items,
            std::function<void(const Status&)> note)
      : sink_(std::move(sink)), items_(std::move(items)), note_(std::move(note)) {}
  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    sink_->slices(items_.at(item), first, count, bytes);
  }
  void done(std::size_t item, Status status) override {
    note_(status);
    sink_->done(items_.at(item), std::move(status));
  }

 private:
  const std::shared_ptr<BlockReadSink> sink_;
  const std::vector<std::size_t> items_;
  const std::function<void(const Status&)> note_;
};

class PeerStore final : public SharedStore {
 public:
  PeerStore(PeerStoreOptions options, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        work_(asio::make_work_guard(io_)),
        calls_(io_, options_.tls, options_.state) {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "loci-peers");
      io_.run();
    });
    options_.peers->listen([this](std::vector<PeerAddress> peers) {
      asio::post(io_, [this, peers = std::move(peers)] { hear(peers); });
    });
    options_.peers->listen_to_notes([this](PeerAddress peer) {
      asio::post(io_, [this, peer = std::move(peer)] { peers_.note_found(peer, clock_.now()); });
    });
  }

  ~PeerStore() override {
    options_.peers->listen(nullptr);
    options_.peers->listen_to_notes(nullptr);
    asio::post(io_, [this] {
      options_.store.reset();  // it calls back for all of it
      stop();
    });
    thread_.join();
  }

  void ask(std::vector<ChainKey> keys, Nanos time_limit, Answer answer) override {
    asio::post(io_, [this, keys = std::move(keys), answer = std::move(answer),
                     until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(time_limit),
                     time_limit]() mutable {
      begin_question(std::move(keys), std::move(answer), until, time_limit);
    });
  }

  void read(std::vector<BlockRead> items, std::uint32_t layers_at_once,
            std::shared_ptr<BlockReadSink> sink) override {
    asio::post(io_, [this, items = std::move(items), layers_at_once, sink = std::move(sink)] {
      begin_read(items, layers_at_once, sink);
    });
  }

  void write(std::uint32_t group, SlotId slot, BlockEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    LOCI_CHECK(options_.store != nullptr, "nothing is written to peers");
    options_.store->write(group, slot, entry, std::move(bytes), std::move(done));
  }

  void change(const RecordChange& change) override {
    if (options_.store) options_.store->change(change);
  }

  SharedStoreStats stats() const override {
    SharedStoreStats stats;
    if (options_.store) stats = options_.store->stats();
    stats.is_there = options_.store != nullptr;
    const MutexLock lock(stats_mutex_);
    stats.peers = stats_;
    return stats;
  }

 private:
  void count(std::uint64_t PeerStats::* what, std::uint64_t by = 1) {
    const MutexLock lock(stats_mutex_);
    stats_.*what += by;
  }
  void count_peers() {
    const MutexLock lock(stats_mutex_);
    stats_.known = static_cast<std::uint32_t>(peers_.size());
    stats_.up = static_cast<std::uint32_t>(peers_.up(clock_.now()));
  }

  // --- all below: its thread ---

  // Coroutines and questions that are open keep the thread until they have ended.
  void begin() { ++open_; }
  void end() {
    if (--open_ == 0 && is_stopping_) io_.stop();
  }

  void stop() {
    is_stopping_ = true;
    calls_.stop();
    const std::set<std::shared_ptr<Question>> open = questions_;
    for (const std::shared_ptr<Question>& question : open) finish(*question);
    if (open_ == 0) io_.stop();
  }

  void hear(const std::vector<PeerAddress>& listed) {
    const PeerTable::Change change = peers_.set(listed);
    for (const std::uint32_t number : change.removed) calls_.drop(number);
    for (const std::shared_ptr<Peer>& peer : change.added) {
      if (!is_stopping_) spawn(dial(peer));
    }
    count_peers();
  }

  void spawn(asio::awaitable<void> work) {
    begin();
    asio::co_spawn(io_, std::move(work), [this](const std::exception_ptr& error) {
      LOCI_CHECK(error == nullptr, "who talks to peers throws nothing");
      end();
    });
  }

  // What a peer's answers say of it. What this server's end cut short says nothing.
  void note_answer(Peer& peer, const Status& status) {
    if (is_stopping_) return;
    if (status.ok()) {
      peer.asks.succeed();
    } else {
      count(&PeerStats::failures_total);
      fail(peer, peer.asks, status.message());
    }
    count_peers();
  }

  // What a read says of the peer: that it is gone too is an answer, but not one that speaks for asking again.
  // First layers do not speak against it: that the later ones are gone is the way of rounds, a few times. But
  // one that brings no block whole, in all that time or time after time, would cost each request as much
  // again.
  void note_read(Peer& peer, const ReadFromPeer& read, const Status& status) {
    if (is_stopping_) return;
    const bool is_partial = read.good == 0 && read.damaged == 0 && read.has_layers &&
                            status.code() != StatusCode::kDeadlineExceeded;
    if (read.good > 0) peer.partial_reads = 0;
    if (read.good > 0 && read.damaged == 0) {
      peer.reads.succeed();
    } else if (!is_partial || ++peer.partial_reads >= kPartialReadsMax) {
      if (!status.ok() || read.damaged > 0) count(&PeerStats::failures_total);
      fail(peer, peer.reads,
           status.ok() ? "it does not give the blocks that it says it has" : status.message());
    }
    count_peers();
  }

  // Apart from the peers': to the core both are one link, whose failures in a row a peer's good read ends.
  void note_store(const Status& status) {
    // (One that waited behind others, or is slow, says nothing of the store: one that is silent ends as
    // kUnavailable.)
    if (is_stopping_ || status.code() == StatusCode::kDeadlineExceeded) return;
    const bool works =
        status.ok() || status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDataLoss;
    if (works) {
      store_reads_.succeed();
    } else if (store_reads_.fail(clock_.now())) {
      options_.warn(
          "the shared store is not asked for a while, and the state that it has is computed here: " +
          status.message());
    }
  }

  void fail(const Peer& peer, PeerHealth& health, const std::string& why) {
    if (!health.fail(clock_.now())) return;
    options_.warn(
        fmt::format("the peer {}:{} is not asked for a while, and the state that it has is computed here: {}",
                    peer.address.host, peer.address.port, why));
  }

  // So that the first question need not wait for the handshake.
  asio::awaitable<void> dial(std::shared_ptr<Peer> peer) {
    Result<std::unique_ptr<PeerCalls::Line>> line = co_await connect(*peer);
    if (line.ok()) {
      calls_.keep(peer->number, std::move(*line));
    } else {
      note_answer(*peer, line.status());
    }
  }

  asio::awaitable<Result<std::unique_ptr<PeerCalls::Line>>> connect(const Peer& peer) {
    return calls_.connect(peer.number, peer.address.host, peer.address.port);
  }

  // --- questions ---

  void begin_question(std::vector<ChainKey> keys, Answer answer, std::chrono::steady_clock::time_point until,
                      Nanos time_limit) {
    auto question = std::make_shared<Question>(io_);
    question->keys = std::move(keys);
    question->answer = std::move(answer);
    question->places.resize(question->keys.size());
    question->store_groups.resize(question->keys.size());
    begin();
    questions_.insert(question);
    std::vector<std::shared_ptr<Peer>> peers;
    if (!is_stopping_ && questions_.size() <= kOpenMax)
      peers = peers_.choose(options_.asked_max, clock_.now());
    const bool asks_store = options_.store != nullptr && !is_stopping_ && store_reads_.is_up(clock_.now());
    question->left = peers.size() + asks_store;
    if (question->left == 0) return finish(*question);
    question->timer.expires_at(until);
    question->timer.async_wait([this, question](const boost::system::error_code&) { finish(*question); });
    if (asks_store) {
      options_.store->ask(question->keys, time_limit, [this, question](std::vector<std::uint8_t> groups) {
        asio::post(io_, [this, question, groups = std::move(groups)] {
          if (groups.size() == question->keys.size()) question->store_groups = groups;
          hear_one(*question);
        });
      });
    }
    for (const std::shared_ptr<Peer>& peer : peers) spawn(ask_peer(question, peer));
  }

  asio::awaitable<void> ask_peer(std::shared_ptr<Question> question, std::shared_ptr<Peer> peer) {
    ++peer->questions;
    count(&PeerStats::asks_total);
    const std::span<const ChainKey> keys =
        std::span<const ChainKey>(question->keys).first(std::min(question->keys.size(), kPeerKeysMax));
    const Result<std::vector<std::uint8_t>> groups = co_await ask_now(*peer, keys);
    --peer->questions;
    note_answer(*peer, groups.status());
    if (groups.ok()) forget_places(*peer, keys, *groups);
    // (Of one that is left alone, since its reads fail, nothing is to be read.)
    if (groups.ok() && !question->is_over && peer->is_up(clock_.now())) {
      bool found = false;
      for (std::size_t i = 0; i < groups->size(); ++i) {
        PeerPlaceOf& place = question->places[i];
        found = found || (*groups)[i] != 0;
        // The first of those who have as much: it answers fast.
        if (std::popcount((*groups)[i]) > std::popcount(place.groups))
          place = {.peer = peer->number, .groups = (*groups)[i]};
      }
      if (found) peer->found_at = clock_.now();
    }
    hear_one(*question);
  }

  // What the peer itself says that it does not have any more.
  void forget_places(const Peer& peer, std::span<const ChainKey> keys,
                     const std::vector<std::uint8_t>& groups) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] == 0 && places_.find(keys[i]).peer == peer.number) places_.set(keys[i], {});
    }
  }

  asio::awaitable<Result<std::vector<std::uint8_t>>> ask_now(const Peer& peer,
                                                             std::span<const ChainKey> keys) {
    const std::string body = write_peer_question(keys);
    Result<std::unique_ptr<PeerCalls::Line>> line = co_await connect(peer);
    if (!line.ok()) co_return line.status();
    const Status status = co_await (*line)->call(kPeerAskPath, body, kAnswerLimit);
    if (!status.ok()) co_return status;
    const Result<std::string> reply = co_await (*line)->read_whole();
    if (!reply.ok()) co_return reply.status();
    Result<std::vector<std::uint8_t>> groups =
        read_peer_answer(*reply, keys.size(), static_cast<std::uint32_t>(options_.groups.size()));
    if (groups.ok()) calls_.keep(peer.number, std::move(*line));
    co_return groups;
  }

  void hear_one(Question& question) {
    --question.left;
    const auto all = static_cast<std::uint8_t>((1u << options_.groups.size()) - 1);
    const bool has_all = std::all_of(question.places.begin(), question.places.end(),
                                     [all](const PeerPlaceOf& place) { return place.groups == all; });
    if (question.left == 0 || has_all) finish(question);
  }

  // The groups of the block that a read of now would ask a peer for.
  std::uint8_t given_by_peer(const ChainKey& key) const {
    const PeerPlaceOf place = places_.find(key);
    const std::shared_ptr<Peer> peer = peers_.find(place.peer);
    return peer != nullptr && peer->reads.is_up(clock_.now()) ? place.groups : std::uint8_t{0};
  }

  void finish(Question& question) {
    if (std::exchange(question.is_over, true)) return;
    question.timer.cancel();
    std::vector<std::uint8_t> groups = question.store_groups;
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const PeerPlaceOf& place = question.places[i];
      // (What another question has found stays, where this one had no answer in time.)
      if (place.groups != 0) places_.set(question.keys[i], place);
      found += static_cast<std::uint64_t>(std::popcount(place.groups));
      groups[i] |= place.groups;
      groups[i] |=
          static_cast<std::uint8_t>((groups[i] & given_by_peer(question.keys[i])) << kLayerGroupsMax);
    }
    count(&PeerStats::parts_found_total, found);
    question.answer(std::move(groups));
    std::erase_if(questions_, [&](const auto& one) { return one.get() == &question; });
    end();
  }

  // --- reads ---

  void begin_read(const std::vector<BlockRead>& items, std::uint32_t layers_at_once,
                  const std::shared_ptr<BlockReadSink>& sink) {
    std::map<std::uint32_t, std::vector<std::size_t>> of_peer;
    std::vector<std::size_t> of_store;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool has = (given_by_peer(items[i].key) >> items[i].group & 1) != 0;
      if (has && !is_stopping_) {
        of_peer[places_.find(items[i].key).peer].push_back(i);
      } else if (options_.store != nullptr && store_reads_.is_up(clock_.now())) {
        of_store.push_back(i);
      } else {
        count(&PeerStats::parts_gone_total);
        sink->done(i, {StatusCode::kNotFound, "no peer has it"});
      }
    }
    if (!of_store.empty()) {
      std::vector<BlockRead> own;
      for (const std::size_t i : of_store) own.push_back(items[i]);
      const auto note = [this](const Status& status) {
        asio::post(io_, [this, status] { note_store(status); });
      };
      options_.store->read(std::move(own), layers_at_once,
                           std::make_shared<SomeItems>(sink, std::move(of_store), note));
    }
    for (const auto& [number, places] : of_peer) {
      for (std::size_t at = 0; at < places.size(); at += kPeerKeysMax) {
        auto read = std::make_shared<ReadFromPeer>();
        for (std::size_t i = at; i < std::min(places.size(), at + kPeerKeysMax); ++i) {
          read->items.push_back(places[i]);
          read->wants.push_back(
              {items[places[i]].key, static_cast<std::uint8_t>(1u << items[places[i]].group)});
        }
        read->rounds = rounds_of(*read, layers_at_once);
        read->sink = sink;
        read->ended.resize(read->items.size());
        spawn(read_from(peers_.find(number), std::move(read)));
      }
    }
  }

  // (Who wants several layers at once has no use for the first ones alone.)
  std::uint8_t rounds_of(const ReadFromPeer& read, std::uint32_t layers_at_once) const {
    std::uint64_t bytes = 0;
    for (const PeerWant& want : read.wants) {
      const SharedGroup& group = options_.groups[static_cast<std::size_t>(std::countr_zero(want.groups))];
      bytes += group.layers * group.layer_slice_bytes;
    }
    return layers_at_once == 0 ? peer_rounds(bytes, options_.rounds, options_.rounds_bytes) : std::uint8_t{1};
  }

  asio::awaitable<void> read_from(std::shared_ptr<Peer> peer, std::shared_ptr<ReadFromPeer> read) {
    const Status status = co_await read_now(*peer, *read);
    note_read(*peer, *read, status);
    // (Counted before it is told, as what is brought is.)
    count(&PeerStats::parts_failed_total, read->left());
    // To the engine it is gone, whatever became of the peer: the link's failures are the shared store's, and
    // one peer's would have all the others left alone with it. But what the time did not suffice for tells
    // how fast the link is. (Blocks of it came, so it does not count as one of the link's failures.)
    read->end_all({read->is_too_slow ? StatusCode::kDeadlineExceeded : StatusCode::kNotFound,
                   status.ok() ? "the peer left it out" : status.message()});
  }

  asio::awaitable<Status> read_now(const Peer& peer, ReadFromPeer& read) {
    const Nanos until = clock_.now() + options_.transfer_limit;
    const auto too_slow = [&read] {
      read.is_too_slow = read.good > 0;
      return Status(StatusCode::kDeadlineExceeded, "it is too slow");
    };
    Result<std::unique_ptr<PeerCalls::Line>> line = co_await connect(peer);
    if (!line.ok()) co_return line.status();
    const std::string body = write_peer_wants({.time_limit = std::min(kPeerWaitMax, options_.transfer_limit),
                                               .rounds = read.rounds,
                                               .wants = read.wants});
    const Status called = co_await (*line)->call(kPeerReadPath, body, options_.silence_limit);
    if (!called.ok()) co_return called;
    PeerPartReader reader(read.wants, options_.groups, sink_of(read));
    while (true) {
      const Nanos left = until - clock_.now();
      if (left <= 0) co_return too_slow();
      const Result<std::string_view> piece =
          co_await (*line)->read_piece(std::min(left, options_.silence_limit), reader.room());
      if (!piece.ok() && clock_.now() >= until) co_return too_slow();
      if (!piece.ok()) co_return piece.status();
      if (piece->empty()) break;
      count(&PeerStats::bytes_read_total, piece->size());
      const Status fed = reader.feed(*piece);
      if (!fed.ok()) co_return fed;
    }
    if (!reader.complete()) co_return data_loss("its reply ends before the last part");
    calls_.keep(peer.number, std::move(*line));
    co_return Status();
  }

  PeerPartReader::Sink sink_of(ReadFromPeer& read) {
    return {
        .layers =
            [&read](std::uint32_t index, std::uint8_t, LayerRange layers, std::span<const std::byte> bytes) {
              read.has_layers = true;
              read.sink->slices(read.items[index], layers.begin, layers.end - layers.begin, bytes);
            },
        .whole =
            [this, &read](std::uint32_t index, std::uint8_t) {
              count(&PeerStats::parts_read_total);
              ++read.good;
              read.end(index, {});
            },
        .damaged =
            [this, &read](std::uint32_t index, std::uint8_t) {
              count(&PeerStats::parts_damaged_total);
              ++read.damaged;
              read.end(index, data_loss("what a peer gave is not what it said"));
            },
        .gone =
            [this, &read](std::uint32_t index, std::uint8_t) {
              count(&PeerStats::parts_gone_total);
              read.end(index, {StatusCode::kNotFound, "the peer does not have it any more"});
            }};
  }

  PeerStoreOptions options_;
  const Clock& clock_;
  mutable Mutex stats_mutex_;
  PeerStats stats_ GUARDED_BY(stats_mutex_);

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  PeerCalls calls_;
  PeerTable peers_;
  PeerHealth store_reads_;  // of the store behind the peers
  PeerPlaces places_;
  std::set<std::shared_ptr<Question>> questions_;  // open
  std::size_t open_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SharedStore> make_peer_store(PeerStoreOptions options, const Clock& clock) {
  return std::make_unique<PeerStore>(std::move(options), clock);
}

}  // namespace loci
