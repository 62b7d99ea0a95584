// SPDX-License-Identifier: Apache-2.0
// The real device, on CUDA's runtime library (linked statically; it loads the driver at the first call, so a
// program starts on machines without one).
#include "loci/compute/cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/mutex.h"

namespace loci::cuda {
namespace {

// False: an error, which the device keeps.
bool check(const Device& device, cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());  // what is not sticky is told once
  device.note(Status(
      StatusCode::kUnavailable,
      fmt::format("the device cuda:{} is lost: {} failed: {} ({}); restart the server",
                  device.properties().ordinal, what, cudaGetErrorString(error), cudaGetErrorName(error))));
  return false;
}

// Errors after which the device works on: it refused one call. CUDA calls others sticky, and those that are
// not known are taken for such.
bool is_refusal(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent: return true;
    default: return false;
  }
}

// As check(), but what was refused is `failure`.
bool check_queued(const Device& device, cudaError_t error, const char* what, Status& failure) {
  if (!is_refusal(error)) return check(device, error, what);
  static_cast<void>(cudaGetLastError());
  if (failure.ok()) {
    failure =
        Status(StatusCode::kInternal, fmt::format("cuda:{} refused {}: {} ({})", device.properties().ordinal,
                                                  what, cudaGetErrorString(error), cudaGetErrorName(error)));
  }
  return false;
}

// Whether anything may be asked of the device; makes it this thread's. Waiting needs that too: a thread that
// has chosen no device has the first one, on which its first call would make a context.
bool ready(const Device& device) {
  if (device.lost()) return false;
  return check(device, cudaSetDevice(static_cast<int>(device.properties().ordinal)), "choosing the device");
}

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

// Kernels that were given all the shared memory that a block may have.
struct KnownKernels {
  Mutex mutex;
  std::map<std::pair<std::uint32_t, const void*>, std::uint32_t> shared_bytes GUARDED_BY(mutex);
};
KnownKernels& known_kernels() {
  static KnownKernels instance;
  return instance;
}

}  // namespace

std::uint32_t Device::count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return static_cast<std::uint32_t>(count);
}

Result<DeviceProperties> Device::find(std::uint32_t ordinal) {
  const auto refuse = [](std::string message) {
    return Status(StatusCode::kUnavailable, std::move(message));
  };
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    int version = 0;  // 0: there is none
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
      return refuse("NVIDIA's driver is not there");
    return refuse(
        fmt::format("NVIDIA's driver, of CUDA {}.{}, refuses: {} (expected one of CUDA 13 or newer)",
                    version / 1000, version % 1000 / 10, cudaGetErrorString(error)));
  }
  if (ordinal >= static_cast<std::uint32_t>(count)) {
    return refuse(fmt::format("there is no device cuda:{}: this machine has {}", ordinal, count));
  }
  cudaDeviceProp found{};
  if (const cudaError_t error = cudaGetDeviceProperties(&found, static_cast<int>(ordinal));
      error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return refuse(fmt::format("cuda:{} does not answer: {}", ordinal, cudaGetErrorString(error)));
  }
  DeviceProperties properties{.ordinal = ordinal,
                              .name = found.name,
                              .capability = static_cast<std::uint32_t>(found.major * 10 + found.minor),
                              .multiprocessors = static_cast<std::uint32_t>(found.multiProcessorCount),
                              .memory_bytes = found.totalGlobalMem,
                              .l2_bytes = static_cast<std::uint64_t>(found.l2CacheSize),
                              .shared_bytes_max = static_cast<std::uint32_t>(found.sharedMemPerBlockOptin)};
  LOCI_RETURN_IF_ERROR(check_capability(properties, LOCI_CUDA_ARCHITECTURES));
  return properties;
}

