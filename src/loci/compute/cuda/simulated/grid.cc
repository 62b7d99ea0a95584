// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/simulated/grid.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/cuda/simt_warpgroup.h"
#include "loci/compute/cuda/simulated/async_units.h"
#include "loci/compute/cuda/simulated/sanitizers.h"

namespace loci::cuda::simulated {
namespace {

namespace context = boost::context::detail;

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStackBytes = 256u << 10;
#else
constexpr std::size_t kStackBytes = 64u << 10;
#endif
constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint32_t kThreadsMax = 1024;  // of a block
constexpr std::size_t kAroundShared = 4096;  // bytes before and behind a block's shared memory

// A stack for each thread of a block; below each a page that nobody may touch.
class Stacks {
 public:
  Stacks() {
    const std::size_t bytes = kThreadsMax * (kStackBytes + kGuardBytes);
    void* memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCI_CHECK(memory != MAP_FAILED, "no memory for the simulated threads' stacks");
    memory_ = static_cast<std::byte*>(memory);
    for (std::uint32_t i = 0; i < kThreadsMax; ++i) {
      mprotect(memory_ + i * (kStackBytes + kGuardBytes), kGuardBytes, PROT_NONE);
    }
  }
  ~Stacks() { munmap(memory_, kThreadsMax * (kStackBytes + kGuardBytes)); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  std::byte* bottom(std::uint32_t i) const { return memory_ + i * (kStackBytes + kGuardBytes) + kGuardBytes; }

 private:
  std::byte* memory_;
};

struct Fiber {
  Lane lane;
  std::byte* stack = nullptr;        // its lowest byte
  context::fcontext_t at = nullptr;  // where it stopped
  bool ended = false;
};

struct Warp {
  void* operands[32] = {};
  std::uint32_t arrived = 0;
  Meeting kind = Meeting::kWarp;
};

class BlockRunner {
 public:
  BlockRunner(const char* name, const LaunchShape& shape, std::uint64_t seed,
              const std::function<void()>& thread, const std::function<void()>& previous, Stacks& stacks)
      : name_(name),
        shape_(shape),
        thread_(thread),
        previous_(previous),
        stacks_(stacks),
        random_(seed * 2 + 1),
        previous_ended_(previous == nullptr) {
    const std::uint64_t count = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
    LOCI_CHECK(count > 0 && count <= kThreadsMax && shape.block.x % 32 == 0,
               "a block is of 1 to 32 whole warps");
    threads_ = static_cast<std::uint32_t>(count);
    fibers_.resize(threads_);
    warps_.resize(threads_ / 32);
    // Shared memory is exactly as large as the launch asked for; what lies around it nobody may touch.
    around_shared_.resize(kAroundShared + 128 + shape.shared_bytes + kAroundShared);
    shared_ = around_shared_.data() + kAroundShared;
    shared_ += (128 - reinterpret_cast<std::uintptr_t>(shared_) % 128) % 128;
    forbid(around_shared_.data(), around_shared_.size());
    allow(shared_, shape.shared_bytes);
  }
  ~BlockRunner() { allow(around_shared_.data(), around_shared_.size()); }
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void run(uint3 block) {
    std::memset(shared_, 0xff, shape_.shared_bytes);
    alive_ = threads_;
    awaited_ = false;
    awaiting_.clear();
    at_barrier_.clear();
    ready_.clear();
    waiting_.clear();
    barriers_.assign(kBarriers, {});
    units_.begin(shared_, shape_.shared_bytes, threads_ / 32, random_, [this](const void* at) { wake(at); });
    eager_ = draw(2) == 0;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      Fiber& fiber = fibers_[i];
      fiber.lane.thread = {i % shape_.block.x, i / shape_.block.x % shape_.block.y,
                           i / shape_.block.x / shape_.block.y};
      fiber.lane.block = block;
      fiber.lane.block_size = {shape_.block.x, shape_.block.y, shape_.block.z};
      fiber.lane.grid_size = {shape_.grid.x, shape_.grid.y, shape_.grid.z};
      fiber.lane.shared = shared_;
      fiber.lane.shared_bytes = shape_.shared_bytes;
      fiber.lane.copies.clear();
      fiber.lane.copy_groups.clear();
      fiber.lane.unpublished.clear();
      fiber.ended = false;
      fiber.stack = stacks_.bottom(i);
      fiber.at = context::make_fcontext(fiber.stack + kStackBytes, kStackBytes, &enter);
      ready_.push_back(i);
    }
    while (alive_ > 0) {
      while (units_.advance(ready_.empty()) && ready_.empty()) continue;
      if (ready_.empty() && !awaiting_.empty()) end_previous();
      LOCI_CHECK(!ready_.empty(),
                 "a kernel hangs: threads wait for others that have ended or wait elsewhere");
      const std::size_t drawn = next();
      current_ = ready_[drawn];
      ready_[drawn] = ready_.back();
      ready_.pop_back();
      resume(fibers_[current_]);
    }
    units_.end(name_);
    if (!awaited_) {
      check_failed(
          name_,
          "a block ends without await_previous(): who follows would take its writes for all there are");
    }
  }

