// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_unused.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "loci/memory/disk/disk_unused_testing.h"

namespace loci {
namespace {

TEST_F(UnusedStateTest, TheYoungestDecidesOfAFolder) {
  write_model(1, {150, 101});
  write_model(2, {150, 99});
  write_model(3, {99, 98});
  look();
  EXPECT_FALSE(is_there(1));
  EXPECT_EQ(left(2), (std::set<std::uint32_t>{1}));
  EXPECT_EQ(left(3), (std::set<std::uint32_t>{0, 1}));
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_NE(said_[0].find("of model-1: all of its state, which nobody had used for 101.00 s"),
            std::string::npos)
      << said_[0];
  EXPECT_TRUE(said_[0].starts_with(folder_of(1) + ": dropped ")) << said_[0];
  EXPECT_NE(said_[1].find("dropped 16.0 KiB of model-2: state that nobody had used for 100s"),
            std::string::npos)
      << said_[1];
  EXPECT_TRUE(warned_.empty());
}

TEST_F(UnusedStateTest, WhatLeadsToSomethingYoungStays) {
  {
    const auto store = serve(1);
    write(*store, 0, 500);
    write(*store, 1, 90, 0, 2);
    write(*store, 2, 500, 1, 3);
    write(*store, 3, 500);
    store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(0), .entry = [] {
                     BlockEntry entry = test_entry(70);
                     entry.parent_kind = ParentKind::kRoot;
                     entry.above = {};
                     entry.used_at = kUnusedToday - 500'000;
                     return entry;
                   }()});
  }
  ASSERT_EQ(recover_all(*serve(1)).size(), 5u);
  look();
  EXPECT_EQ(left(1), (std::set<std::uint32_t>{0, 1}));
  EXPECT_EQ(recover_all(*serve(1)).size(), 2u) << "the hole has tokens, and goes too";
}

TEST_F(UnusedStateTest, WithoutALimitStateStays) {
  write_model(1, {1'000'000'000}, kNever);
  look();
  EXPECT_EQ(left(1).size(), 1u);
  EXPECT_TRUE(said_.empty() && warned_.empty());
}

// The limit of who looks is nobody else's, and the one with which the model was served last counts.
TEST_F(UnusedStateTest, TheLimitNotedLastCounts) {
  write_model(1, {500}, kUnusedLimit);
  serve(1, kNever).reset();
  look();
  EXPECT_TRUE(is_there(1));
  serve(1, 1000 * kNanosPerSecond).reset();
  look();
  EXPECT_TRUE(is_there(1));
  serve(1, 499 * kNanosPerSecond).reset();
  look();
  EXPECT_FALSE(is_there(1));
}

TEST_F(UnusedStateTest, WhatIsServedIsPassedOver) {
  write_model(1, {500});
  write_model(99, {500});
  {
    const auto server = serve(1);
    look();
    EXPECT_EQ(recover_all(*server).size(), 1u);
  }
  EXPECT_TRUE(is_there(99)) << "its own";
  look();
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(99));
  EXPECT_TRUE(warned_.empty());
}

TEST_F(UnusedStateTest, WithoutANoteStateStaysAndThatIsSaidOnce) {
  write_model(1, {500});
  std::filesystem::remove(folder_of(1) + "/limit");
  UnusedState state = unused();
  look(state);
  look(state);
  EXPECT_TRUE(is_there(1));
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("state of model-1 stays there until its room is wanted"), std::string::npos)
      << said_[0];
}

// An earlier version has the folder open without noting its limit, which may be a longer one.
TEST_F(UnusedStateTest, ANoteFromBeforeAnEarlierVersionIsNotBelieved) {
  write_model(1, {500});
  std::ofstream(folder_of(1) + "/lock") << "1234\n";
  look();
  EXPECT_TRUE(is_there(1));
  ASSERT_EQ(warned_.size(), 1u);
  EXPECT_NE(warned_[0].find("an earlier version had it open last"), std::string::npos) << warned_[0];
}