Result<std::unique_ptr<Device>> Device::open(std::uint32_t ordinal) {
  LOCI_ASSIGN_OR_RETURN(DeviceProperties properties, find(ordinal));
  std::unique_ptr<Device> device(new Device(std::move(properties)));
  if (!ready(*device)) return device->status();
  // Waiting threads sleep: the processor has other work.
  static_cast<void>(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  if (!check(*device, cudaFree(nullptr), "making its context")) return device->status();
  return device;
}

Device::~Device() { delete error_.load(); }

std::uint64_t Device::free_bytes() const {
  std::size_t free = 0, total = 0;
  if (!ready(*this) || !check(*this, cudaMemGetInfo(&free, &total), "asking for free memory")) return 0;
  return free;
}

void Device::synchronize() const {
  if (ready(*this)) check(*this, cudaDeviceSynchronize(), "a kernel or copy");
}

namespace {

// From here on pinned memory is mapped and touched here: the driver alone takes half a second a GiB, on one
// thread.
constexpr std::uint64_t kTouchedBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kPageBytes = 4096;

// Every page of it is there afterwards.
void touch(std::byte* data, std::uint64_t bytes) {
  const std::uint64_t threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  const std::uint64_t each = (bytes / threads / kPageBytes + 1) * kPageBytes;
  std::vector<std::jthread> workers;
  for (std::uint64_t begin = 0; begin < bytes; begin += each) {
    workers.emplace_back([data, begin, end = std::min(bytes, begin + each)] {
      for (std::uint64_t at = begin; at < end; at += kPageBytes) {
        *static_cast<volatile std::byte*>(data + at) = std::byte{0};
      }
    });
  }
}

cudaError_t pin(std::uint64_t bytes, HostMemory& mapped, void*& data) {
  if (Result<HostMemory> memory = HostMemory::map(bytes >= kTouchedBytes ? bytes : 0);
      memory.ok() && memory->size() > 0) {
    touch(memory->data(), bytes);
    if (cudaHostRegister(memory->data(), bytes, cudaHostRegisterPortable) == cudaSuccess) {
      mapped = std::move(memory).value();
      data = mapped.data();
      return cudaSuccess;
    }
    static_cast<void>(cudaGetLastError());  // the driver may have memory of its own
  }
  return cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
}

}  // namespace

Result<Memory> Memory::allocate(const Device& device, MemoryKind kind, std::uint64_t bytes,
                                const char* what) {
  Memory memory;
  if (bytes == 0) return memory;
  if (!ready(device)) return device.status();
  void* data = nullptr;
  const cudaError_t error =
      kind == MemoryKind::kDevice ? cudaMalloc(&data, bytes) : pin(bytes, memory.mapped_, data);
  if (is_refusal(error)) {
    static_cast<void>(cudaGetLastError());
    std::string message =
        kind == MemoryKind::kDevice
            ? fmt::format("{} bytes of device memory are not there: {} are free", bytes, device.free_bytes())
            : fmt::format("{} bytes of host memory could not be pinned", bytes);
    if (error != cudaErrorMemoryAllocation) message += fmt::format(" ({})", cudaGetErrorName(error));
    return resource_exhausted(std::move(message), what);
  }
  if (!check(device, error, "allocating")) return device.status();
  memory.device_ = &device;
  memory.kind_ = kind;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr || !ready(*device_)) return;  // a lost device's memory ends with the process
  check(*device_,
        kind_ == MemoryKind::kDevice ? cudaFree(data_)
        : mapped_.size() > 0         ? cudaHostUnregister(data_)
                                     : cudaFreeHost(data_),
        "freeing memory");
}

Event::Event(const Device& device, Timing timing) : device_(&device), timing_(timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags =
      cudaEventBlockingSync | (timing == Timing::kTimed ? 0u : static_cast<unsigned>(cudaEventDisableTiming));
  if (ready(device) && check(device, cudaEventCreateWithFlags(&event, flags), "making an event"))
    handle_ = event;
}

Event::~Event() {
  if (handle_ != nullptr && ready(*device_)) static_cast<void>(cudaEventDestroy(event_of(handle_)));
}

bool Event::done() const {
  if (handle_ == nullptr || !ready(*device_)) return true;
  const cudaError_t error = cudaEventQuery(event_of(handle_));
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(*device_, error, "a kernel or copy");
  return true;
}

void Event::synchronize() const {
  if (handle_ != nullptr && ready(*device_))
    check(*device_, cudaEventSynchronize(event_of(handle_)), "a kernel or copy");
}

double Event::milliseconds_since(const Event& earlier) const {
  LOCI_CHECK(timing_ == Timing::kTimed && earlier.timing_ == Timing::kTimed, "only timed events tell time");
  float milliseconds = 0;
  if (handle_ != nullptr && earlier.handle_ != nullptr && ready(*device_)) {
    check(*device_, cudaEventElapsedTime(&milliseconds, event_of(earlier.handle_), event_of(handle_)),
          "timing");
  }
  return milliseconds;
}

Graph::~Graph() {
  if (handle_ != nullptr) static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_)));
}

Stream::Stream(const Device& device, Priority priority) : device_(&device) {
  if (!ready(device)) return;
  int least = 0, greatest = 0;
  static_cast<void>(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  const int level = priority == Priority::kHigh ? greatest : least;
  if (check(device, cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, level), "making a stream"))
    handle_ = stream;
}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  if (!device_->lost()) synchronize();
  static_cast<void>(cudaStreamDestroy(stream_of(handle_)));
}

