// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/memory/disk/disk_keeper.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_testing.h"

namespace loci {
namespace {

constexpr std::uint64_t kBudgetMiB = 1 << 20;

// --- who gets what ---

TEST(DecideShare, GrantsWhatNobodyHas) {
  const std::vector<ModelShare> alone = {{.model = "a", .served = true}};
  const ShareDecision decision = decide_share(alone, 0, 320);
  EXPECT_EQ(decision.granted, 80u) << "a quarter of the budget ahead of what it holds";
  EXPECT_EQ(decision.room, 80u);
  EXPECT_FALSE(decision.from);
}

TEST(DecideShare, TakesFromWhoWasUnusedForLongest) {
  std::vector<ModelShare> shares = {
      {.model = "a", .granted = 100, .held = 100, .oldest_used_at = 50, .served = true},
      {.model = "b", .granted = 120, .held = 120, .oldest_used_at = 20},
      {.model = "c", .granted = 100, .held = 100, .oldest_used_at = 30}};
  const ShareDecision decision = decide_share(shares, 0, 320);
  ASSERT_TRUE(decision.from);
  EXPECT_EQ(*decision.from, 1u);
  EXPECT_EQ(decision.wanted, 10u);
  // Its own is the oldest: it gives up its own, as the core does when its room is full.
  shares[0].oldest_used_at = 10;
  EXPECT_FALSE(decide_share(shares, 0, 320).from);
}

TEST(DecideShare, TakesNothingFromWhoCannotGiveNow) {
  std::vector<ModelShare> shares = {
      {.model = "a", .granted = 100, .held = 100, .oldest_used_at = 50, .served = true},
      {.model = "b", .granted = 120, .held = 20, .oldest_used_at = 20, .stuck = true},
      {.model = "c", .granted = 100, .held = 100, .oldest_used_at = 30}};
  EXPECT_EQ(decide_share(shares, 0, 320).from, std::optional<std::size_t>(2));
  shares[2].stuck = true;
  EXPECT_FALSE(decide_share(shares, 0, 320).from);
}

TEST(DecideShare, WantsWhatIsNotUsedFirst) {
  const std::vector<ModelShare> shares = {
      {.model = "a", .granted = 100, .held = 100, .oldest_used_at = 5, .served = true},
      {.model = "b", .granted = 120, .held = 120, .oldest_used_at = 1, .served = true},
      {.model = "c", .granted = 100, .held = 10, .oldest_used_at = 90, .served = true}};
  EXPECT_EQ(decide_share(shares, 0, 320).from, std::optional<std::size_t>(2));
}

TEST(DecideShare, GivesWhatIsAskedWhenItIsDropped) {
  std::vector<ModelShare> shares = {
      {.model = "a", .granted = 100, .held = 100, .asked = 30, .oldest_used_at = 5, .served = true}};
  ShareDecision decision = decide_share(shares, 0, 100);
  EXPECT_EQ(decision.room, 70u);
  EXPECT_EQ(decision.granted, 100u) << "still there";
  EXPECT_FALSE(decision.gave_all);
  shares[0].held = 70;
  decision = decide_share(shares, 0, 100);
  EXPECT_EQ(decision.granted, 70u);
  EXPECT_TRUE(decision.gave_all);
}

// Models that fill up, are used, stop and start, with decisions in any order: never more than the budget.
TEST(DecideShare, GrantsNeverExceedTheBudget) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    constexpr std::uint64_t kBudget = 1000;
    std::vector<ModelShare> shares(4);
    std::vector<std::uint64_t> room(4, 0);
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = {.model = std::string(1, "abcd"[i])};
    for (int step = 0; step < 2000; ++step) {
      const std::size_t self = random.below(shares.size());
      ModelShare& own = shares[self];
      if (random.below(20) == 0) own.served = !own.served;
      if (!own.served) {
        own.granted = own.held;
        own.asked = 0;
        continue;
      }
      own.held = std::min<std::uint64_t>(room[self], own.held + random.below(60));
      if (random.below(3) == 0) own.oldest_used_at = step + 1;
      const ShareDecision decision = decide_share(shares, self, kBudget);
      own.granted = decision.granted;
      room[self] = decision.room;
      own.held = std::min(own.held, decision.room);  // as the core does, sooner or later
      if (decision.gave_all) own.asked = 0;
      if (decision.from) {
        ModelShare& giver = shares[*decision.from];
        if (giver.served) {
          giver.asked = std::max(giver.asked, decision.wanted);
        } else {
          giver.held -= std::min(giver.held, decision.wanted);
          giver.granted = giver.held;
        }
      }
      std::uint64_t granted = 0, held = 0;
      for (const ModelShare& one : shares) granted += one.granted, held += one.held;
      ASSERT_LE(granted, kBudget) << seed << " " << step;
      ASSERT_LE(held, kBudget);
    }
  }
}