  Fiber& current() { return fibers_[current_]; }
  const char* name() const { return name_; }

  void meet_warp(Meeting kind, void* operand, void (*meet)(void* const (&operands)[32])) {
    Warp& warp = warps_[current_ / 32];
    const std::uint32_t lane = current_ % 32, first = current_ - lane;
    LOCI_CHECK(warp.arrived == 0 || warp.kind == kind, "a warp's lanes meet in different operations");
    warp.kind = kind;
    warp.operands[lane] = operand;
    warp.arrived |= 1u << lane;
    if (warp.arrived != ~0u) return yield();
    meet(warp.operands);
    warp.arrived = 0;
    for (std::uint32_t i = 0; i < 32; ++i) {
      if (i != lane) ready_.push_back(first + i);
    }
  }

  void await_previous() {
    awaited_ = true;
    if (previous_ended_) return;
    awaiting_.push_back(current_);
    yield();
  }

  AsyncUnits& units() { return units_; }
  std::uint32_t warp() const { return current_ / 32; }
  // Now and then, lets all others run first: what is asynchronous may come late.
  void dawdle() {
    for (std::size_t rounds = draw(8) == 0 ? 1 + draw(8) : 0; rounds > 0; --rounds) {
      ready_.insert(ready_.begin(), current_);
      yield();
    }
  }
  // Until wake(at).
  void wait(const void* at) {
    waiting_[at].push_back(current_);
    yield();
  }

  void meet_at_barrier(unsigned number, unsigned threads, bool waits) {
    LOCI_CHECK(number > 0 && number < kBarriers && threads % 32 == 0 && threads > 0,
               "barriers of some of a block's warps have numbers 1 to 15");
    Barrier& barrier = barriers_[number];
    LOCI_CHECK(barrier.arrived == 0 || barrier.threads == threads,
               "all who come to a barrier say the same of it");
    barrier.threads = threads;
    if (++barrier.arrived == threads) {
      barrier.arrived = 0;
      wake(&barrier);
    } else if (waits) {
      wait(&barrier);
    }
  }

  void meet_block() {
    at_barrier_.push_back(current_);
    if (at_barrier_.size() < alive_) return yield();
    at_barrier_.pop_back();
    release_barrier();
  }

 private:
  // Runs on the fiber's own stack.
  LOCI_NEVER_LEFT static void enter(context::transfer_t from) {
    auto* runner = static_cast<BlockRunner*>(from.data);
    arrived(nullptr, &runner->scheduler_stack_, &runner->scheduler_stack_bytes_);
    runner->scheduler_ = from.fctx;
    runner->thread_();
    runner->end();
  }

