// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime on the simulated device (world.h): memory, events, streams and graphs.
//
// Memory lies against a page that nobody may touch, and the address sanitizer knows where exactly it begins
// and ends; copies must lie inside one piece of device or pinned memory.
#include "loci/compute/cuda/runtime.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/compute/cuda/simulated/grid.h"
#include "loci/compute/cuda/simulated/sanitizers.h"
#include "loci/compute/cuda/simulated/world.h"

namespace loci::cuda {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kAllocationAlignment = 256;

}  // namespace

using simulated::world;
using simulated::World;

std::uint32_t Device::count() {
  World& w = world();
  const MutexLock lock(w.mutex);
  return w.options.devices;
}

Result<DeviceProperties> Device::find(std::uint32_t ordinal) {
  World& w = world();
  const MutexLock lock(w.mutex);
  if (ordinal >= w.options.devices) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("there is no device cuda:{}: {} are simulated", ordinal, w.options.devices));
  }
  DeviceProperties properties{.ordinal = ordinal,
                              .name = "simulated device",
                              .capability = w.options.capability,
                              .multiprocessors = w.options.multiprocessors,
                              .memory_bytes = w.options.memory_bytes,
                              .l2_bytes = std::uint64_t{1} << 20,
                              .shared_bytes_max = 227u << 10,
                              .simulated = true};
  LOCI_RETURN_IF_ERROR(check_capability(properties, "80,89,90a"));
  return properties;
}

Result<std::unique_ptr<Device>> Device::open(std::uint32_t ordinal) {
  LOCI_ASSIGN_OR_RETURN(DeviceProperties properties, find(ordinal));
  World& w = world();
  const MutexLock lock(w.mutex);
  ++w.counters.opened;
  return std::unique_ptr<Device>(new Device(std::move(properties)));
}

Device::~Device() { delete error_.load(); }

std::uint64_t Device::free_bytes() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  return w.options.memory_bytes - std::min(w.options.memory_bytes, w.used[0]);
}

void Device::synchronize() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  w.run_all();
}

