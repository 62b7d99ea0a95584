// SPDX-License-Identifier: Apache-2.0
// Shared by tests of peers: a server that has some blocks, a sink that reads from it, and a shared store.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/cluster/peers/peer_server.h"
#include "loci/cluster/peers/peer_store.h"
#include "loci/cluster/peers/peer_tls.h"

namespace loci {

inline constexpr Nanos kLong = 60 * kNanosPerSecond;
inline const std::vector<SharedGroup> kGroups = {{.layers = 3, .layer_slice_bytes = 5'000},
                                                 {.layers = 2, .layer_slice_bytes = 700}};

inline ChainKey key_of(std::uint8_t number) {
  ChainKey key;
  key.bytes.fill(number);
  return key;
}

inline std::vector<std::byte> state_of(const ChainKey& key, std::uint32_t group) {
  std::vector<std::byte> state(kGroups[group].layers * kGroups[group].layer_slice_bytes);
  for (std::size_t i = 0; i < state.size(); ++i)
    state[i] = static_cast<std::byte>(i * 31 + key.bytes[0] * 7u + group);
  return state;
}

inline std::shared_ptr<spdlog::logger> quiet() {
  return std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
}

inline PeerKey secret_of(std::uint8_t number) {
  PeerKey key;
  key.fill(number);
  return key;
}

// A server with some blocks.
class FakePeer final : public PeerSource {
 public:
  enum class Ways : std::uint8_t {
    kGives,
    kForgets,
    kForgetsLater,  // gives the first round, and says afterwards that the rest is gone; then it gives that,
                    // too
    kStopsLater,    // gives the first block and the first round of the others, and nothing more
    kIsSilent,
    kComputes  // computes prompts, too; others but a silent one refuse them
  };

  explicit FakePeer(std::set<ChainKey> has, Ways ways = Ways::kGives, std::uint8_t secret = 1,
                    const std::string& state = "same")
      : has_(std::move(has)), ways_(ways) {
    server_ = std::make_unique<PeerServer>(
        PeerServerOptions{
            .tls = make_peer_server_tls(secret_of(secret)).value(), .state = state, .group_count = 2},
        clock_, quiet());
    EXPECT_TRUE(server_->listen().ok());
    server_->start(*this);
  }
  void ask(PeerQuestion question) override {
    ++questions_;
    PeerAnswer answer{.id = question.id, .groups = {}};
    for (const ChainKey& key : question.keys)
      answer.groups.push_back(has_.contains(key) ? std::uint8_t{3} : std::uint8_t{0});
    server_->answered(std::move(answer));
  }
  void read(PeerRead read, Nanos) override {
    ++reads_;
    rounds_ = read.rounds;
    for (std::uint32_t i = 0; i < read.wants.size() && ways_ != Ways::kIsSilent; ++i) {
      const PeerWant& want = read.wants[i];
      if (ways_ == Ways::kForgets) {
        server_->gone({{read.id, i}, want.groups});
        continue;
      }
    }
    if (ways_ == Ways::kForgets || ways_ == Ways::kIsSilent) return;
    for (std::uint8_t round = 0; round < read.rounds; ++round) {
      for (std::uint32_t i = 0; i < read.wants.size(); ++i) {
        if (round > 0 && i > 0 && ways_ == Ways::kStopsLater) continue;
        if (round == 1 && ways_ == Ways::kForgetsLater) server_->gone({{read.id, i}, read.wants[i].groups});
        give_round(read, i, round);
      }
    }
  }
  void leave(PeerReadId) override { ++left_; }
  // What it says of prompts, if not what kComputes and others do.
  void says(std::vector<PrefillNews> news) { news_ = std::move(news); }
  // Its network thread does nothing else for so long, when it is asked for a prompt.
  void stands_still(Nanos time) { still_ = time; }
  RequestId prefill(PrefillWork work, std::function<void(PrefillNews)> tell) override {
    const auto tokens = static_cast<std::uint32_t>(work.tokens.size());
    {
      const MutexLock lock(works_mutex_);
      works_.push_back(std::move(work));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(still_));
    for (const PrefillNews& news : news_) tell(news);
    if (!news_.empty() || ways_ == Ways::kIsSilent) return RequestId(1);
    tell(ways_ == Ways::kComputes ? PrefillNews{.says = PrefillNews::Says::kDone, .tokens = tokens}
                                  : PrefillNews{.says = PrefillNews::Says::kRefused});
    return RequestId(1);
  }
  void leave_prefill(RequestId) override { ++left_; }
  std::vector<PrefillWork> works() {
    const MutexLock lock(works_mutex_);
    return works_;
  }
  void stop() { server_->stop(); }
  PeerAddress address(const std::string& id) const {
    return {.id = id, .host = "127.0.0.1", .port = server_->port()};
  }
  int questions() const { return questions_; }
  int reads() const { return reads_; }
  int rounds() const { return rounds_; }  // of the last read
  int given() const { return given_; }
  int taken() const { return taken_; }
  // Waits a little; true: `count` reads were given up.
  bool has_left(int count) const {
    for (Nanos waited = 0; left_ < count && waited < kLong; waited += kNanosPerMilli)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return left_ == count;
  }

 private:
  class Given final : public PeerBytes {
   public:
    Given(std::vector<std::byte> bytes, std::atomic<int>& taken) : bytes_(std::move(bytes)), taken_(taken) {}
    ~Given() override { ++taken_; }
    std::span<const std::byte> bytes() const override { return bytes_; }

   private:
    const std::vector<std::byte> bytes_;
    std::atomic<int>& taken_;
  };

  // Of a model whose layers are those of the first group, then those of the second.
  void give_round(const PeerRead& read, std::uint32_t index, std::uint8_t round) {
    const PeerWant& want = read.wants[index];
    const PeerRounds rounds{.begin = round, .end = static_cast<std::uint8_t>(round + 1), .of = read.rounds};
    const std::vector<LayerGroup> groups = {{.layers = {0, 1, 2}}, {.layers = {3, 4}}};
    for (std::uint32_t group = 0; group < 2; ++group) {
      const LayerRange layers = layers_of(rounds, groups[group], 5);
      if ((want.groups >> group & 1) == 0 || layers.begin == layers.end) continue;
      const auto at = [&](std::uint32_t layer) {
        return static_cast<std::ptrdiff_t>(layer * kGroups[group].layer_slice_bytes);
      };
      const std::vector<std::byte> state = state_of(want.key, group);
      ++given_;
      server_->give({.place = {read.id, index, rounds},
                     .group = group,
                     .first = layers.begin,
                     .layer_bytes = kGroups[group].layer_slice_bytes,
                     .is_last = layers.end == groups[group].layers.size()},
                    std::make_unique<Given>(std::vector<std::byte>(state.begin() + at(layers.begin),
                                                                   state.begin() + at(layers.end)),
                                            taken_));
    }
  }

  const SystemClock clock_;
  const std::set<ChainKey> has_;
  const Ways ways_;
  std::vector<PrefillNews> news_;
  Nanos still_ = 0;
  std::atomic<int> questions_{0}, reads_{0}, rounds_{0}, given_{0}, taken_{0}, left_{0};
  Mutex works_mutex_;
  std::vector<PrefillWork> works_ GUARDED_BY(works_mutex_);
  std::unique_ptr<PeerServer> server_;
};

// Collects the slices that a call of read() brings.
class Collector final : public BlockReadSink {
 public:
  explicit Collector(std::vector<BlockRead> items)
      : items_(std::move(items)), ended_(items_.size()), came_(items_.size()) {}
  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    const std::vector<std::byte> state = state_of(items_[item].key, items_[item].group);
    const SharedGroup& group = kGroups[items_[item].group];
    const MutexLock lock(mutex_);
    EXPECT_FALSE(ended_[item].has_value()) << "nothing comes behind the end";
    EXPECT_EQ(first, came_[item]);
    EXPECT_LE(first + count, group.layers);
    ASSERT_EQ(bytes.size(), count * group.layer_slice_bytes);
    const auto from = state.begin() + static_cast<std::ptrdiff_t>(first * group.layer_slice_bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), from));
    came_[item] = first + count;
    order_.push_back({item, first});
  }
  // Which items' layers came, in order: item, first layer.
  std::vector<std::pair<std::size_t, std::uint32_t>> order() {
    const MutexLock lock(mutex_);
    return order_;
  }
  void done(std::size_t item, Status status) override {
    const MutexLock lock(mutex_);
    EXPECT_FALSE(ended_[item].has_value()) << "an item ends once";
    ended_[item] = status.code();
    EXPECT_TRUE(!status.ok() || came_[item] == kGroups[items_[item].group].layers);
    if (++count_ == ended_.size()) all_.set_value();
  }
  // The codes, by item.
  std::vector<StatusCode> wait() {
    EXPECT_EQ(all_.get_future().wait_for(std::chrono::nanoseconds(kLong)), std::future_status::ready);
    const MutexLock lock(mutex_);
    std::vector<StatusCode> codes;
    for (const auto& one : ended_) codes.push_back(one.value_or(StatusCode::kInternal));
    return codes;
  }

 private:
  const std::vector<BlockRead> items_;
  Mutex mutex_;
  std::vector<std::optional<StatusCode>> ended_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> came_ GUARDED_BY(mutex_);  // layers, by item
  std::vector<std::pair<std::size_t, std::uint32_t>> order_ GUARDED_BY(mutex_);
  std::size_t count_ GUARDED_BY(mutex_) = 0;
  std::promise<void> all_;
};

