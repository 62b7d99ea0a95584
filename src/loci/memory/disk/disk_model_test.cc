// SPDX-License-Identifier: Apache-2.0
// The disk store beside a map that says what it should hold.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_testing.h"

namespace loci {
namespace {

class Model {
 public:
  Model(std::uint64_t seed, DiskStoreOptions options) : random_(seed), options_(std::move(options)) {
    reopen();
  }

  void step() {
    const std::uint64_t what = random_.below(20);
    if (what < 8) {
      write();
    } else if (what < 14) {
      read();
    } else if (what < 16) {
      forget();
    } else if (what < 19) {
      hole();
    } else if (random_.below(5) == 0) {
      reopen();
      compare();
    }
  }

  void finish() {
    settle();
    reopen();
    compare();
    EXPECT_EQ(damaged_, 0u);
  }

 private:
  struct Place {
    std::uint32_t group;
    SlotId slot;
    auto operator<=>(const Place&) const = default;
  };

  Place any_place() {
    const auto group = static_cast<std::uint32_t>(random_.below(store_->groups().size()));
    // Few, so that they meet; the last one too.
    const auto slot = static_cast<std::uint32_t>(random_.below(12));
    return {group, SlotId(slot == 11 ? store_->groups()[group].slots - 1 : slot)};
  }

  void write() {
    const Place place = any_place();
    const std::uint64_t seed = next_seed_++;
    pending_.push_back(write_later(*store_, place.group, place.slot, test_entry(seed, depth_of(seed)),
                                   test_bytes(seed, store_->groups()[place.group])));
    entries_[place] = seed;
  }

  void forget() {
    const Place place = any_place();
    store_->change({.kind = RecordChange::Kind::kForget, .group = place.group, .slot = place.slot});
    entries_.erase(place);
  }

  void hole() {
    const SlotId slot(static_cast<std::uint32_t>(random_.below(5)));
    if (random_.below(3) == 0) {
      store_->change({.kind = RecordChange::Kind::kForgetHole, .slot = slot});
      holes_.erase(slot);
    } else {
      const std::uint64_t seed = next_seed_++;
      store_->change(
          {.kind = RecordChange::Kind::kHole, .slot = slot, .entry = test_entry(seed, depth_of(seed))});
      holes_[slot] = seed;
    }
  }

  // Several entries at once, some under a wrong key.
  void read() {
    settle();
    std::vector<BlockRead> items;
    std::vector<std::optional<std::uint64_t>> expected;
    for (std::uint64_t count = 1 + random_.below(5); count > 0; --count) {
      const Place place = any_place();
      const auto found = entries_.find(place);
      const bool wrong = random_.below(6) == 0;
      const std::uint64_t seed = found == entries_.end() || wrong ? 999'999 : found->second;
      items.push_back({place.group, place.slot, test_key(seed)});
      expected.push_back(seed == 999'999 ? std::nullopt : std::optional(seed));
    }
    const auto sink = std::make_shared<CollectingSink>(items.size());
    store_->read(items, static_cast<std::uint32_t>(random_.below(5)), sink);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const CollectingSink::Item& item = sink->wait()[i];
      ASSERT_EQ(item.status->code(), expected[i] ? StatusCode::kOk : StatusCode::kDataLoss);
      if (expected[i]) {
        ASSERT_EQ(item.bytes, test_bytes(*expected[i], store_->groups()[items[i].group]));
      } else {
        ASSERT_EQ(item.layers, 0u);
      }
    }
  }

  void settle() {
    for (auto& one : pending_) ASSERT_TRUE(one.get().ok());
    pending_.clear();
  }

  // Without waiting for what is under way: closing does.
  void reopen() {
    if (store_ != nullptr) damaged_ += store_->stats().damaged_total;
    store_.reset();
    settle();
    auto store = DiskStore::open(options_);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(store).value();
    ASSERT_TRUE(store_->notes().empty() || next_seed_ == 0);
  }

  void compare() {
    std::map<Place, std::uint64_t> entries = entries_;
    std::map<SlotId, std::uint64_t> holes = holes_;
    std::uint32_t depth = 0;
    for (const RecoveredEntry& one : recover_all(*store_)) {
      ASSERT_LE(depth, one.entry.depth);
      depth = one.entry.depth;
      const std::uint64_t seed = one.hole ? holes.at(one.slot) : entries.at({one.group, one.slot});
      ASSERT_EQ(one.entry, test_entry(seed, depth_of(seed)));
      if (one.hole) {
        holes.erase(one.slot);
      } else {
        entries.erase({one.group, one.slot});
      }
    }
    EXPECT_TRUE(entries.empty());
    EXPECT_TRUE(holes.empty());
  }

  static std::uint32_t depth_of(std::uint64_t seed) { return 1 + static_cast<std::uint32_t>(seed % 17); }

  Random random_;
  const DiskStoreOptions options_;
  std::unique_ptr<DiskStore> store_;
  std::map<Place, std::uint64_t> entries_;
  std::map<SlotId, std::uint64_t> holes_;
  std::vector<std::future<Status>> pending_;
  std::uint64_t next_seed_ = 0;
  std::uint64_t damaged_ = 0;
};

class DiskStoreModel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Engines, DiskStoreModel, ::testing::Values("auto", "threads"),
                         [](const auto& test) { return test.param; });

TEST_P(DiskStoreModel, HoldsWhatTheMapHolds) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const TestFolder folder;
    DiskStoreOptions options;
    for (std::uint64_t i = 0; i <= seed % 3; ++i) {
      options.directories.push_back({folder.file(std::to_string(i)), 3 << 20});
    }
    options.groups = {{.layers = 6, .layer_slice_bytes = 4096},
                      {.layers = 2, .layer_slice_bytes = 700},
                      {.layers = 1, .layer_slice_bytes = 100'000}};
    options.shares = {3, 2, 1};
    options.io = GetParam();
    options.queue_depth = static_cast<std::uint32_t>(1 + seed * 5);
    Model model(seed, options);
    for (int i = 0; i < 400 && !::testing::Test::HasFatalFailure(); ++i) model.step();
    model.finish();
  }
}

}  // namespace
}  // namespace loci
