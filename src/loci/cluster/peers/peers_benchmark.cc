// SPDX-License-Identifier: Apache-2.0
// Measures how fast state comes from a peer over this machine's loopback device: beside a plain TCP stream of
// as many bytes (what iperf3 does), a PeerServer that gives blocks and the store that reads them, without
// encryption and with TLS 1.3, in turns. The giving side lends its memory and the reading side copies once,
// as members do on a CPU. Aim: 0.8 of the plain stream without encryption. It also prints the processor time
// that both ends took, which the load of the machine changes less.
#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/copy_bytes.h"
#include "loci/base/mutex.h"
#include "loci/cluster/peers/peer_server.h"
#include "loci/cluster/peers/peer_store.h"
#include "loci/cluster/peers/peer_tls.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using Time = std::chrono::steady_clock;

constexpr int kRounds = 5;
// As of SmolLM2-135M: 32 tokens in 30 layers, keys and values of 3 heads of 64 values in f16.
constexpr std::uint32_t kLayers = 30;
constexpr std::size_t kSliceBytes = 32 * 2 * 3 * 64 * 2;
constexpr std::size_t kBlockBytes = kLayers * kSliceBytes;
constexpr std::size_t kBlocksMax = 124;  // of which there is memory: more than caches have
constexpr std::size_t kHeldMax = 6;      // blocks of one read on their way, as the engine's

const std::vector<SharedGroup> kBenchGroups = {{.layers = kLayers, .layer_slice_bytes = kSliceBytes}};

ChainKey key_number(std::uint32_t number) {
  ChainKey key;
  std::memcpy(key.bytes.data(), &number, sizeof(number));
  return key;
}

// Has every block, and lends the memory of it, as the mover does where the host can read it.
class Giver final : public PeerSource {
 public:
  explicit Giver(TlsContext tls) : state_(kBlocksMax * kBlockBytes, std::byte{7}) {
    server_ = std::make_unique<PeerServer>(
        PeerServerOptions{.tls = std::move(tls), .state = "bench", .group_count = 1}, clock_,
        std::make_shared<spdlog::logger>("bench", std::make_shared<spdlog::sinks::null_sink_mt>()));
    if (!server_->listen().ok()) std::exit(1);
    server_->start(*this);
  }
  ~Giver() override {
    if (mover_.joinable()) mover_.join();
    server_->stop();
  }
  std::uint16_t port() const { return server_->port(); }

  void ask(PeerQuestion question) override {
    server_->answered({.id = question.id, .groups = std::vector<std::uint8_t>(question.keys.size(), 1)});
  }
  void read(PeerRead read, Nanos) override {
    if (mover_.joinable()) mover_.join();
    mover_ = std::thread([this, wanted = std::move(read)] { give(wanted); });
  }
  void leave(PeerReadId) override {}
  RequestId prefill(PrefillWork, std::function<void(PrefillNews)>) override { return RequestId(1); }
  void leave_prefill(RequestId) override {}

 private:
  class Lent final : public PeerBytes {
   public:
    Lent(Giver& giver, std::span<const std::byte> bytes) : giver_(giver), bytes_(bytes) {}
    ~Lent() override {
      {
        const MutexLock lock(giver_.mutex_);
        --giver_.held_;
      }
      giver_.returned_.notify_all();
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    std::span<const std::byte> bytes() const override { return bytes_; }

   private:
    Giver& giver_;
    const std::span<const std::byte> bytes_;
  };

  void give(const PeerRead& read) {
    for (std::uint8_t round = 0; round < read.rounds; ++round) {
      const std::uint32_t begin = kLayers * round / read.rounds, end = kLayers * (round + 1u) / read.rounds;
      for (std::uint32_t i = 0; i < read.wants.size(); ++i) {
        {
          MutexLock lock(mutex_);
          returned_.wait(lock, [this]() REQUIRES(mutex_) { return held_ < kHeldMax; });
          ++held_;
        }
        const PeerRounds rounds{
            .begin = round, .end = static_cast<std::uint8_t>(round + 1), .of = read.rounds};
        const auto bytes = std::span(state_).subspan(i % kBlocksMax * kBlockBytes + begin * kSliceBytes,
                                                     (end - begin) * kSliceBytes);
        server_->give({.place = {read.id, i, rounds},
                       .group = 0,
                       .first = begin,
                       .layer_bytes = kSliceBytes,
                       .is_last = end == kLayers},
                      std::make_unique<Lent>(*this, bytes));
      }
    }
  }

  const SystemClock clock_;
  const std::vector<std::byte> state_;
  Mutex mutex_;
  Condition returned_;
  std::size_t held_ GUARDED_BY(mutex_) = 0;
  std::thread mover_;
  std::unique_ptr<PeerServer> server_;
};

// Puts what comes into slots of its own.
class Slots final : public BlockReadSink {
 public:
  explicit Slots(std::size_t blocks)
      : slots_(blocks, std::vector<std::byte>(kBlockBytes)),
        use_(cache_use_of(blocks * kBlockBytes)),
        left_(blocks) {}
  void slices(std::size_t item, std::uint32_t first, std::uint32_t,
              std::span<const std::byte> bytes) override {
    copy_bytes(std::span(slots_[item]).subspan(first * kSliceBytes, bytes.size()), bytes, use_);
  }
  void done(std::size_t, Status status) override {
    if (!status.ok()) failed_ = true;
    if (--left_ == 0) all_.set_value(!failed_);
  }
  std::future<bool> end() { return all_.get_future(); }