Result<Memory> Memory::allocate(const Device& device, MemoryKind kind, std::uint64_t bytes,
                                const char* what) {
  World& w = world();
  const MutexLock lock(w.mutex);
  const int index = kind == MemoryKind::kDevice ? 0 : 1;
  const std::uint64_t limit = index == 0 ? w.options.memory_bytes : w.options.pinned_bytes;
  Memory memory;
  if (bytes == 0) return memory;
  if (device.lost()) return device.status();
  if (w.used[index] + bytes > limit) {
    return resource_exhausted(fmt::format("{} bytes of {} memory are not there: {} are free", bytes,
                                          index == 0 ? "device" : "pinned host", limit - w.used[index]),
                              what);
  }
  const std::uint64_t rounded =
      (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
  const std::uint64_t mapped = (rounded + kPage - 1) / kPage * kPage;
  void* pages = mmap(nullptr, mapped + kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    return resource_exhausted(fmt::format("{} bytes could not be mapped", bytes), what);
  mprotect(static_cast<std::byte*>(pages) + mapped, kPage, PROT_NONE);
  memory.device_ = &device;
  memory.kind_ = kind;
  memory.data_ = static_cast<std::byte*>(pages) + mapped - rounded;
  memory.bytes_ = bytes;
  // Nobody may rely on what it holds; large pieces stay untouched.
  if (bytes <= std::uint64_t{16} << 20) std::memset(memory.data_, 0xff, rounded);
  simulated::forbid(pages, mapped - rounded);
  simulated::forbid(memory.data_ + bytes, rounded - bytes);
  w.pieces[memory.data_] = {bytes, mapped, kind};
  ++w.counters.allocations;
  w.used[index] += bytes;
  return memory;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  // As cudaFree: what is queued is done first.
  w.run_all();
  const auto found = w.pieces.find(data_);
  w.used[kind_ == MemoryKind::kDevice ? 0 : 1] -= bytes_;
  const std::uint64_t rounded =
      (bytes_ + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
  std::byte* pages = data_ + rounded - found->second.mapped;
  simulated::allow(pages, found->second.mapped);
  munmap(pages, found->second.mapped + kPage);
  w.pieces.erase(found);
}

Event::Event(const Device& device, Timing timing) : device_(&device), timing_(timing) {
  handle_ = new std::shared_ptr<simulated::EventState>(std::make_shared<simulated::EventState>());
}

Event::~Event() {
  if (handle_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  w.captured_events.erase(simulated::event_state(handle_).get());
  delete static_cast<std::shared_ptr<simulated::EventState>*>(handle_);
}

bool Event::done() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  const simulated::EventState& state = *simulated::event_state(handle_);
  if (state.done < state.recorded) w.step();
  return state.done >= state.recorded;
}

void Event::synchronize() const {
  World& w = world();
  const MutexLock lock(w.mutex);
  const simulated::EventState& state = *simulated::event_state(handle_);
  const std::uint64_t version = state.recorded;
  w.run_until([&] { return state.done >= version; });
}

double Event::milliseconds_since(const Event& earlier) const {
  LOCI_CHECK(timing_ == Timing::kTimed && earlier.timing_ == Timing::kTimed, "only timed events tell time");
  World& w = world();
  const MutexLock lock(w.mutex);
  return std::chrono::duration<double, std::milli>(simulated::event_state(handle_)->at -
                                                   simulated::event_state(earlier.handle_)->at)
      .count();
}

Graph::~Graph() { delete static_cast<std::shared_ptr<simulated::GraphState>*>(handle_); }

Stream::Stream(const Device& device, Priority) : device_(&device) {
  auto state = std::make_unique<simulated::StreamState>();
  World& w = world();
  const MutexLock lock(w.mutex);
  w.streams.push_back(state.get());
  handle_ = state.release();
}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState* state = &simulated::stream_state(handle_);
  w.run_until([&] { return state->queue.empty(); });
  std::erase(w.streams, state);
  delete state;
}

void Stream::copy(void* to, const void* from, std::uint64_t bytes) {
  copy_rows(to, bytes, from, bytes, bytes, 1);
}

void Stream::copy_pieces(std::span<const CopyPiece> pieces) {
  LOCI_CHECK(simulated::stream_state(handle_).capture == nullptr, "pieces are not captured");
  for (const CopyPiece& piece : pieces) copy(piece.to, piece.from, piece.bytes);
}

void Stream::copy_rows(void* to, std::uint64_t to_pitch, const void* from, std::uint64_t from_pitch,
                       std::uint64_t row_bytes, std::uint64_t rows) {
  if (row_bytes == 0 || rows == 0) return;
  LOCI_CHECK(to_pitch >= row_bytes && from_pitch >= row_bytes, "rows do not overlap");
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    w.check_inside(to, to_pitch * (rows - 1) + row_bytes);
    w.check_inside(from, from_pitch * (rows - 1) + row_bytes);
  }
  simulated::queue(*device_, simulated::stream_state(handle_), [=] {
    for (std::uint64_t i = 0; i < rows; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * to_pitch,
                  static_cast<const std::byte*>(from) + i * from_pitch, row_bytes);
    }
    World& here = world();
    here.mutex.assert_held();
    here.counters.copied_bytes += row_bytes * rows;
  });
}

void Stream::fill(void* to, std::uint8_t value, std::uint64_t bytes) {
  if (bytes == 0) return;
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    w.check_inside(to, bytes);
  }
  simulated::queue(*device_, simulated::stream_state(handle_), [=] { std::memset(to, value, bytes); });
}

void Stream::record(Event& event) {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  const std::shared_ptr<simulated::EventState>& state = simulated::event_state(event.handle_);
  if (stream.capture != nullptr) {
    w.captured_events[state.get()] = stream.capture;
    return;
  }
  w.captured_events.erase(state.get());
  stream.queue.push_back(
      {.kind = simulated::Operation::Kind::kRecord, .event = state, .version = ++state->recorded});
}

void Stream::wait(const Event& event) {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  const std::shared_ptr<simulated::EventState>& state = simulated::event_state(event.handle_);
  if (const auto captured = w.captured_events.find(state.get()); captured != w.captured_events.end()) {
    // The capture goes on in this stream; its order is that of the calls.
    LOCI_CHECK(stream.capture == nullptr || stream.capture == captured->second, "one capture at a time");
    stream.capture = captured->second;
    return;
  }
  LOCI_CHECK(stream.capture == nullptr, "a capture waits for no event outside of it");
  if (state->done >= state->recorded) return;
  stream.queue.push_back(
      {.kind = simulated::Operation::Kind::kWait, .event = state, .version = state->recorded});
}

