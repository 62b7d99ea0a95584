// SPDX-License-Identifier: Apache-2.0
#include "loci/server/memory_keeper.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "loci/base/available_memory.h"
#include "loci/base/units.h"

namespace loci {
namespace {

constexpr Nanos kLookEvery = kNanosPerSecond;
// The kernel may wake it twice a second at most.
constexpr Nanos kLookPause = kNanosPerSecond / 2;

std::uint64_t pool_bytes_of(const std::vector<CoreGroup>& groups) {
  std::uint64_t bytes = 0;
  for (const CoreGroup& group : groups) bytes += group.block_count * group.block_bytes;
  return bytes;
}

}  // namespace

MemoryRoom room_of(const std::vector<CoreGroup>& groups, std::uint64_t pool_bytes, std::uint64_t room) {
  MemoryRoom out;
  for (const CoreGroup& group : groups) {
    // (Bytes of a pool times its blocks may be more than 64 bits hold.)
    const double part = pool_bytes == 0 ? 1 : static_cast<double>(room) / static_cast<double>(pool_bytes);
    out.slots.push_back(room >= pool_bytes ? group.block_count
                                           : static_cast<std::uint32_t>(group.block_count * part));
  }
  return out;
}

MemoryKeeper::MemoryKeeper(Engine& engine, std::shared_ptr<spdlog::logger> log)
    : engine_(engine),
      log_(std::move(log)),
      pool_bytes_(pool_bytes_of(engine.config().groups)),
      share_(pool_bytes_),
      pressure_(""),
      told_(room_of(engine.config().groups, pool_bytes_, pool_bytes_)),
      thread_([this] { run(); }) {}

MemoryKeeper::~MemoryKeeper() {
  stopping_.store(true);
  pressure_.stop();
  thread_.join();
}

void MemoryKeeper::run() {
  pthread_setname_np(pthread_self(), "loci-memory");
  SystemClock clock;
  for (Nanos last = clock.now(); !stopping_.load();) {
    pressure_.wait(kLookEvery);
    const Nanos now = clock.now();
    // A trigger that the kernel keeps pulling does not keep this thread busy.
    if (now - last < kLookPause) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kLookPause / 5));
      continue;
    }
    look(now - std::exchange(last, now));
  }
}

void MemoryKeeper::look(Nanos since_last) {
  const Result<AvailableMemory> memory = read_available_memory("");
  if (!memory.ok()) return;
  MemoryLook now{.total_bytes = memory->total_bytes, .available_bytes = memory->bytes};
  const CoreStats stats = engine_.stats();
  const std::vector<CoreGroup>& groups = engine_.config().groups;
  for (std::size_t i = 0; i < groups.size(); ++i)
    now.used_bytes += stats.pools[i].blocks_held * groups[i].block_bytes;
  const auto permille = pressure_.stalled_us() * 1'000'000 / static_cast<std::uint64_t>(since_last);
  now.stalled_permille = static_cast<std::uint32_t>(std::min<std::uint64_t>(1000, permille));
  now.stalls_are_own = pressure_.is_own();
  const std::uint64_t room = share_.look(now);
  MemoryRoom next = room_of(groups, pool_bytes_, room);
  if (next.slots != told_.slots) engine_.set_memory_room(told_ = std::move(next));
  const bool is_short = room < now.used_bytes;
  if (is_short && !short_) {
    log_->info("memory is short ({} of {} available, {}): state gives some of its {} back",
               format_bytes(now.available_bytes), format_bytes(now.total_bytes), memory->limited_by,
               format_bytes(now.used_bytes));
  } else if (short_ && room >= pool_bytes_) {
    log_->info("memory is there again: state may have {}", format_bytes(pool_bytes_));
  }
  short_ = is_short || (short_ && room < pool_bytes_);
}

}  // namespace loci
