// SPDX-License-Identifier: Apache-2.0
// What tests of shared stores have in common: two groups of layers, blocks made from a seed, a store's calls
// made to wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

namespace loci::shared_test {

inline const std::vector<SharedGroup> kGroups = {{.layers = 5, .layer_slice_bytes = 60'000},
                                                 {.layers = 2, .layer_slice_bytes = 1'000}};

// Of what is to succeed, however busy the machine is.
inline constexpr Nanos kPatient = 3600 * kNanosPerSecond;

inline SharedKeys keys_of(std::uint8_t number) {
  SharedKeys keys;
  keys.names.fill(number);
  keys.seals.fill(number);
  return keys;
}

inline std::vector<std::byte> bytes_of(std::uint64_t seed, std::uint32_t group) {
  return test_bytes(seed,
                    {.layers = kGroups[group].layers, .layer_slice_bytes = kGroups[group].layer_slice_bytes});
}

inline Status write(SharedStore& store, std::uint64_t seed, std::uint32_t group) {
  std::promise<Status> done;
  store.write(group, {}, {.key = test_key(seed)}, bytes_of(seed, group),
              [&](Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

inline std::vector<std::uint8_t> ask(SharedStore& store, const std::vector<std::uint64_t>& seeds,
                                     Nanos limit = kPatient) {
  std::vector<ChainKey> keys;
  for (const std::uint64_t seed : seeds) keys.push_back(test_key(seed));
  std::promise<std::vector<std::uint8_t>> answer;
  store.ask(std::move(keys), limit,
            [&](std::vector<std::uint8_t> groups) { answer.set_value(std::move(groups)); });
  return answer.get_future().get();
}

inline std::shared_ptr<CollectingSink> read(SharedStore& store, const std::vector<std::uint64_t>& seeds,
                                            std::uint32_t group) {
  auto sink = std::make_shared<CollectingSink>(seeds.size());
  std::vector<BlockRead> items;
  for (const std::uint64_t seed : seeds) items.push_back({.group = group, .slot = {}, .key = test_key(seed)});
  store.read(std::move(items), 0, sink);
  sink->wait();
  return sink;
}

// Until it does, or the test's own limit ends it.
template <class Condition>
void await(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// A clock that a test sets ahead. Thread-safe.
class AdvancedClock final : public Clock {
 public:
  Nanos now() const override { return system_.now() + ahead_; }
  void advance(Nanos by) { ahead_ += by; }

 private:
  SystemClock system_;
  std::atomic<Nanos> ahead_ = 0;
};

inline void forget(SharedStore& store, std::uint64_t seed) {
  store.change({.kind = RecordChange::Kind::kForget, .entry = {.key = test_key(seed)}});
}

// Thread-safe.
class Warnings {
 public:
  void add(const std::string& line) {
    const MutexLock lock(mutex_);
    all_ += line + "\n";
  }
  std::string all() const {
    const MutexLock lock(mutex_);
    return all_;
  }
  // How often the text was told.
  int count(const std::string& text) const {
    const std::string all = this->all();
    int found = 0;
    for (std::size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  }

 private:
  mutable Mutex mutex_;
  std::string all_ GUARDED_BY(mutex_);
};

}  // namespace loci::shared_test