// A shared store with a fixed set of blocks.
class FakeStore final : public SharedStore {
 public:
  // `ended_on`: the destructor sets it to the thread that it runs on. `failed`: if given, every read of a
  // block that it has fails and is counted there.
  explicit FakeStore(std::set<ChainKey> has, std::thread::id* ended_on = nullptr,
                     std::atomic<int>* failed = nullptr)
      : has_(std::move(has)), ended_on_(ended_on), failed_(failed) {}
  ~FakeStore() override {
    if (ended_on_ != nullptr) *ended_on_ = std::this_thread::get_id();
  }
  void ask(std::vector<ChainKey> keys, Nanos, Answer answer) override {
    std::vector<std::uint8_t> groups;
    for (const ChainKey& key : keys) groups.push_back(has_.contains(key) ? std::uint8_t{3} : std::uint8_t{0});
    answer(std::move(groups));
  }
  void read(std::vector<BlockRead> items, std::uint32_t, std::shared_ptr<BlockReadSink> sink) override {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool there = has_.contains(items[i].key);
      if (failed_ != nullptr) {
        ++*failed_;
        sink->done(i, {StatusCode::kUnavailable, "it does not work"});
        continue;
      }
      if (there) {
        sink->slices(i, 0, kGroups[items[i].group].layers, state_of(items[i].key, items[i].group));
        ++read_;
      }
      sink->done(i, there ? Status() : Status(StatusCode::kNotFound, "gone"));
    }
  }
  void write(std::uint32_t, SlotId, BlockEntry, std::vector<std::byte>,
             std::function<void(Status)> done) override {
    done({});
  }
  void change(const RecordChange&) override {}
  SharedStoreStats stats() const override { return {.parts_read_total = read_.load(), .up = true}; }

 private:
  const std::set<ChainKey> has_;
  std::thread::id* const ended_on_;
  std::atomic<int>* const failed_;
  std::atomic<std::uint64_t> read_{0};
};

}  // namespace loci
