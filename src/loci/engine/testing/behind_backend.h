// SPDX-License-Identifier: Apache-2.0
// A backend whose copies go on behind the calls that begin them, as a GPU's do, for tests: those of another
// one, carried out in order by a thread for loads and one for saves. They can be held up, and the device be
// lost.
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
#include "loci/compute/backend.h"

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

class BehindBackend final : public Backend {
 public:
  BehindBackend(std::unique_ptr<Backend> inner, std::uint64_t copy_bytes)
      : inner_(std::move(inner)), info_(inner_->info()) {
    info_.copy_bytes = copy_bytes;
  }

  CopyThread& loads() { return loads_; }
  CopyThread& saves() { return saves_; }
  // Copies that have not been carried out never are.
  void lose() {
    const MutexLock lock(mutex_);
    health_ = Status(StatusCode::kUnavailable, "the device is lost");
  }

  const BackendInfo& info() const override { return info_; }
  Status allocate_blocks(std::uint32_t group, std::uint32_t count) override {
    return inner_->allocate_blocks(group, count);
  }
  void run(const Pass& pass, std::vector<SpanResult>& results) override { inner_->run(pass, results); }
  Status health() const override {
    const MutexLock lock(mutex_);
    return health_;
  }

  void begin_fill(std::uint32_t group, SlotId slot) override { inner_->begin_fill(group, slot); }
  void write_layer(SlotId slot, std::uint32_t layer, std::span<const std::byte> slice) override {
    loads_.post([this, slot, layer, staged = std::vector<std::byte>(slice.begin(), slice.end())] {
      if (health().ok()) inner_->write_layer(slot, layer, staged);
    });
  }
  void read_layer(SlotId slot, std::uint32_t layer, std::span<std::byte> slice) const override {
    inner_->read_layer(slot, layer, slice);
  }
  void layer_arrived(SlotId slot, std::uint32_t layer) override {
    loads_.post([this, slot, layer] { inner_->layer_arrived(slot, layer); });
  }
  void load_layers(std::uint32_t group, LayerRange layers, std::span<const LoadPiece> pieces) override {
    loads_.post([this, group, layers, copied = std::vector<LoadPiece>(pieces.begin(), pieces.end())] {
      if (health().ok()) inner_->load_layers(group, layers, copied);
    });
  }
  void save_layers(std::uint32_t group, LayerRange layers, std::span<const SavePiece> pieces) const override {
    saves_.post([this, group, layers, copied = std::vector<SavePiece>(pieces.begin(), pieces.end())] {
      if (health().ok()) inner_->save_layers(group, layers, copied);
    });
  }
  void after_loads(Copied done) const override {
    loads_.post([this, done = std::move(done)] { done(health()); });
  }
  void after_saves(Copied done) const override {
    saves_.post([this, done = std::move(done)] { done(health()); });
  }
  void clear_tokens(std::uint32_t layer, std::uint32_t first, std::span<std::byte> slice) const override {
    inner_->clear_tokens(layer, first, slice);
  }
  void rotate_keys(std::uint32_t layer, std::int32_t delta, std::span<std::byte> slice) const override {
    inner_->rotate_keys(layer, delta, slice);
  }
  // Behind what was begun of the slot.
  void fill_failed(std::uint32_t group, SlotId slot) override {
    loads_.post([this, group, slot] { inner_->fill_failed(group, slot); });
  }

 private:
  const std::unique_ptr<Backend> inner_;
  BackendInfo info_;
  mutable Mutex mutex_;
  Status health_ GUARDED_BY(mutex_);
  mutable CopyThread loads_, saves_;
};

}  // namespace loci
