// SPDX-License-Identifier: Apache-2.0
// For tests of a front before instances that publish what they hold.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/cluster/feed/block_feed.h"
#include "loci/cluster/front_testing.h"
#include "loci/cluster/peers/peer_testing.h"

namespace loci {

inline constexpr std::size_t kChunks = 12, kBlocks = 24;

inline std::string talk(int number) {
  return R"({"model":"tiny","messages":[{"role":"user","content":")" +
         std::string(kChunks * kPromptChunkBytes, static_cast<char>('a' + number)) + "\"}]}";
}

inline RoutedPrompt prompt_of(const std::string& body) {
  namespace http = boost::beast::http;
  return read_prompt(http::verb::post, "/v1/chat/completions", body,
                     prompt_key_of(HttpRequest{}, PromptKey{}));
}

// A millisecond a token to compute; a block is 1 MiB.
inline CostCurves curves(std::uint64_t peer_bytes_per_second = 1) {
  return {.token = kNanosPerMilli,
          .attention = {0},
          .host_charge = 0,
          .disk_charge = 0,
          .host_load = {.latency = 0, .bytes_per_second = std::uint64_t{1} << 30},
          .disk_read = {.latency = 0, .bytes_per_second = std::uint64_t{100} << 20},
          .shared_read = {.latency = 0, .bytes_per_second = peer_bytes_per_second}};
}

// An instance that answers at once, by default, and has the state that a test says.
class Publisher {
 public:
  Publisher(
      std::string id, std::uint8_t first_key,
      FakeInstance::Script script = [](const std::string&) { return whole(R"({"status":"ok"})"); },
      const CostCurves& costs = curves())
      : id_(std::move(id)),
        first_key_(first_key),
        feed_(std::make_shared<BlockFeed>(BlockFeedOptions{.epoch = first_key, .block_bytes = 1 << 20})),
        source_({}),
        http_(std::move(script)),
        server_({.tls = make_peer_server_tls(secret_of(1)).value(), .state = "same", .feed = feed_}, clock_,
                quiet()) {
    feed_->costs(costs);
    EXPECT_TRUE(server_.listen().ok());
    server_.start(source_);
  }
  ~Publisher() { server_.stop(); }

  // The state of that request's prompt is there now.
  void hold(const std::string& body, int number, std::optional<Tier> tier) {
    const RoutedPrompt prompt = prompt_of(body);
    std::vector<ChainKey> keys(kBlocks);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      keys[i].bytes.fill(static_cast<std::uint8_t>(first_key_ + number));
      keys[i].bytes[0] = static_cast<std::uint8_t>(i);
    }
    feed_->prompt(
        {.chunks = prompt.keys, .chunk_bytes = kPromptChunkBytes, .bytes = prompt.bytes, .ends = {}}, keys,
        kBlocks * kBlockTokens + 1);
    std::vector<BlockPlace> places;
    for (const ChainKey& key : keys) places.push_back({key, tier});
    feed_->moved(places);
  }
  Member member(std::uint32_t queued = 0) const {
    Member out = http_.member(id_);
    out.peer_port = server_.port();
    out.queued = queued;
    return out;
  }
  int requests() const { return http_.requests(); }

 private:
  struct NoSource final : PeerSource {
    void ask(PeerQuestion) override {}
    void read(PeerRead, Nanos) override {}
    void leave(PeerReadId) override {}
    RequestId prefill(PrefillWork, std::function<void(PrefillNews)>) override { return {}; }
    void leave_prefill(RequestId) override {}
  };

  const SystemClock clock_;
  const std::string id_;
  const std::uint8_t first_key_;
  const std::shared_ptr<BlockFeed> feed_;
  NoSource source_;
  FakeInstance http_;
  PeerServer server_;
};

class FrontFeedTest : public FrontTest {
 protected:
  FrontFeedTest() : FrontTest(RoutingPolicy::kFirstToken) {
    front_.follow(make_peer_client_tls(secret_of(1)).value());
  }
  // Until the front knows so many chunks of all instances.
  void knows(int chunks) { await("loci_front_held_chunks", chunks); }
  void await(const std::string& name, int value) {
    wait_until([&] { return metric(name) == value; });
    EXPECT_EQ(metric(name), value) << name;
  }
  static void wait_until(const std::function<bool()>& is_so) {
    for (Nanos waited = 0; waited < kLong; waited += 5 * kNanosPerMilli) {
      if (is_so()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "it does not come";
  }
  // The member that answers.
  std::string ask(const std::string& body) {
    const std::string answer = post("/v1/chat/completions", body);
    const std::size_t at = answer.find("X-Loci-Member: ");
    return at == std::string::npos ? answer : answer.substr(at + 15, 16);
  }
  int chosen(const std::string& why) {
    return metric(fmt::format("loci_front_choices_total{{why=\"{}\"}}", why));
  }
};

inline const std::string kOne = "0000000000000001", kTwo = "0000000000000002";

}  // namespace loci