  void resume(Fiber& fiber) {
    void* left = nullptr;
    leaving(&left, fiber.stack, kStackBytes);
    const context::transfer_t back = context::jump_fcontext(fiber.at, this);
    arrived(left, nullptr, nullptr);
    static_cast<Fiber*>(back.data)->at = back.fctx;
  }

  void yield() {
    void* left = nullptr;
    leaving(&left, scheduler_stack_, scheduler_stack_bytes_);
    const context::transfer_t back = context::jump_fcontext(scheduler_, &fibers_[current_]);
    arrived(left, &scheduler_stack_, &scheduler_stack_bytes_);
    scheduler_ = back.fctx;
  }

  LOCI_NEVER_LEFT void end() {
    fibers_[current_].ended = true;
    --alive_;
    if (alive_ > 0 && at_barrier_.size() == alive_) release_barrier();
    leaving(nullptr, scheduler_stack_, scheduler_stack_bytes_);
    context::jump_fcontext(scheduler_, &fibers_[current_]);
  }

  void wake(const void* at) {
    const auto found = waiting_.find(at);
    if (found == waiting_.end()) return;
    ready_.insert(ready_.end(), found->second.begin(), found->second.end());
    waiting_.erase(found);
  }

  void end_previous() {
    previous_();
    previous_ended_ = true;
    ready_.swap(awaiting_);
  }

  void release_barrier() {
    ready_.insert(ready_.end(), at_barrier_.begin(), at_barrier_.end());
    at_barrier_.clear();
  }

  // In every other block, whoever became ready last mostly runs first: a warp whose lanes met runs on, far
  // ahead of others, so what lacks a second barrier shows.
  std::size_t next() {
    if (eager_ && draw(64) != 0) return ready_.size() - 1;
    return draw(ready_.size());
  }

  std::size_t draw(std::size_t below) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_ % below;
  }

  const char* name_;
  const LaunchShape& shape_;
  const std::function<void()>& thread_;
  const std::function<void()>& previous_;
  Stacks& stacks_;
  std::uint64_t random_;
  std::uint32_t threads_ = 0;
  std::uint32_t alive_ = 0;
  std::uint32_t current_ = 0;
  bool eager_ = false;
  bool previous_ended_;
  bool awaited_ = false;  // by a thread of the block
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::uint32_t> ready_, at_barrier_, awaiting_;
  // Of some of the block's warps; __syncthreads() is none of them.
  struct Barrier {
    std::uint32_t arrived = 0, threads = 0;
  };
  static constexpr std::size_t kBarriers = 16;
  std::vector<Barrier> barriers_;
  std::map<const void*, std::vector<std::uint32_t>> waiting_;  // threads, by what they wait for
  AsyncUnits units_;
  std::vector<std::byte> around_shared_;
  std::byte* shared_ = nullptr;  // of around_shared_
  context::fcontext_t scheduler_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
};

thread_local BlockRunner* running = nullptr;

}  // namespace

Lane& lane() { return running->current().lane; }

void meet_warp(Meeting kind, void* operand, void (*meet)(void* const (&operands)[32])) {
  running->meet_warp(kind, operand, meet);
}

void meet_block() { running->meet_block(); }
void await_previous() { running->await_previous(); }

void check_shared(const void* pointer, std::uint32_t bytes) {
  const Lane& mine = lane();
  const auto* at = static_cast<const std::byte*>(pointer);
  LOCI_CHECK(at >= mine.shared && at + bytes <= mine.shared + mine.shared_bytes,
             "a kernel leaves its shared memory");
}

void check_whole_warp(unsigned mask) { LOCI_CHECK(mask == ~0u, "kernels meet in whole warps"); }