void Stream::synchronize() {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "a captured stream is not waited for");
  w.run_until([&] { return stream.queue.empty(); });
}

bool Stream::begin_capture() {
  World& w = world();
  const MutexLock lock(w.mutex);
  if (device_->lost()) return false;
  if (w.options.capture_begins_fail) {
    note_failure(Status(StatusCode::kInternal, "cuda:0 refused the begin of a capture: a simulated fault"));
    return false;
  }
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "one capture at a time");
  stream.capture = std::make_shared<simulated::GraphState>();
  stream.captures_itself = true;
  return true;
}

Graph Stream::end_capture() {
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture != nullptr && stream.captures_itself, "a capture ends where it began");
  const std::shared_ptr<simulated::GraphState> state = stream.capture;
  for (simulated::StreamState* other : w.streams) {
    if (other->capture == state) other->capture = nullptr;
  }
  stream.captures_itself = false;
  std::erase_if(w.captured_events, [&](const auto& each) { return each.second == state; });
  Graph graph;
  if (w.options.captures_fail) {
    if (failure_.ok())
      failure_ = Status(StatusCode::kInternal, "cuda:0 refused a capture: a simulated fault");
    return graph;
  }
  graph.handle_ = new std::shared_ptr<simulated::GraphState>(state);
  return graph;
}

void Stream::launch(const Graph& graph) {
  LOCI_CHECK(graph.present(), "a graph that was captured");
  World& w = world();
  const MutexLock lock(w.mutex);
  simulated::StreamState& stream = simulated::stream_state(handle_);
  LOCI_CHECK(stream.capture == nullptr, "graphs are not captured");
  // Its operations are run in their order, before what follows the graph, and after what came before it.
  const auto& state = *static_cast<std::shared_ptr<simulated::GraphState>*>(graph.handle_);
  stream.queue.push_back({.run = [] {
    World& here = world();
    here.mutex.assert_held();
    ++here.counters.graphs;
  }});
  stream.queue.insert(stream.queue.end(), state->operations.begin(), state->operations.end());
  stream.queue.push_back({.run = [] {}});
}

void Stream::launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                           std::size_t params_bytes) {
  struct Thunk {
    void (*call)(void (*)(), const void*);
    void (*kernel)();
  };
  check_launch_shape(name, shape, device_->properties().shared_bytes_max);
  bool refused = false;
  {
    World& w = world();
    const MutexLock lock(w.mutex);
    simulated::Options& options = w.options;
    refused = options.refused_kernel == name;
    if (refused && options.refused_after > 0) {
      --options.refused_after;
      refused = false;
    } else if (refused) {
      refused = options.refused_times > 0 && options.refused_times-- > 0;
    }
  }
  if (refused) {
    if (failure_.ok())
      failure_ = Status(StatusCode::kInternal, fmt::format("cuda:0 refused {}: a simulated fault", name));
    return;
  }
  const Thunk thunk = *static_cast<const Thunk*>(kernel);
  // As aligned as any params struct.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const std::shared_ptr<Line[]> copy(new Line[(params_bytes + sizeof(Line) - 1) / sizeof(Line)]);
  std::memcpy(copy.get(), params, params_bytes);
  const auto run = [device = device_, name, thunk, shape, copy](const std::function<void()>& previous) {
    World& here = world();
    here.mutex.assert_held();
    if (!simulated::counts(*device)) {
      if (previous) previous();
      return;
    }
    ++here.counters.kernels;
    simulated::run_grid(name, shape, here.draw(), [&] { thunk.call(thunk.kernel, copy.get()); }, previous);
  };
  simulated::queue(simulated::stream_state(handle_),
                   {.kind = simulated::Operation::Kind::kKernel, .kernel = run});
}

void Stream::call(void (*function)(void*), std::shared_ptr<void> argument) {
  simulated::queue(*device_, simulated::stream_state(handle_),
                   [function, argument = std::move(argument)] { function(argument.get()); });
}

}  // namespace loci::cuda