 private:
  std::vector<std::vector<std::byte>> slots_;
  const CacheUse use_;
  std::atomic<std::size_t> left_;
  std::atomic<bool> failed_ = false;
  std::promise<bool> all_;
};

struct Took {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads
};

class Timer {
 public:
  Took took() const {
    return {std::chrono::duration<double>(Time::now() - begin_).count(), cpu_seconds() - cpu_begin_};
  }

 private:
  static double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  const Time::time_point begin_ = Time::now();
  const double cpu_begin_ = cpu_seconds();
};

// One connection, one thread at each end.
Took plain_stream(std::size_t bytes) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  asio::ip::tcp::socket to(io);
  to.connect(acceptor.local_endpoint());
  asio::ip::tcp::socket from = acceptor.accept();
  std::thread giver([&] {
    const std::vector<char> piece(128 << 10, 'x');
    for (std::size_t left = bytes; left > 0;)
      left -= asio::write(from, asio::buffer(piece.data(), std::min(left, piece.size())));
  });
  const Timer timer;
  std::vector<char> got(128 << 10);
  for (std::size_t left = bytes; left > 0;) left -= to.read_some(asio::buffer(got));
  const Took took = timer.took();
  giver.join();
  return took;
}

// A member that has read before: its connections are there.
class Reader {
 public:
  Reader(TlsContext tls, std::uint16_t port) {
    store_ = make_peer_store(
        {.peers = list_, .tls = std::move(tls), .state = "bench", .groups = kBenchGroups, .store = nullptr},
        clock_);
    list_->set({{.id = "one", .host = "127.0.0.1", .port = port}});
  }
  // Absent: not all blocks came.
  std::optional<Took> read(std::uint32_t blocks) {
    std::vector<ChainKey> keys;
    std::vector<BlockRead> items;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      keys.push_back(key_number(i));
      items.push_back({.group = 0, .key = keys.back()});
    }
    std::promise<void> asked;
    const auto slots = std::make_shared<Slots>(blocks);
    std::future<bool> end = slots->end();
    store_->ask(keys, 5 * kNanosPerSecond, [&](const std::vector<std::uint8_t>&) { asked.set_value(); });
    asked.get_future().wait();
    const Timer timer;
    store_->read(std::move(items), 0, slots);
    if (!end.get()) return std::nullopt;
    return timer.took();
  }

 private:
  const SystemClock clock_;
  const std::shared_ptr<PeerList> list_ = std::make_shared<PeerList>();
  std::unique_ptr<SharedStore> store_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(std::uint32_t blocks) {
  PeerKey secret{};
  secret.fill(5);
  Giver open_giver(nullptr), sealed_giver(make_peer_server_tls(secret).value());
  Reader open(nullptr, open_giver.port()), sealed(make_peer_client_tls(secret).value(), sealed_giver.port());
  const std::size_t bytes = blocks * kBlockBytes;
  const double mib = static_cast<double>(bytes) / (1 << 20);
  for (Reader* one : {&open, &sealed}) one->read(blocks);  // memory is there, and connections
  fmt::print("{:.0f} MiB in {} blocks, one connection; MiB/s\n", mib, blocks);
  fmt::print("{:>8} {:>12} {:>12} {:>12}\n", "round", "plain TCP", "unencrypted", "encrypted");
  std::vector<double> rates[3], cpu[3];
  for (int round = 0; round < kRounds; ++round) {
    const std::optional<Took> took[3] = {plain_stream(bytes), open.read(blocks), sealed.read(blocks)};
    for (std::size_t i = 0; i < 3; ++i) {
      if (!took[i]) {
        fmt::print("a read did not bring all blocks\n");
        return 1;
      }
      rates[i].push_back(mib / took[i]->seconds);
      cpu[i].push_back(took[i]->cpu_seconds * 1024 / mib);
    }
    fmt::print("{:>8} {:>12.0f} {:>12.0f} {:>12.0f}\n", round, rates[0].back(), rates[1].back(),
               rates[2].back());
  }
  std::vector<double> shares[2];
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < 2; ++i) shares[i].push_back(rates[i + 1][round] / rates[0][round]);
  }
  fmt::print(
      "processor time of both ends for a GiB: plain TCP {:.2f} s, unencrypted {:.2f} s, encrypted {:.2f} s\n",
      median(cpu[0]), median(cpu[1]), median(cpu[2]));
  fmt::print(
      "plain TCP {:.0f} MiB/s; a peer gives {:.2f} of it unencrypted, {:.2f} encrypted (medians of {} "
      "rounds)\n",
      median(rates[0]), median(shares[0]), median(shares[1]), kRounds);
  return 0;
}

}  // namespace
}  // namespace loci

// peers_benchmark [BLOCKS]; by default as many as a conversation of 4,000 tokens has.
int main(int count, char** arguments) {
  return loci::run(count > 1 ? static_cast<std::uint32_t>(std::max(1, std::atoi(arguments[1]))) : 124);
}
