// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace loci {
namespace {

constexpr std::chrono::milliseconds kLookAgain{500};
constexpr int kLooksToTryAgain = 2, kLooksToTryAgainMax = 128;

}  // namespace

FileWatch::~FileWatch() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FileWatch::look(std::vector<std::string> paths) {
  paths_ = std::move(paths);
  seen_ = stamps();
}

void FileWatch::start(std::function<bool()> changed) {
  changed_ = std::move(changed);
  thread_ = std::thread([this] { run(); });
}

FileWatch::Stamp FileWatch::stamp_of(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return {.seconds = facts.st_mtim.tv_sec,
          .nanos = facts.st_mtim.tv_nsec,
          .status_seconds = facts.st_ctim.tv_sec,
          .status_nanos = facts.st_ctim.tv_nsec,
          .inode = facts.st_ino,
          .size = static_cast<std::uint64_t>(facts.st_size),
          .there = true};
}

std::vector<FileWatch::Stamp> FileWatch::stamps() const {
  std::vector<Stamp> out;
  for (const std::string& path : paths_) out.push_back(stamp_of(path));
  return out;
}

void FileWatch::run() {
  int wait = 0, left = 0;  // looks until it is tried again, where it failed
  MutexLock lock(mutex_);
  while (!stop_changed_.wait_for(lock, kLookAgain, [this]() REQUIRES(mutex_) { return stopping_; })) {
    lock.unlock();
    std::vector<Stamp> now = stamps();
    const bool differs = now != seen_;
    if (differs) wait = 0;
    if (differs || (wait > 0 && --left == 0)) {
      seen_ = std::move(now);
      wait = changed_() ? 0 : std::clamp(2 * wait, kLooksToTryAgain, kLooksToTryAgainMax);
      left = wait;
    }
    lock.lock();
  }
}

}  // namespace loci