void Stream::copy(void* to, const void* from, std::uint64_t bytes) {
  kernel_was_last_ = false;
  if (bytes == 0 || !ready(*device_)) return;
  check(*device_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(handle_)), "queueing a copy");
}

void Stream::copy_pieces(std::span<const CopyPiece> pieces) {
  kernel_was_last_ = false;
  if (pieces.empty() || !ready(*device_)) return;
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> sizes;
  for (const CopyPiece& piece : pieces) {
    if (piece.bytes == 0) continue;
    to.push_back(piece.to);
    from.push_back(piece.from);
    sizes.push_back(piece.bytes);
  }
  if (sizes.empty()) return;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  check(*device_,
        cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &attributes, &first, 1,
                             stream_of(handle_)),
        "queueing copies");
}

void Stream::copy_rows(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                       std::uint64_t row_bytes, std::uint64_t rows) {
  kernel_was_last_ = false;
  if (row_bytes == 0 || rows == 0 || !ready(*device_)) return;
  check(*device_,
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault,
                          stream_of(handle_)),
        "queueing a copy of rows");
}

void Stream::fill(void* to, std::uint8_t value, std::uint64_t bytes) {
  kernel_was_last_ = false;
  if (bytes == 0 || !ready(*device_)) return;
  check(*device_, cudaMemsetAsync(to, value, bytes, stream_of(handle_)), "queueing a fill");
}

void Stream::record(Event& event) {
  kernel_was_last_ = false;
  if (ready(*device_))
    check(*device_, cudaEventRecord(event_of(event.handle_), stream_of(handle_)), "an event");
}

void Stream::wait(const Event& event) {
  kernel_was_last_ = false;
  if (ready(*device_))
    check(*device_, cudaStreamWaitEvent(stream_of(handle_), event_of(event.handle_), 0),
          "waiting for an event");
}

void Stream::synchronize() {
  if (ready(*device_)) check(*device_, cudaStreamSynchronize(stream_of(handle_)), "a kernel or copy");
}

bool Stream::begin_capture() {
  kernel_was_last_ = false;
  return ready(*device_) &&
         check_queued(*device_, cudaStreamBeginCapture(stream_of(handle_), cudaStreamCaptureModeThreadLocal),
                      "the begin of a capture", failure_);
}

Graph Stream::end_capture() {
  kernel_was_last_ = false;
  Graph result;
  cudaGraph_t graph = nullptr;
  if (!ready(*device_) ||
      !check_queued(*device_, cudaStreamEndCapture(stream_of(handle_), &graph), "a capture", failure_))
    return result;
  cudaGraphExec_t exec = nullptr;
  if (check_queued(*device_, cudaGraphInstantiate(&exec, graph, 0), "a graph", failure_))
    result.handle_ = exec;
  static_cast<void>(cudaGraphDestroy(graph));
  return result;
}

void Stream::launch(const Graph& graph) {
  kernel_was_last_ = false;
  if (!ready(*device_)) return;
  LOCI_CHECK(graph.present(), "a graph that was captured");
  check_queued(*device_, cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle_), stream_of(handle_)),
               "the launch of a graph", failure_);
}

void Stream::launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                           std::size_t) {
  check_launch_shape(name, shape, device_->properties().shared_bytes_max);
  if (!ready(*device_)) return;
  if (shape.shared_bytes > (48u << 10)) {
    KnownKernels& known = known_kernels();
    const MutexLock lock(known.mutex);
    std::uint32_t& allowed = known.shared_bytes[{device_->properties().ordinal, kernel}];
    if (allowed < shape.shared_bytes) {
      const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(shape.shared_bytes));
      if (!check_queued(*device_, error, name, failure_)) return;
      allowed = shape.shared_bytes;
    }
  }
  void* arguments[] = {const_cast<void*>(params)};
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid.x, shape.grid.y, shape.grid.z);
  config.blockDim = dim3(shape.block.x, shape.block.y, shape.block.z);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream_of(handle_);
  config.attrs = &early;
  // Behind a copy, an event or a library's kernel it begins as ever.
  config.numAttrs = std::exchange(kernel_was_last_, true) && device_->properties().capability >= 90 ? 1 : 0;
  check_queued(*device_, cudaLaunchKernelExC(&config, kernel, arguments), name, failure_);
}

void Stream::call(void (*)(void*), std::shared_ptr<void>) {
  LOCI_CHECK(false, "calls of the host are for the simulated device");
}

}  // namespace loci::cuda
