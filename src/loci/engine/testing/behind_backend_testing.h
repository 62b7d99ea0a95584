// SPDX-License-Identifier: Apache-2.0
// A backend for tests whose copies go on after the calls that begin them, as a GPU's do. Another backend
// carries them out, in order, on one thread for loads and one for saves. Tests can hold them up, and lose the
// device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/compute/backend_testing.h"

namespace loci {

// Copies that are carried out one after another. Thread-safe.
class CopyThread {
 public:
  CopyThread() : thread_([this] { run(); }) {}
  ~CopyThread() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void post(std::function<void()> task) {
    {
      const MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  // Nothing is carried out until release().
  void hold() { set_held(true); }
  void release() { set_held(false); }

 private:
  void set_held(bool held) {
    {
      const MutexLock lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void run() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.wait(
          lock, [&]() REQUIRES(mutex_) { return (stopping_ || !held_) && (stopping_ || !tasks_.empty()); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class BehindBackend final : public WrappedBackend {
 public:
  BehindBackend(std::unique_ptr<Backend> inner, std::uint64_t copy_bytes)
      : WrappedBackend(*inner), owned_(std::move(inner)) {
    info_.copy_bytes = copy_bytes;
  }

  CopyThread& loads() { return loads_; }
  CopyThread& saves() { return saves_; }
  // Drops copies that have not been carried out.
  void lose() {
    const MutexLock lock(mutex_);
    health_ = Status(StatusCode::kUnavailable, "the device is lost");
  }

  Status health() const override {
    const MutexLock lock(mutex_);
    return health_;
  }
  void load(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces,
            BytesHeld held) override {
    std::vector<LoadPiece> copied(pieces.begin(), pieces.end());
    // The bytes go back to the caller, so they are copied. The copies stay in place when the task is moved.
    const auto staged = std::make_shared<std::vector<std::vector<std::byte>>>();
    if (held == BytesHeld::kDuringCall) {
      for (LoadPiece& piece : copied)
        piece.bytes = staged->emplace_back(piece.bytes.begin(), piece.bytes.end());
    }
    loads_.post([this, group, layers, copied = std::move(copied), staged] {
      if (health().ok()) inner_.load(group, layers, copied, BytesHeld::kDuringCall);
    });
  }
  void save(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces,
            BytesHeld held) const override {
    if (held == BytesHeld::kDuringCall) return inner_.save(group, layers, pieces, held);
    saves_.post([this, group, layers, copied = std::vector<SavePiece>(pieces.begin(), pieces.end())] {
      if (health().ok()) inner_.save(group, layers, copied, BytesHeld::kDuringCall);
    });
  }
  void after_loads(Copied done) const override {
    loads_.post([this, done = std::move(done)] { done(health()); });
  }
  void after_saves(Copied done) const override {
    saves_.post([this, done = std::move(done)] { done(health()); });
  }
  // Comes after copies into the slot that have begun.
  void fill_failed(std::uint32_t group, SlotId slot) override {
    loads_.post([this, group, slot] { inner_.fill_failed(group, slot); });
  }

 private:
  const std::unique_ptr<Backend> owned_;
  mutable Mutex mutex_;
  Status health_ GUARDED_BY(mutex_);
  mutable CopyThread loads_, saves_;
};

}  // namespace loci
