// SPDX-License-Identifier: Apache-2.0
// Notices that files changed: were written, replaced, taken away or put back. A thread of its own looks twice
// a second, so that a file system that is slow to answer holds up nobody.
//
//   FileWatch watch;
//   watch.look(paths);       // what the files are before they are read: a change from now on is noticed
//   ... read them ...
//   watch.start(read_again);
//
// What could not be read (half of a pair is new, the machine had no descriptor left) is tried again after a
// second, then ever more rarely, up to once a minute, until it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/mutex.h"

namespace loci {

// look(), start() and the destructor: the owner's thread.
class FileWatch {
 public:
  FileWatch() = default;  // watches nothing
  ~FileWatch();           // waits for a call that is under way
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  void look(std::vector<std::string> paths);
  // Once, after look(). `changed` is called on the watch's thread within a second of a change. False: it
  // could not take up what is there now, and is called again.
  void start(std::function<bool()> changed);

 private:
  // Which file it is: a change shows in one of them.
  struct Stamp {
    std::int64_t seconds = 0, nanos = 0;                // of its content
    std::int64_t status_seconds = 0, status_nanos = 0;  // of its rights too
    std::uint64_t inode = 0, size = 0;
    bool there = false;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  static Stamp stamp_of(const std::string& path);
  std::vector<Stamp> stamps() const;
  void run();

  std::vector<std::string> paths_;
  std::vector<Stamp> seen_;  // the thread's, after start()
  std::function<bool()> changed_;
  Mutex mutex_;
  Condition stop_changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace loci
