// SPDX-License-Identifier: Apache-2.0
// What tests of the disk store share: entries and state made from a seed, a sink that collects, a store's
// calls made to wait.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/base/random.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

inline ChainKey test_key(std::uint64_t seed) {
  ChainKey key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    key.bytes[i] = static_cast<std::uint8_t>(random_word(seed, i));
  }
  return key;
}

inline BlockEntry test_entry(std::uint64_t seed, std::uint32_t depth = 1) {
  BlockEntry entry{.key = test_key(seed), .parent = test_key(seed + 1), .depth = depth};
  entry.parent_kind = static_cast<ParentKind>(seed % 3);
  if (entry.parent_kind == ParentKind::kGate) entry.above = test_key(seed + 2);
  for (std::size_t i = 0; i < entry.tokens.size(); ++i) {
    entry.tokens[i] = TokenId(static_cast<std::uint32_t>(random_word(seed, 100 + i)));
  }
  entry.used_at = static_cast<std::int64_t>(seed);
  return entry;
}

inline std::vector<std::byte> test_bytes(std::uint64_t seed, const DiskGroup& group) {
  std::vector<std::byte> bytes(group.layers * group.layer_slice_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(random_word(seed, i / 8) >> (i % 8 * 8));
  }
  return bytes;
}

// Collects items; checks the order that the sink is promised.
class CollectingSink : public BlockReadSink {
 public:
  struct Item {
    std::vector<std::byte> bytes;
    std::uint32_t layers = 0;
    std::uint32_t calls = 0;
    std::optional<Status> status;
  };

  explicit CollectingSink(std::size_t items) : items_(items), left_(items) {}

  void slices(std::size_t item, std::uint32_t first, std::uint32_t count,
              std::span<const std::byte> bytes) override {
    const MutexLock lock(mutex_);
    Item& one = items_[item];
    LOCI_CHECK(!one.status.has_value(), "slices after the last call");
    LOCI_CHECK(first == one.layers && count > 0, "layers in ascending order, each once");
    one.layers += count;
    ++one.calls;
    one.bytes.insert(one.bytes.end(), bytes.begin(), bytes.end());
    order_.emplace_back(item, first);
  }
  void done(std::size_t item, Status status) override {
    const MutexLock lock(mutex_);
    LOCI_CHECK(!items_[item].status.has_value(), "an item's last call comes once");
    items_[item].status = std::move(status);
    if (--left_ == 0) all_.notify_all();
  }

  const std::vector<Item>& wait() {
    MutexLock lock(mutex_);
    all_.wait(lock, [&]() REQUIRES(mutex_) { return left_ == 0; });
    return items_;
  }
  bool is_done(std::size_t item) {
    const MutexLock lock(mutex_);
    return items_[item].status.has_value();
  }
  const std::vector<std::pair<std::size_t, std::uint32_t>>& order() const { return order_; }

 private:
  Mutex mutex_;
  Condition all_;
  std::vector<Item> items_;
  std::size_t left_ GUARDED_BY(mutex_);
  std::vector<std::pair<std::size_t, std::uint32_t>> order_;
};

inline CollectingSink::Item read_one(DiskStore& store, std::uint32_t group, SlotId slot, const ChainKey& key,
                                     std::uint32_t layers_at_once = 0) {
  const auto sink = std::make_shared<CollectingSink>(1);
  store.read({{group, slot, key}}, layers_at_once, sink);
  return sink->wait()[0];
}

inline std::future<Status> write_later(DiskStore& store, std::uint32_t group, SlotId slot, BlockEntry entry,
                                       std::vector<std::byte> bytes) {
  const auto promise = std::make_shared<std::promise<Status>>();
  store.write(group, slot, std::move(entry), std::move(bytes),
              [promise](Status status) { promise->set_value(std::move(status)); });
  return promise->get_future();
}

inline Status write_one(DiskStore& store, std::uint32_t group, SlotId slot, BlockEntry entry,
                        std::vector<std::byte> bytes) {
  return write_later(store, group, slot, std::move(entry), std::move(bytes)).get();
}

inline std::vector<RecoveredEntry> recover_all(DiskStore& store) {
  struct State {
    std::promise<void> last;
    std::vector<RecoveredEntry> entries;
  };
  const auto state = std::make_shared<State>();
  store.recover([state](std::vector<RecoveredEntry> found, bool last) {
    state->entries.insert(state->entries.end(), found.begin(), found.end());
    if (last) state->last.set_value();
  });
  state->last.get_future().wait();
  return state->entries;
}

}  // namespace loci