TEST(BudgetFile, KeepsWhatWasWrittenAndPassesByDamage) {
  const TestFolder folder;
  std::filesystem::create_directories(folder.file("d"));
  const std::vector<ModelShare> shares = {{.model = "aa", .granted = 5, .asked = 2, .oldest_used_at = 77},
                                          {.model = "bb", .granted = 1}};
  {
    BudgetFile file = BudgetFile::lock(folder.file("d")).value();
    EXPECT_TRUE(file.read().empty());
    ASSERT_TRUE(file.write(shares).ok());
    EXPECT_EQ(file.read(), shares);
  }
  std::ofstream(folder.file("d") + "/budget", std::ios::app) << "cc what\n";
  EXPECT_EQ(BudgetFile::lock(folder.file("d"))->read(), shares);
  EXPECT_EQ(BudgetFile::lock(folder.file("none")).status().field(), "disk");
}

// --- real files ---

class SharedDirectory : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBudget = 8 * kBudgetMiB;

  std::string directory() const { return folder_.file("state"); }

  struct Server {
    std::unique_ptr<DiskStore> store;
    std::unique_ptr<DiskKeeper> keeper;
    std::string id;
    std::uint32_t next = 0;

    std::uint64_t look() { return keeper->look(store->oldest_used_at()); }
    // As a core that keeps to its room; false: there is none.
    bool write(std::int64_t used_at) {
      if (next >= store->room(look())[0]) return false;
      BlockEntry entry = test_entry(next);
      entry.parent_kind = ParentKind::kRoot;
      entry.above = {};
      entry.used_at = used_at;
      EXPECT_TRUE(write_one(*store, 0, SlotId(next), entry, test_bytes(next, store->groups()[0])).ok());
      ++next;
      return true;
    }
  };

  Server serve(std::uint8_t fingerprint, const std::string& name,
               const std::vector<DiskGroup>& groups = {{.layers = 4, .layer_slice_bytes = 16384}}) {
    DiskStoreOptions options{.groups = groups};
    options.model_fingerprint.fill(fingerprint);
    Server server;
    server.id = model_id(options.model_fingerprint);
    EXPECT_TRUE(prepare_model_folder(directory(), server.id, {name, "/models/" + name}).ok());
    options.directories = {{.path = model_folder(directory(), server.id), .bytes = kBudget}};
    auto store = DiskStore::open(options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    server.store = std::move(store).value();
    server.keeper = std::make_unique<DiskKeeper>(
        KeeperOptions{.directories = {{.path = directory(), .bytes = kBudget}},
                      .model = server.id,
                      .say = [this](const std::string& line) { said_.push_back(line); },
                      .now = [this] { return now_; }});
    return server;
  }

  static std::vector<DiskGroup> with_hidden_states() {
    return {{.layers = 4, .layer_slice_bytes = 16384},
            {.layers = 4, .layer_slice_bytes = 8192, .form = StateForm::kHidden}};
  }
  // A conversation's blocks, one below the other: the groups that have them. Block i has key seed + i.
  static void write_chain(Server& server, std::uint64_t seed, const std::vector<std::uint32_t>& groups) {
    for (std::uint32_t i = 0; i < groups.size(); ++i) {
      BlockEntry entry = test_entry(seed + i, i + 1);
      entry.parent = test_key(seed + i - 1);
      entry.parent_kind = i == 0 ? ParentKind::kRoot : ParentKind::kBlock;
      entry.above = {};
      entry.used_at = static_cast<std::int64_t>(seed);
      const std::vector<std::byte> bytes = test_bytes(seed + i, server.store->groups()[groups[i]]);
      ASSERT_TRUE(write_one(*server.store, groups[i], SlotId(server.next++), entry, bytes).ok());
    }
  }
  std::set<ChainKey> left(std::uint8_t fingerprint, const std::string& name) {
    std::set<ChainKey> keys;
    for (const RecoveredEntry& one : recover_all(*serve(fingerprint, name, with_hidden_states()).store))
      keys.insert(one.entry.key);
    return keys;
  }

  std::uint64_t held() const {
    std::uint64_t bytes = 0;
    for (const StoredModel& model : list_stored_models(directory())) bytes += model.held_bytes;
    return bytes;
  }

  // The older state is a's; b has what was left, and no server has either open.
  void fill_with_two_models() {
    Server a = serve(1, "a");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(a.write(1000 + i));
    Server b = serve(2, "b");
    for (int i = 0; b.write(2000 + i); ++i) {
    }
  }

  TestFolder folder_;
  std::vector<std::string> said_;
  Nanos now_ = 0;
};