void wait_copies(std::size_t groups_left) {
  Lane& mine = lane();
  if (mine.copy_groups.size() <= groups_left) return;
  const std::size_t groups = mine.copy_groups.size() - groups_left, end = mine.copy_groups[groups - 1];
  for (std::size_t i = 0; i < end; ++i) {
    const AsyncCopy& copy = mine.copies[i];
    if (copy.valid) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
    mine.unpublished.emplace_back(static_cast<std::byte*>(copy.to), 16);
    running->units().spoil(mine.unpublished.back());
  }
  mine.copies.erase(mine.copies.begin(), mine.copies.begin() + static_cast<std::ptrdiff_t>(end));
  mine.copy_groups.erase(mine.copy_groups.begin(),
                         mine.copy_groups.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& group : mine.copy_groups) group -= end;
}

unsigned shared_address(const void* pointer) { return running->units().address(pointer); }
void begin_arrivals(Arrivals* arrivals, unsigned count) {
  check_shared(arrivals, sizeof(Arrivals));
  running->units().begin_arrivals(arrivals, count);
}
void publish_arrivals() {}
void arrive(Arrivals* arrivals, std::uint32_t bytes) { running->units().arrive(arrivals, bytes); }
void await_arrivals(Arrivals* arrivals, unsigned parity) {
  while (!running->units().phase_ended(arrivals, parity)) running->wait(arrivals);
}
void copy_bytes(void* to, const void* from, std::uint32_t bytes, Arrivals* arrivals) {
  running->units().copy_bytes(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
                              arrivals);
}
void copy_tile(void* to, const TileMap& map, int x, int y, int z, Arrivals* arrivals) {
  running->units().copy_tile(static_cast<std::byte*>(to), map, x, y, z, arrivals);
}
void publish_shared() {
  running->dawdle();
  for (const std::span<std::byte> bytes : lane().unpublished) running->units().publish(bytes);
  lane().unpublished.clear();
}
void store_for_products(void* to, std::uint32_t value) {
  check_shared(to, sizeof(value));
  std::memcpy(to, &value, sizeof(value));
  lane().unpublished.emplace_back(static_cast<std::byte*>(to), sizeof(value));
  running->units().spoil(lane().unpublished.back());
}
void meet_at_barrier(unsigned number, unsigned threads, bool wait) {
  running->meet_at_barrier(number, threads, wait);
}

// Operations of a warp's products: each warp of a warpgroup runs for itself, as far ahead of the others as
// barriers let it.
void begin_products() {
  meet_warp(Meeting::kProducts, nullptr,
            [](void* const(&)[32]) { running->units().begin_products(running->warp()); });
}
void commit_products() {
  meet_warp(Meeting::kProducts, nullptr,
            [](void* const(&)[32]) { running->units().commit_products(running->warp()); });
}
void wait_products(std::uint32_t groups) {
  running->dawdle();
  meet_warp(Meeting::kProducts, &groups, [](void* const(&lanes)[32]) {
    running->units().wait_products(running->warp(), *static_cast<std::uint32_t*>(lanes[0]));
  });
}
void multiply(const WarpProduct& product) {
  WarpProduct mine = product;
  meet_warp(Meeting::kProducts, &mine,
            [](void* const(&lanes)[32]) { running->units().multiply(running->warp(), lanes); });
}

void run_grid(const char* name, const LaunchShape& shape, std::uint64_t seed,
              const std::function<void()>& thread, const std::function<void()>& previous) {
  constexpr std::uint32_t kDepth = 2;  // a kernel, and the one before it
  static thread_local Stacks stacks[kDepth];
  static thread_local std::uint32_t depth = 0;
  LOCI_CHECK(depth < kDepth, "a simulated kernel launches no other");
  BlockRunner* const interrupted = running;
  BlockRunner runner(name, shape, seed, thread, previous, stacks[depth++]);
  // The kernel before has one of its own, and leaves this one running.
  const auto run = [&](uint3 block) {
    running = &runner;
    runner.run(block);
  };
  for (std::uint32_t z = 0; z < shape.grid.z; ++z) {
    for (std::uint32_t y = 0; y < shape.grid.y; ++y) {
      for (std::uint32_t x = 0; x < shape.grid.x; ++x) run({x, y, z});
    }
  }
  running = interrupted;
  --depth;
}

}  // namespace loci::cuda::simulated
