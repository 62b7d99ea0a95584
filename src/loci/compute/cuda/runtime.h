// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime that Loci uses, as values that free themselves: a device, its memory, pinned
// host memory, streams, events, graphs. There are two implementations, chosen at link time: runtime.cc (the
// real one), and simulated/runtime.cc (a device that runs the same kernels on this processor, for tests).
//
// Errors. Functions that allocate return a Result (kResourceExhausted naming the bytes). Functions that queue
// work return nothing. If the device refuses a kernel, a capture or a graph, its stream reports it
// (Stream::take_failure()), and the device goes on. Any other error is final: the first one is kept
// (Device::status(), kUnavailable: "the device is lost"), and all later operations do nothing.
//
// Thread-safety: a Device and its memory may be used by any thread; a Stream by one at a time. Operations of
// a stream run in order; between streams only events order them. Host memory of a copy must be pinned for the
// copy to be asynchronous, and stay until it is done.
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
  std::uint32_t shared_bytes_max = 0;  // the most that a thread block may have
  bool simulated = false;              // runs on this processor: tests choose small shapes
};

// Whether kernels that use warpgroups (simt_warpgroup.h) run on a device.
inline bool has_warpgroups(const DeviceProperties& device) { return device.capability == 90; }

// Whether machine code for `architectures` ("80,89,90a") runs on a device. Code for 80 runs on 8.0 and later
// 8.x, code for 90a only on 9.0.
bool has_code_for(std::string_view architectures, std::uint32_t capability);
// Errors: kUnavailable naming the device, if the code does not run on it.
Status check_capability(const DeviceProperties& properties, std::string_view architectures);

class Stream;

class Device {
 public:
  // The number of devices; 0 without a driver.
  static std::uint32_t count();
  // Says what a device is, and takes nothing of it. Errors: kUnavailable (no driver, no such device, no code
  // for it), saying which.
  static Result<DeviceProperties> find(std::uint32_t ordinal);
  // Makes a context on the device, which takes some hundred megabytes of its memory until the process ends.
  // Errors: as find().
  static Result<std::unique_ptr<Device>> open(std::uint32_t ordinal);
  ~Device();

  const DeviceProperties& properties() const { return properties_; }
  std::uint64_t free_bytes() const;

  // The first error of any operation; it stays. Takes no lock, because operations report errors under their
  // callers' locks.
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
  mutable std::atomic<const Status*> error_{nullptr};  // owned; null: no error
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
  HostMemory mapped_;  // the system's memory, if the driver only pinned it
};

// A point in the order of a stream's operations.
class Event {
 public:
  enum class Timing : std::uint8_t { kNone, kTimed };
  explicit Event(const Device& device, Timing timing = Timing::kNone);
  Event(Event&& other) noexcept
      : device_(other.device_), timing_(other.timing_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();

  // True if all operations before it in its stream are done, or if it was never recorded.
  bool done() const;
  void synchronize() const;
  // Time between two timed events that are done. On the simulated device it is the processor's time.
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
// Aborts, naming the kernel, if no GPU accepts such a launch: a grid of more than 2^31 - 1 by 65,535 by
// 65,535 blocks, a block of more than 1,024 threads, more shared memory than a block may have. Both
// implementations call it.
void check_launch_shape(const char* name, const LaunchShape& shape, std::uint32_t shared_bytes_max);

// One piece of Stream::copy_pieces().
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  std::uint64_t bytes = 0;
};

class Stream {
 public:
  // If both wait for the device, kHigh runs before kNormal.
  enum class Priority : std::uint8_t { kNormal, kHigh };
  explicit Stream(const Device& device, Priority priority = Priority::kNormal);
  Stream(Stream&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  const Device& device() const { return *device_; }

  // Copies between device and pinned memory in any direction.
  void copy(void* to, const void* from, std::uint64_t bytes);
  // Copies many pieces in one call, in any order. Not inside a capture.
  void copy_pieces(std::span<const CopyPiece> pieces);
  // Copies `rows` rows of `row_bytes` bytes, whose beginnings lie `to_pitch` and `from_pitch` bytes apart.
  void copy_rows(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                 std::uint64_t row_bytes, std::uint64_t rows);
  void fill(void* to, std::uint8_t value, std::uint64_t bytes);

  void record(Event& event);
  // Later operations of this stream wait for the event's last record.
  void wait(const Event& event);
  void synchronize();

  // Later operations are captured and not run. This includes operations of other streams after they wait for
  // an event recorded here, until this stream waits for them. False: the device refused; nothing is captured,
  // and later operations run.
  [[nodiscard]] bool begin_capture();
  // An empty graph if the capture failed (take_failure() or Device::status() says why).
  Graph end_capture();
  void launch(const Graph& graph);

  // The first kernel, capture or graph since the last call that the device refused: kInternal, naming it.
  // Refused operations did nothing; all others run.
  Status take_failure() { return std::exchange(failure_, Status()); }
  // Notes a failure of a kernel that a library queued itself.
  void note_failure(Status failure) {
    if (failure_.ok()) std::swap(failure_, failure);
  }

  // The stream's handle (cudaStream_t) for libraries that queue their own kernels. On the simulated device
  // nothing may use it.
  void* native() {
    kernel_was_last_ = false;
    return handle_;
  }

  // Call it through launch() of launch.h. `params` is copied.
  void launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                     std::size_t params_bytes);
  // Simulated only: queues a call of the host (a stand-in for a library's kernels).
  void call(void (*function)(void*), std::shared_ptr<void> argument);

 private:
  const Device* device_;
  void* handle_ = nullptr;
  Status failure_;
  bool kernel_was_last_ = false;  // the operation queued last was a kernel, so the next one may begin early
};

}  // namespace loci::cuda