TEST_F(SharedDirectory, AnotherModelsStateStaysAndComesBack) {
  {
    Server a = serve(1, "a");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(a.write(1000 + i));
  }
  {
    Server b = serve(2, "b");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(b.write(2000 + i));
    EXPECT_TRUE(b.store->losses().empty());
  }
  Server a = serve(1, "a");
  EXPECT_TRUE(a.store->losses().empty());
  EXPECT_EQ(recover_all(*a.store).size(), 20u);
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(list_stored_models(directory()).size(), 2u);
}

TEST_F(SharedDirectory, ABudgetThatCannotBeReadTakesNothing) {
  Server a = serve(1, "a");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a.write(1000 + i));
  const std::uint64_t room = a.look();
  std::filesystem::remove(directory() + "/budget");
  std::filesystem::create_directory(directory() + "/budget");
  EXPECT_EQ(a.look(), room);
  DiskKeeper fresh({.directories = {{.path = directory(), .bytes = kBudget}}, .model = a.id});
  EXPECT_GE(fresh.look(std::nullopt), held()) << "who starts keeps what it has";
  std::filesystem::remove(directory() + "/budget");
  EXPECT_GE(a.look(), held());
}

TEST_F(SharedDirectory, ABudgetThatAnotherServerHoldsIsNotWaitedForLong) {
  Server a = serve(1, "a");
  ASSERT_TRUE(a.write(1000));
  const std::uint64_t room = a.look();
  const Result<BudgetFile> held_by_another = BudgetFile::lock(directory());
  ASSERT_TRUE(held_by_another.ok());
  EXPECT_EQ(a.look(), room);
}

TEST_F(SharedDirectory, TheOldestStateOfAnyModelGoesFirst) {
  std::uint32_t written = 0;
  {
    Server a = serve(1, "a");
    while (a.write(1000 + written)) ++written;
    EXPECT_LE(held(), kBudget);
    EXPECT_GT(held(), kBudget * 8 / 10);
  }
  {
    Server b = serve(2, "b");
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(b.write(5000 + i)) << i;
    EXPECT_LE(held(), kBudget);
    EXPECT_FALSE(said_.empty()) << "what is dropped is said";
  }
  Server a = serve(1, "a");
  const std::vector<RecoveredEntry> left = recover_all(*a.store);
  EXPECT_LT(left.size(), written);
  EXPECT_GT(left.size(), written / 2);
  for (const RecoveredEntry& one : left) {
    EXPECT_GE(one.entry.used_at, 1000 + static_cast<std::int64_t>(written - left.size()))
        << "the newest are left";
    EXPECT_TRUE(read_one(*a.store, 0, one.slot, one.entry.key).status->ok());
  }
}

TEST_F(SharedDirectory, AServerGivesUpWhatAnotherNeeds) {
  Server a = serve(1, "a"), b = serve(2, "b");
  while (a.write(1000 + a.next)) {
  }
  const std::uint32_t all = a.next;
  std::uint32_t lost = 0;
  // The disk may take its time to give space back.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
       b.next < 20 && std::chrono::steady_clock::now() < end;) {
    b.write(9000 + b.next);
    const std::uint32_t room = a.store->room(a.look())[0];
    for (; lost + room < all; ++lost)  // its core drops what was used longest ago
      a.store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(lost)});
    // A read behind the changes waits for them.
    read_one(*a.store, 0, SlotId(all - 1), test_key(all - 1));
    EXPECT_LE(held(), kBudget + 2 * kBudgetMiB);
  }
  EXPECT_EQ(b.next, 20u);
  EXPECT_GT(lost, 0u);
  EXPECT_TRUE(read_one(*a.store, 0, SlotId(all - 1), test_key(all - 1)).status->ok());
}

