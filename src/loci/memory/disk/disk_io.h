// SPDX-License-Identifier: Apache-2.0
// How reads and writes are given to the machine: io_uring, or a pool of threads that call the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/disk/disk_file.h"

namespace loci {

struct IoRequest {
  std::uint64_t id = 0;
  std::uint32_t lane = 0;  // the directory: one that does not answer must not hold up another
  bool write = false;
  bool discard = false;  // of a write: the range gets zeros, and gives its space back; without `data`
  std::shared_ptr<DiskFile> file;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> memory;  // keeps `data` until the request has ended
};

struct IoEnd {
  std::uint64_t id = 0;
  std::int64_t result = 0;  // as DiskFile::read() and write()
};

// Used by one thread, but for wake().
class IoEngine {
 public:
  // Does not wait for requests that have not ended: a dead disk never does. Their memory lives on.
  virtual ~IoEngine() = default;
  virtual const char* name() const = 0;
  // The caller keeps to the depth that the engine was made for.
  virtual void submit(std::vector<IoRequest> requests) = 0;
  // Appends what has ended. Waits until something has, wake() was called, or `most` has passed.
  virtual void wait(Nanos most, std::vector<IoEnd>& ended) = 0;
  virtual void wake() = 0;  // thread-safe
};

// Errors: kUnavailable where the system refuses io_uring.
Result<std::unique_ptr<IoEngine>> make_uring_engine(std::uint32_t depth);
// Throws std::system_error if the system has no more threads.
std::unique_ptr<IoEngine> make_thread_engine(std::uint32_t lanes);

}  // namespace loci
