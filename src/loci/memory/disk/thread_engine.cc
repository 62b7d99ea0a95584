// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_io.h"

namespace loci {
namespace {

constexpr std::uint32_t kThreads = 8;  // of all lanes together, but two for each at least

// Owned by the threads too: one that waits for a dead disk outlives the engine.
struct Shared {
  struct Lane {
    std::deque<IoRequest> waiting;
    Condition more;
    std::uint32_t running = 0;
  };

  explicit Shared(std::uint32_t count) : lanes(count) {}

  Mutex mutex;
  std::vector<Lane> lanes GUARDED_BY(mutex);
  std::vector<IoEnd> ended GUARDED_BY(mutex);
  Condition something;
  bool woken GUARDED_BY(mutex) = false;
  bool stop GUARDED_BY(mutex) = false;
};

std::int64_t carry_out(const IoRequest& request) {
  if (request.discard) {
    const std::int64_t result = request.file->discard(request.offset, request.bytes);
    return result == 0 ? static_cast<std::int64_t>(request.bytes) : result;
  }
  return request.write ? request.file->write(request.offset, {request.data, request.bytes})
                       : request.file->read(request.offset, {request.data, request.bytes});
}

void serve_lane(const std::shared_ptr<Shared> shared, std::uint32_t index) {
  ::pthread_setname_np(::pthread_self(), "loci-disk-io");
  MutexLock lock(shared->mutex);
  Shared::Lane& lane = shared->lanes[index];
  while (true) {
    lane.more.wait(lock, [&]() REQUIRES(shared->mutex) { return shared->stop || !lane.waiting.empty(); });
    if (shared->stop) return;
    IoRequest request = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    ++lane.running;
    lock.unlock();
    const std::int64_t result = carry_out(request);
    request.file.reset();
    request.memory.reset();
    lock.lock();
    --lane.running;
    shared->ended.push_back({request.id, result});
    shared->something.notify_one();
  }
}

class ThreadEngine final : public IoEngine {
 public:
  explicit ThreadEngine(std::uint32_t lanes) : shared_(std::make_shared<Shared>(lanes)) {
    const std::uint32_t each = std::max(2u, kThreads / lanes);
    try {
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        for (std::uint32_t i = 0; i < each; ++i) threads_.emplace_back(serve_lane, shared_, lane);
      }
    } catch (...) {
      stop();  // no destructor runs, and threads that nobody joins would end the process
      throw;
    }
  }

  ~ThreadEngine() override { stop(); }

  const char* name() const override { return "threads"; }

  void submit(std::vector<IoRequest> requests) override {
    const MutexLock lock(shared_->mutex);
    for (IoRequest& request : requests) {
      Shared::Lane& lane = shared_->lanes[request.lane];
      lane.waiting.push_back(std::move(request));
      lane.more.notify_one();
    }
  }

  void wait(Nanos most, std::vector<IoEnd>& ended) override {
    MutexLock lock(shared_->mutex);
    shared_->something.wait_for(lock, std::chrono::nanoseconds(most), [&]() REQUIRES(shared_->mutex) {
      return shared_->woken || !shared_->ended.empty();
    });
    shared_->woken = false;
    ended.insert(ended.end(), shared_->ended.begin(), shared_->ended.end());
    shared_->ended.clear();
  }

  void wake() override {
    const MutexLock lock(shared_->mutex);
    shared_->woken = true;
    shared_->something.notify_one();
  }

 private:
  void stop() {
    bool busy = false;
    {
      const MutexLock lock(shared_->mutex);
      shared_->stop = true;
      for (Shared::Lane& lane : shared_->lanes) {
        lane.more.notify_all();
        busy = busy || lane.running > 0;
      }
    }
    for (std::thread& thread : threads_) {
      if (busy) {
        thread.detach();
      } else {
        thread.join();
      }
    }
  }

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(std::uint32_t lanes) {
  return std::make_unique<ThreadEngine>(lanes);
}

}  // namespace loci