TEST_F(SharedDirectory, ModelsAreFoundAndForgottenByName) {
  {
    serve(0xaa, "small").write(1000);
  }
  Server served = serve(0xbb, "large");
  served.write(1000);
  EXPECT_EQ(find_stored_models(directory(), "small").size(), 1u);
  EXPECT_EQ(find_stored_models(directory(), "/models/large").size(), 1u);
  EXPECT_EQ(find_stored_models(directory(), "bbbb").size(), 1u);
  EXPECT_TRUE(find_stored_models(directory(), "b").empty());
  EXPECT_EQ(forget_stored_model(find_stored_models(directory(), "large")[0]).code(),
            StatusCode::kUnavailable);
  ASSERT_TRUE(forget_stored_model(find_stored_models(directory(), "small")[0]).ok());
  EXPECT_EQ(list_stored_models(directory()).size(), 1u);
}

// The folder goes between the moment in which a server opens the lock's file and that in which it has it.
// Here a file that cannot be opened for writing: who wants room gets it of another model.
TEST_F(SharedDirectory, StateThatCannotBeDroppedNowIsKept) {
  {
    Server a = serve(1, "a");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(a.write(1000 + i));
    Server b = serve(2, "b");
    for (int i = 0; b.write(2000 + i); ++i) {
    }
  }
  const std::string slots = model_folder(directory(), serve(1, "a").id) + "/group-0.slots";
  std::filesystem::rename(slots, slots + "-aside");
  std::filesystem::create_directory(slots);
  for (const StoredModel& model : list_stored_models(directory())) {
    if (model.name.name != "a") continue;
    EXPECT_EQ(drop_oldest_state(model, 1).status().code(), StatusCode::kUnavailable);
  }
  {
    Server c = serve(3, "c");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(c.write(3000 + i)) << i;
  }
  std::filesystem::remove(slots);
  std::filesystem::rename(slots + "-aside", slots);
  EXPECT_EQ(recover_all(*serve(1, "a").store).size(), 20u);
}

// A conversation of hidden states begins with keys and values: without them the rest leads nowhere.
TEST_F(SharedDirectory, HiddenStatesAreDroppedBeforeWhatTheyHangFrom) {
  {
    Server a = serve(1, "a", with_hidden_states());
    write_chain(a, 1000, {0, 1, 1});
    write_chain(a, 2000, {0, 1});
  }
  const Result<DroppedState> dropped = drop_oldest_state(find_stored_models(directory(), "a")[0], 1);
  ASSERT_TRUE(dropped.ok()) << dropped.status().to_string();
  EXPECT_EQ(dropped->freed_bytes, 4u * 8192);
  EXPECT_EQ(dropped->oldest_used_at, 1000);
  EXPECT_EQ(left(1, "a"),
            (std::set<ChainKey>{test_key(1000), test_key(1001), test_key(2000), test_key(2001)}));
}

TEST_F(SharedDirectory, AModelOfHiddenStatesAloneGivesTheOldest) {
  {
    Server a = serve(1, "a", with_hidden_states());
    write_chain(a, 1000, {1});
    write_chain(a, 2000, {1, 1});
  }
  const Result<DroppedState> dropped = drop_oldest_state(find_stored_models(directory(), "a")[0], 1);
  ASSERT_TRUE(dropped.ok()) << dropped.status().to_string();
  EXPECT_EQ(dropped->freed_bytes, 4u * 8192);
  EXPECT_EQ(left(1, "a"), (std::set<ChainKey>{test_key(2000), test_key(2001)}));
}

// A file of records that opens and refuses each read: here a directory (EISDIR). Who wants room gets it of
// another model.
TEST_F(SharedDirectory, StateWhoseRecordsCannotBeReadNowIsKept) {
  fill_with_two_models();
  const StoredModel model = find_stored_models(directory(), "a")[0];
  const std::string headers = model.folder + "/group-0.headers";
  std::filesystem::rename(headers, headers + "-aside");
  std::filesystem::create_directory(headers);
  const Status refused = drop_oldest_state(model, 1).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find(headers), std::string::npos) << refused.message();
  {
    Server c = serve(3, "c");
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(c.write(3000 + i)) << i;
  }
  ASSERT_TRUE(std::filesystem::exists(headers)) << "nothing of it went";
  std::filesystem::remove(headers);
  std::filesystem::rename(headers + "-aside", headers);
  EXPECT_EQ(recover_all(*serve(1, "a").store).size(), 20u);
}

