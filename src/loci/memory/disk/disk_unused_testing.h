// SPDX-License-Identifier: Apache-2.0
// For tests of what drops unused state (disk_unused.h): models that keep state in two directories, and who
// serves another one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/disk_unused.h"

namespace loci {

inline constexpr std::uint64_t kUnusedSpace = 8 << 20;
inline constexpr Nanos kUnusedLimit = 100 * kNanosPerSecond;
inline constexpr std::int64_t kUnusedToday =
    4'000'000'000'000;  // in milliseconds: later than any file's time

// Models that kept state in two directories; who serves another one looks.
class UnusedStateTest : public ::testing::Test {
 protected:
  std::string directory(std::size_t i = 0) const { return folder_.file(i == 0 ? "first" : "second"); }
  static std::string id_of(std::uint8_t model) {
    std::array<std::uint8_t, 16> fingerprint;
    fingerprint.fill(model);
    return model_id(fingerprint);
  }
  std::string folder_of(std::uint8_t model, std::size_t directory_number = 0) const {
    return model_folder(directory(directory_number), id_of(model));
  }

  std::unique_ptr<DiskStore> serve(std::uint8_t model, Nanos limit = kUnusedLimit,
                                   std::size_t directories = 1) {
    DiskStoreOptions options{.groups = {{.layers = 4, .layer_slice_bytes = 4096}}, .state_ttl = limit};
    options.model_fingerprint.fill(model);
    for (std::size_t i = 0; i < directories; ++i) {
      EXPECT_TRUE(
          prepare_model_folder(directory(i), id_of(model), {"model-" + std::to_string(model), "/m"}).ok());
      options.directories.push_back({.path = folder_of(model, i), .bytes = kUnusedSpace});
    }
    auto store = DiskStore::open(options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }
  // Block `slot` hangs from `parent`, or from a root. `age`: in seconds, today.
  static void write(DiskStore& store, std::uint32_t slot, std::int64_t age,
                    std::optional<std::uint32_t> parent = {}, std::uint32_t depth = 1) {
    BlockEntry entry = test_entry(slot, depth);
    entry.parent = test_key(parent.value_or(1000));
    entry.parent_kind = parent ? ParentKind::kBlock : ParentKind::kRoot;
    entry.above = {};
    entry.used_at = kUnusedToday - age * 1000;
    ASSERT_TRUE(write_one(store, 0, SlotId(slot), entry, test_bytes(slot, store.groups()[0])).ok());
  }
  // A model that was served with this limit; blocks of these ages, none of which hangs from another.
  void write_model(std::uint8_t model, const std::vector<std::int64_t>& ages, Nanos limit = kUnusedLimit) {
    const auto store = serve(model, limit);
    for (std::size_t i = 0; i < ages.size(); ++i) write(*store, static_cast<std::uint32_t>(i), ages[i]);
  }
  std::set<std::uint32_t> left(std::uint8_t model, std::size_t directories = 1) {
    std::set<std::uint32_t> slots;
    for (const RecoveredEntry& one : recover_all(*serve(model, kUnusedLimit, directories)))
      slots.insert(one.slot.value);
    return slots;
  }
  bool is_there(std::uint8_t model, std::size_t directory_number = 0) const {
    return std::filesystem::exists(folder_of(model, directory_number));
  }

  UnusedState unused(std::size_t directories = 1) {
    UnusedOptions options{.own_model = id_of(99),
                          .say = [this](const std::string& line) { said_.push_back(line); },
                          .warn = [this](const std::string& line) { warned_.push_back(line); },
                          .now = [this] { return now_; },
                          .date = [this] { return kUnusedToday + (now_ + ahead_) / kNanosPerMilli; }};
    for (std::size_t i = 0; i < directories; ++i) options.directories.push_back(directory(i));
    return UnusedState(std::move(options));
  }
  // What a server does in its first minutes, in which time does not go on for records.
  void look(UnusedState& state) {
    const auto stop = [this] { return stop_.load(); };
    for (int i = 0; i < 1000 && !stop_; ++i) {
      const Nanos pause = state.step(stop);
      if (pause > UnusedState::kDropPause) {
        if (++looks_ % 2 == 0) return;
        now_ += std::min(pause, UnusedState::kSteadyAtStart);
        ahead_ -= std::min(pause, UnusedState::kSteadyAtStart);
      }
    }
  }
  void look() {
    UnusedState state = unused();
    look(state);
  }
  // Reads the one model that is there; what is to go of it goes at the next steps.
  void read_model(UnusedState& state, const StopAsked& stop) {
    state.step(stop);
    now_ += UnusedState::kSteadyAtStart;
    ahead_ = -now_;
    ASSERT_EQ(state.step(stop), 0) << "it is listed";
    ASSERT_EQ(state.step(stop), 0);
  }

  TestFolder folder_;
  std::vector<std::string> said_, warned_;
  Nanos now_ = 0, ahead_ = 0;
  int looks_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace loci