TEST_F(UnusedStateTest, ADamagedNoteKeepsStateAndThatIsSaidOnce) {
  write_model(1, {500});
  write_model(2, {500});
  write_model(3, {500});
  std::fstream(folder_of(1) + "/limit", std::ios::in | std::ios::out).seekp(44).put('\x7f');
  std::filesystem::copy_file(folder_of(1) + "/limit", folder_of(2) + "/limit",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(folder_of(3) + "/limit");
  std::filesystem::create_directory(folder_of(3) + "/limit");
  UnusedState state = unused();
  look(state);
  look(state);
  EXPECT_TRUE(is_there(1) && is_there(2) && is_there(3));
  ASSERT_EQ(warned_.size(), 3u);
  EXPECT_NE(warned_[0].find("the note of its limit is damaged"), std::string::npos) << warned_[0];
  EXPECT_TRUE(said_.empty());
}

TEST_F(UnusedStateTest, AnotherModelsNoteIsNotBelieved) {
  write_model(1, {500});
  write_model(2, {500}, kNever);
  std::filesystem::copy_file(folder_of(1) + "/limit", folder_of(2) + "/limit",
                             std::filesystem::copy_options::overwrite_existing);
  look();
  EXPECT_FALSE(is_there(1));
  EXPECT_TRUE(is_there(2));
}

TEST_F(UnusedStateTest, WhatIsDamagedOrOfALaterVersionStays) {
  for (const std::uint8_t model : {1, 2, 3}) write_model(model, {500});
  std::ofstream(folder_of(1) + "/superblock") << "nothing";
  std::filesystem::resize_file(folder_of(2) + "/group-0.headers", 512);
  // A record that the disk does not read.
  std::filesystem::remove(folder_of(3) + "/holes.headers");
  std::filesystem::create_directory(folder_of(3) + "/holes.headers");
  UnusedState state = unused();
  look(state);
  look(state);
  EXPECT_TRUE(is_there(1) && is_there(2) && is_there(3));
  EXPECT_EQ(warned_.size(), 3u);
}

// Whether a damaged record was young nobody knows: but it was no younger than the file.
TEST_F(UnusedStateTest, ADamagedRecordIsAsYoungAsItsFile) {
  write_model(1, {500, 400});
  const std::string headers = folder_of(1) + "/group-0.headers";
  std::fstream(headers, std::ios::in | std::ios::out).seekp(60).put('\x7f');
  const auto set_times = [&](std::int64_t age) {
    const timespec time{.tv_sec = kUnusedToday / 1000 - age, .tv_nsec = 0};
    const timespec times[2] = {time, time};
    for (const auto& one : std::filesystem::directory_iterator(folder_of(1)))
      ASSERT_EQ(::utimensat(AT_FDCWD, one.path().c_str(), times, 0), 0);
  };
  set_times(50);
  look();
  EXPECT_TRUE(is_there(1));
  EXPECT_EQ(said_.size(), 1u) << "the one that is old went";
  set_times(50);
  look();
  EXPECT_TRUE(is_there(1));
  set_times(101);
  look();
  EXPECT_FALSE(is_there(1));
}

TEST_F(UnusedStateTest, FilesThatAreNotLocisStay) {
  write_model(1, {500, 400});
  std::ofstream(folder_of(1) + "/notes.txt") << "mine";
  std::ofstream(directory() + "/models/readme") << "mine";
  std::filesystem::create_directories(directory() + "/models/" + std::string(32, 'z'));
  UnusedState state = unused();
  look(state);
  look(state);
  EXPECT_TRUE(std::filesystem::exists(folder_of(1) + "/notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(directory() + "/models/readme"));
  EXPECT_TRUE(std::filesystem::exists(directory() + "/models/" + std::string(32, 'z')));
  EXPECT_EQ(warned_.size(), 1u) << "once";
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_TRUE(left(1).empty()) << "the state is gone all the same";
}

TEST_F(UnusedStateTest, NoLinkIsFollowed) {
  for (const std::uint8_t model : {1, 2, 3}) write_model(model, {500});
  // A folder elsewhere, a file elsewhere, and a link of a name that is not Loci's.
  const std::string elsewhere = folder_.file("elsewhere");
  std::filesystem::rename(folder_of(1), elsewhere);
  std::filesystem::create_directory_symlink(elsewhere, folder_of(1));
  const std::string slots = folder_.file("slots");
  std::filesystem::rename(folder_of(2) + "/group-0.slots", slots);
  std::filesystem::create_symlink(slots, folder_of(2) + "/group-0.slots");
  const std::string private_file = folder_.file("private");
  std::ofstream(private_file) << "mine";
  std::filesystem::create_symlink(private_file, folder_of(3) + "/secret.new-12");
  const auto held = held_bytes_of(elsewhere);
  UnusedState state = unused();
  look(state);
  look(state);
  EXPECT_EQ(held_bytes_of(elsewhere), held);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_of(1)));
  ASSERT_FALSE(warned_.empty());
  EXPECT_NE(warned_[0].find("expected a folder, found a link"), std::string::npos) << warned_[0];
  struct stat facts{};
  ASSERT_EQ(::stat(slots.c_str(), &facts), 0);
  EXPECT_GT(facts.st_blocks, 0);
  EXPECT_EQ(left(2).size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(private_file));
  EXPECT_TRUE(left(3).empty());
  EXPECT_EQ(said_.size(), 1u) << "of the third model's state";
}

TEST_F(UnusedStateTest, APipeHoldsNothingUp) {
  write_model(1, {500});
  std::filesystem::remove(folder_of(1) + "/name");
  ASSERT_EQ(::mkfifo((folder_of(1) + "/name").c_str(), 0600), 0);
  UnusedState state = unused();
  look(state);
  EXPECT_TRUE(is_there(1));
  std::filesystem::remove(folder_of(1) + "/name");
  EXPECT_TRUE(left(1).empty());
}

TEST_F(UnusedStateTest, AStoreInSeveralDirectoriesIsJudgedAsAWhole) {
  {
    const auto store = serve(1, kUnusedLimit, 2);
    write(*store, 0, 500);       // in the first directory
    write(*store, 1, 90, 0, 2);  // in the second one
    write(*store, 2, 500);
  }
  {
    UnusedState one_of_them = unused(1);
    look(one_of_them);
    EXPECT_EQ(left(1, 2), (std::set<std::uint32_t>{0, 1, 2}));
    ASSERT_EQ(warned_.size(), 1u);
    EXPECT_NE(warned_[0].find("a store in 2 directories, of which 1 are this server's too"),
              std::string::npos)
        << warned_[0];
  }
  UnusedState both = unused(2);
  look(both);
  EXPECT_EQ(left(1, 2), (std::set<std::uint32_t>{0, 1}));
  now_ += 50 * kNanosPerSecond;
  look(both);
  EXPECT_FALSE(is_there(1, 0) || is_there(1, 1));
}

TEST_F(UnusedStateTest, WhatIsLeftOfARemovalGoes) {
  write_model(1, {10});
  const std::string going = leftover_of(folder_of(1));
  std::filesystem::rename(folder_of(1), going);
  {
    const auto removing = make_disk_folder(going);
    ASSERT_TRUE(removing->lock({}).ok());
    look();
    EXPECT_TRUE(std::filesystem::exists(going + "/group-0.slots")) << "somebody is at it";
  }
  std::filesystem::remove(going + "/superblock");
  std::ofstream(going + "/notes.txt") << "mine";
  look();
  EXPECT_TRUE(std::filesystem::exists(going + "/notes.txt"));
  EXPECT_FALSE(std::filesystem::exists(going + "/group-0.slots"));
  EXPECT_EQ(warned_.size(), 1u);
  std::filesystem::remove(going + "/notes.txt");
  look();
  EXPECT_FALSE(std::filesystem::exists(going));
}

TEST_F(UnusedStateTest, AFolderWithoutStateGoesWhenNobodyHasServedItForLong) {
  write_model(1, {});
  look();
  EXPECT_FALSE(is_there(1)) << "today is long after the test";
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("its folder, without state"), std::string::npos) << said_[0];
}