// A look reads all records of a model that is to give, under its lock: not again and again.
TEST_F(SharedDirectory, StateThatCannotBeReadIsLeftAloneForAWhile) {
  fill_with_two_models();
  const StoredModel model = find_stored_models(directory(), "a")[0];
  const std::string headers = model.folder + "/group-0.headers";
  const std::uint64_t before = held_bytes_of(model.folder);
  Server c = serve(3, "c");
  int used_at = 3000;
  const auto take_room = [&] {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(c.write(used_at++));
  };
  const auto times_said = [&] {
    return std::count_if(said_.begin(), said_.end(), [](const std::string& line) {
      return line.find("no room could be made") != std::string::npos;
    });
  };
  Nanos pause = 300 * kNanosPerSecond;
  for (int failures = 1; failures <= 2; ++failures, pause *= 2) {
    std::filesystem::rename(headers, headers + "-aside");
    std::filesystem::create_directory(headers);
    for (int i = 0; i < 40 && times_said() < failures; ++i) ASSERT_TRUE(c.write(used_at++));
    ASSERT_EQ(times_said(), failures);
    std::filesystem::remove(headers);
    std::filesystem::rename(headers + "-aside", headers);
    now_ += pause - 1;
    take_room();
    EXPECT_EQ(held_bytes_of(model.folder), before) << "nobody looks, and others give";
    now_ += 1;
  }
  take_room();
  EXPECT_LT(held_bytes_of(model.folder), before);
}

TEST_F(SharedDirectory, AServerThatStartsAsItsFolderGoesHasAFolder) {
  const std::string folder = model_folder(directory(), "abcd");
  std::unique_ptr<DiskFolder> dropping = make_disk_folder(folder);
  ASSERT_TRUE(dropping->lock({}).ok());
  const auto starting = make_disk_folder(folder);
  std::thread server([&] { EXPECT_TRUE(starting->lock({}).ok()); });
  // It waits for the lock: of the file there are two descriptors, or it has not begun.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::filesystem::rename(folder, folder + "-going");
  std::filesystem::remove_all(folder + "-going");
  dropping.reset();
  server.join();
  EXPECT_TRUE(std::filesystem::exists(folder + "/lock")) << "what it has locked is there";
  EXPECT_EQ(make_disk_folder(folder)->lock({}).code(), StatusCode::kUnavailable) << "for nobody else";
}

// As a version before folders for models left it.
TEST_F(SharedDirectory, AnOldStoreIsMovedToItsModelsFolder) {
  DiskStoreOptions options{.directories = {{.path = directory(), .bytes = kBudget}},
                           .groups = {{.layers = 4, .layer_slice_bytes = 16384}}};
  options.model_fingerprint.fill(3);
  {
    const auto store = DiskStore::open(options).value();
    ASSERT_TRUE(write_one(*store, 0, SlotId(1), test_entry(1), test_bytes(1, store->groups()[0])).ok());
  }
  Server server = serve(3, "three");
  EXPECT_EQ(recover_all(*server.store).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(directory() + "/superblock"));
}

TEST_F(SharedDirectory, AnotherSizeKeepsWhatIsThere) {
  DiskStoreOptions options{.directories = {{.path = directory(), .bytes = kBudget}},
                           .groups = {{.layers = 4, .layer_slice_bytes = 16384}}};
  for (const std::uint64_t bytes : {2 * kBudgetMiB, 8 * kBudgetMiB, 1 * kBudgetMiB}) {
    options.directories[0].bytes = bytes;
    const auto store = DiskStore::open(options).value();
    EXPECT_TRUE(store->losses().empty());
    if (bytes == 2 * kBudgetMiB) {
      ASSERT_TRUE(write_one(*store, 0, SlotId(1), test_entry(1), test_bytes(1, store->groups()[0])).ok());
    } else {
      EXPECT_EQ(recover_all(*store).size(), 1u);
    }
    EXPECT_GE(store->groups()[0].slots, bytes / 70'000);
  }
}

}  // namespace
}  // namespace loci
