// SPDX-License-Identifier: Apache-2.0
// What Loci uses of CUDA's runtime, as values that free themselves: a device, its memory, pinned host memory,
// streams, events, graphs. Two implementations, chosen at link time: runtime.cc (the real one), and
// simulated/runtime.cc (a device that runs the same kernels on this processor, for tests).
//
// Errors. What allocates returns a Result (kResourceExhausted naming the bytes). Everything that is queued
// returns nothing. A kernel, a capture or a graph that the device refuses is told by its stream
// (Stream::take_failure()), and the device is well. Any other error is for good: the first one is kept
// (Device::status(), kUnavailable: "the device is lost"), and all that is asked of it afterwards does
// nothing.
//
// Thread-safety: a Device and its memory may be used by any thread; a Stream by one at a time. Operations of
// a stream run in order; between streams events alone order them. Host memory of a copy must be pinned for
// the copy to be asynchronous, and stay until it is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/host_memory.h"
#include "loci/base/status.h"

namespace loci::cuda {

struct DeviceProperties {
  std::uint32_t ordinal = 0;
  std::string name;              // "NVIDIA H200"
  std::uint32_t capability = 0;  // 80, 89, 90: compute capability times ten
  std::uint32_t multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::uint32_t shared_bytes_max = 0;  // that a thread block may have
  bool simulated = false;              // runs on this processor: tests choose small shapes
};

// Whether machine code for `architectures` ("80,89,90a") runs on a device: that of 80
// on 8.0 and later 8.x, that of 90a on 9.0 alone.
bool has_code_for(std::string_view architectures, std::uint32_t capability);
// Errors: kUnavailable, naming the device, where it does not.
Status check_capability(const DeviceProperties& properties, std::string_view architectures);

class Stream;

class Device {
 public:
  // How many there are; 0 without a driver.
  static std::uint32_t count();
  // Errors: kUnavailable (no driver, no such device, too old a device), saying which.
  static Result<std::unique_ptr<Device>> open(std::uint32_t ordinal);
  ~Device();

  const DeviceProperties& properties() const { return properties_; }
  std::uint64_t free_bytes() const;

  // The first error that any operation met; for good. No lock: operations note errors under those of their
  // callers.
  Status status() const { return lost() ? *error_.load(std::memory_order_acquire) : Status(); }
  void note(Status error) const {
    auto first = std::make_unique<const Status>(std::move(error));
    const Status* none = nullptr;
    if (error_.compare_exchange_strong(none, first.get(), std::memory_order_acq_rel)) (void)first.release();
  }
  bool lost() const { return error_.load(std::memory_order_acquire) != nullptr; }

  // Waits for all streams.
  void synchronize() const;

 private:
  explicit Device(DeviceProperties properties) : properties_(std::move(properties)) {}
  const DeviceProperties properties_;
  mutable std::atomic<const Status*> error_{nullptr};  // its own; null: none
};

// Memory of the device, or pinned memory of the host that the device copies from and to by itself. Not
// initialised.
enum class MemoryKind : std::uint8_t { kDevice, kPinned };

class Memory {
 public:
  Memory() = default;
  // `what` names it in the error ("device_memory").
  static Result<Memory> allocate(const Device& device, MemoryKind kind, std::uint64_t bytes,
                                 const char* what);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory();

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::uint64_t size() const { return bytes_; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
  }
  const Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::kDevice;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  HostMemory mapped_;  // the system's, where the driver only pinned it
};

// A point of a stream.
class Event {
 public:
  enum class Timing : std::uint8_t { kNone, kTimed };
  explicit Event(const Device& device, Timing timing = Timing::kNone);
  Event(Event&& other) noexcept
      : device_(other.device_), timing_(other.timing_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();

  // True when what was before it in its stream is done, also where it was never recorded.
  bool done() const;
  void synchronize() const;
  // Between two timed events that are done; simulated: of the processor.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  const Device* device_;
  Timing timing_;
  void* handle_ = nullptr;
};

// Operations that were captured from a stream, to be launched as one.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Graph();
  bool present() const { return handle_ != nullptr; }

 private:
  friend class Stream;
  void* handle_ = nullptr;
};

struct Extent {
  std::uint32_t x = 1, y = 1, z = 1;
};
struct LaunchShape {
  Extent grid;
  Extent block;
  std::uint32_t shared_bytes = 0;  // dynamic
};
// Aborts, naming the kernel, where no GPU takes such a launch: a grid of more than 2^31 - 1 by 65,535 by
// 65,535 blocks, a block of more than 1,024 threads, more shared memory than a block may have. Both devices
// ask.
void check_launch_shape(const char* name, const LaunchShape& shape, std::uint32_t shared_bytes_max);

// One piece of Stream::copy_pieces().
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint64_t bytes = 0;
};

class Stream {
 public:
  // kHigh runs before kNormal where both wait for the device.
  enum class Priority : std::uint8_t { kNormal, kHigh };
  explicit Stream(const Device& device, Priority priority = Priority::kNormal);
  Stream(Stream&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  const Device& device() const { return *device_; }

  // Between device and pinned memory in any direction.
  void copy(void* to, const void* from, std::uint64_t bytes);
  // Many pieces in one call, in any order; outside a capture.
  void copy_pieces(std::span<const CopyPiece> pieces);
  // `rows` rows of `row_bytes`, whose begins lie `to_pitch` and `from_pitch` bytes apart.
  void copy_rows(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                 std::uint64_t row_bytes, std::uint64_t rows);
  void fill(void* to, std::uint8_t value, std::uint64_t bytes);

  void record(Event& event);
  // What follows in this stream waits for the event's last record.
  void wait(const Event& event);
  void synchronize();

  // What is queued from here on is captured, not run; also what other streams do that wait for an event
  // recorded here, until they are waited for here.
  // False: the device refused; nothing is captured, and what follows runs.
  [[nodiscard]] bool begin_capture();
  // Nothing where the capture failed (take_failure() or Device::status() says why).
  Graph end_capture();
  void launch(const Graph& graph);

  // The first of the kernels, captures and graphs since the last call that the device refused: kInternal,
  // naming it. They did nothing; what was queued beside them runs.
  Status take_failure() { return std::exchange(failure_, Status()); }
  // Likewise of a library's kernels, which it queues by itself.
  void note_failure(Status failure) {
    if (failure_.ok()) std::swap(failure_, failure);
  }

  // The stream's handle for libraries (cudaStream_t), which queue kernels of theirs. Simulated: nothing may
  // use it.
  void* native() {
    kernel_was_last_ = false;
    return handle_;
  }

  // Through launch() of launch.h. `params` is copied.
  void launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                     std::size_t params_bytes);
  // Simulated only: queues a call of the host (a stand-in for a library's kernels).
  void call(void (*function)(void*), std::shared_ptr<void> argument);

 private:
  const Device* device_;
  void* handle_ = nullptr;
  Status failure_;
  bool kernel_was_last_ = false;  // of what was queued: the next one may begin early
};

}  // namespace loci::cuda
