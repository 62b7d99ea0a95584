// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>
#include <utility>

#include "loci/base/check.h"
#include "loci/memory/disk/disk_io.h"

namespace loci {
namespace {

constexpr std::uint64_t kWakeId = ~std::uint64_t{0};

class UringEngine final : public IoEngine {
 public:
  static Result<std::unique_ptr<IoEngine>> make(std::uint32_t depth) {
    std::unique_ptr<UringEngine> engine(new UringEngine);
    const int refused = ::io_uring_queue_init(depth + 1, &engine->ring_, 0);
    if (refused < 0) {
      return Status(StatusCode::kUnavailable, fmt::format("io_uring is refused: {}", errno_text(-refused)));
    }
    engine->ready_ = true;
    io_uring_probe* probe = ::io_uring_get_probe_ring(&engine->ring_);
    const bool known = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                       ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0 &&
                       ::io_uring_opcode_supported(probe, IORING_OP_FALLOCATE) != 0;
    if (probe != nullptr) ::io_uring_free_probe(probe);
    // Before Linux 5.11 a wait with a time limit is liburing's own, made of a request whose end it takes out
    // of the ring by the name that kWakeId has: wake() would be lost, and with it the time limit.
    const bool waits_itself = (engine->ring_.features & IORING_FEAT_EXT_ARG) != 0;
    if (!known || !waits_itself) return Status(StatusCode::kUnavailable, "the system's io_uring is too old");
    engine->wake_descriptor_ = ::eventfd(0, EFD_CLOEXEC);
    if (engine->wake_descriptor_ < 0) {
      return Status(StatusCode::kUnavailable, fmt::format("no eventfd: {}", errno_text(errno)));
    }
    engine->listen();
    return std::unique_ptr<IoEngine>(std::move(engine));
  }

  ~UringEngine() override {
    // The system may write what is in flight at any time.
    if (!in_flight_.empty()) (void)new auto(std::move(in_flight_));
    if (ready_) ::io_uring_queue_exit(&ring_);
    if (wake_descriptor_ >= 0) ::close(wake_descriptor_);
  }

  const char* name() const override { return "io_uring"; }

  void submit(std::vector<IoRequest> requests) override {
    for (IoRequest& request : requests) {
      io_uring_sqe* entry = next_entry();
      if (request.discard) {
        ::io_uring_prep_fallocate(entry, request.file->descriptor(),
                                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(request.offset), static_cast<off_t>(request.bytes));
      } else if (request.write) {
        ::io_uring_prep_write(entry, request.file->descriptor(), request.data,
                              static_cast<unsigned>(request.bytes), request.offset);
      } else {
        ::io_uring_prep_read(entry, request.file->descriptor(), request.data,
                             static_cast<unsigned>(request.bytes), request.offset);
      }
      entry->user_data = request.id;
      in_flight_.emplace(request.id, std::move(request));
    }
    if (!requests.empty()) ::io_uring_submit(&ring_);
  }

  void wait(Nanos most, std::vector<IoEnd>& ended) override {
    __kernel_timespec time{.tv_sec = most / kNanosPerSecond, .tv_nsec = most % kNanosPerSecond};
    io_uring_cqe* first = nullptr;
    // Errors are a passed time and interruptions: the caller comes again.
    ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &time, nullptr);
    io_uring_cqe* entries[64];
    while (const unsigned count = ::io_uring_peek_batch_cqe(&ring_, entries, 64)) {
      bool woken = false;
      for (unsigned i = 0; i < count; ++i) {
        if (entries[i]->user_data == kWakeId) {
          woken = true;
          continue;
        }
        const auto found = in_flight_.find(entries[i]->user_data);
        const bool discarded = found->second.discard && entries[i]->res == 0;
        ended.push_back({found->first, discarded ? static_cast<std::int64_t>(found->second.bytes)
                                                 : std::int64_t{entries[i]->res}});
        in_flight_.erase(found);
      }
      ::io_uring_cq_advance(&ring_, count);
      if (woken) listen();
    }
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (::write(wake_descriptor_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

 private:
  UringEngine() = default;

  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      ::io_uring_submit(&ring_);
      entry = ::io_uring_get_sqe(&ring_);
    }
    LOCI_CHECK(entry != nullptr, "the ring is deeper than what is in flight");
    return entry;
  }

  void listen() {
    io_uring_sqe* entry = next_entry();
    ::io_uring_prep_read(entry, wake_descriptor_, &wake_count_, sizeof wake_count_, 0);
    entry->user_data = kWakeId;
    ::io_uring_submit(&ring_);
  }

  io_uring ring_{};
  bool ready_ = false;
  int wake_descriptor_ = -1;
  std::uint64_t wake_count_ = 0;
  std::unordered_map<std::uint64_t, IoRequest> in_flight_;
};

}  // namespace

Result<std::unique_ptr<IoEngine>> make_uring_engine(std::uint32_t depth) { return UringEngine::make(depth); }

}  // namespace loci