// Until it has gone steadily for a minute after the start, and for an hour after a jump.
TEST_F(UnusedStateTest, AClockThatJumpsIsNotBelievedAtOnce) {
  write_model(1, {0}, 30 * 86'400 * kNanosPerSecond);
  UnusedState state = unused();
  const auto run = [&](Nanos time) {
    for (const Nanos end = now_ + time; now_ < end; now_ += kNanosPerSecond) state.step([] { return false; });
  };
  ahead_ = 365 * 86'400 * kNanosPerSecond;
  run(59 * kNanosPerSecond);
  EXPECT_TRUE(is_there(1)) << "it may have been set right meanwhile";
  ahead_ = 0;
  run(2 * 3600 * kNanosPerSecond);
  EXPECT_TRUE(is_there(1));
  ahead_ = 365 * 86'400 * kNanosPerSecond;
  run(3590 * kNanosPerSecond);
  EXPECT_TRUE(is_there(1));
  run(20 * kNanosPerSecond);
  EXPECT_FALSE(is_there(1)) << "it goes on so";
}

TEST_F(UnusedStateTest, LooksAsOftenAsTheShortestLimitNeeds) {
  write_model(1, {1}, 7 * 86'400 * kNanosPerSecond);
  UnusedState state = unused();
  const auto step = [&] { return state.step([] { return false; }); };
  EXPECT_EQ(step(), UnusedState::kSteadyAtStart);
  now_ = 3600 * kNanosPerSecond;
  ahead_ = -now_;
  while (step() == 0) {
  }
  EXPECT_EQ(step(), UnusedState::kLookPauseMax);
  write_model(2, {1}, 800 * kNanosPerSecond);
  now_ *= 2;
  ahead_ = -now_;
  while (step() == 0) {
  }
  EXPECT_EQ(step(), 100 * kNanosPerSecond);
}

TEST_F(UnusedStateTest, AFolderWithoutPermissionIsLeftAlone) {
  write_model(1, {500});
  write_model(2, {500});
  const bool is_root = ::geteuid() == 0;
  // Who is root may do anything; this thread of its is somebody else.
  for (const std::string& path : {std::string(folder_.path()), directory(), directory() + "/models"})
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder_of(1).c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_of(2).c_str(), 0755), 0);
  if (is_root) ::setfsuid(65'534);
  UnusedState state = unused();
  look(state);
  look(state);
  if (is_root) ::setfsuid(0);
  ASSERT_EQ(::chmod(folder_of(1).c_str(), 0700), 0);
  EXPECT_EQ(left(1).size(), 1u);
  EXPECT_GE(warned_.size(), 1u);
  EXPECT_LE(warned_.size(), 2u) << "once for each";
}

}  // namespace
}  // namespace loci
