// SPDX-License-Identifier: Apache-2.0
#include "loci/server/conversations.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/mutex.h"
#include "loci/serve/store/open_store.h"
#include "loci/serve/store/store_claim.h"
#include "loci/serve/store/store_keeper.h"
#include "loci/server/server_parts.h"

namespace loci {
namespace {

// A stop waits so long for a database that stands still, and for what erases gigabytes.
constexpr Nanos kStoreStopWait = 3 * kNanosPerSecond;

Status of_store(const Status& status) {
  return status.ok() ? status : Status(status.code(), status.message(), "store");
}

StoreOptions store_options(ServerParts& parts) {
  StoreOptions options;
  options.committed = [&metrics = parts.metrics](Nanos duration) { metrics.turn_committed(duration); };
  options.made_room = [&parts](std::string_view tenant, std::uint64_t gone) {
    parts.metrics.store_expired(gone);
    parts.quota_log->made_room(tenant, gone);
  };
  options.expire_soon = [&parts] { parts.expire_soon(); };
  options.quota_of = [&tenants = parts.tenants](std::string_view tenant) {
    const std::optional<TenantLimits> limits = tenants.limits_of(tenant);
    if (!limits) return StoreQuota();
    return StoreQuota{.bytes_max = limits->stored_bytes, .threads_max = limits->stored_conversations};
  };
  return options;
}

// A count that stays wrong gives somebody too much room or too little, which is no reason not to serve.
void recount_usage(ServerParts& parts) {
  const Result<std::uint64_t> wrong = parts.store->recount_usage();
  if (!wrong.ok())
    parts.log->warn("the space that each tenant's conversations take could not be counted again: {}",
                    wrong.status().message());
  else if (*wrong > 0)
    parts.log->warn(
        "the space that the conversations of {} tenants take had been counted wrong, and is corrected",
        *wrong);
}

}  // namespace

Status open_conversations(ServerParts& parts) {
  const std::string where = parts.config.store.value_or("");
  if (where.empty()) return {};
  if (!is_store_url(where)) {
    Result<StoreClaim> claim = StoreClaim::take(where);
    if (!claim.ok()) return of_store(claim.status());
    parts.store_claim = std::move(claim).value();
  }
  parts.quota_log = std::make_unique<QuotaLog>(parts.clock, StoreKeeping().period, parts.log);
  Result<std::unique_ptr<ConversationStore>> store = open_store(where, store_options(parts));
  if (!store.ok()) return of_store(store.status());
  parts.store = std::move(store).value();
  LOCI_RETURN_IF_ERROR(of_store(parts.store->fail_interrupted({}, {}).status()));
  recount_usage(parts);
  return {};
}

void end_conversations(std::unique_ptr<WorkerPool>& thread, ConversationStore* store, spdlog::logger& log) {
  if (store == nullptr) return thread.reset();
  struct {
    Mutex mutex;
    Condition changed;
    bool has_ended GUARDED_BY(mutex) = false;
  } threads;
  std::thread watch;
  try {
    watch = std::thread([&] {
      MutexLock lock(threads.mutex);
      if (threads.changed.wait_for(lock, std::chrono::nanoseconds(kStoreStopWait),
                                   [&]() REQUIRES(threads.mutex) { return threads.has_ended; }))
        return;
      lock.unlock();
      store->abandon();
    });
  } catch (const std::system_error& error) {
    log.warn("no thread to watch the store's last calls, so what waits for it is given up at once: {}",
             error.what());
    store->abandon();
    return thread.reset();
  }
  thread.reset();
  {
    const MutexLock lock(threads.mutex);
    threads.has_ended = true;
  }
  threads.changed.notify_all();
  watch.join();
}

void keep_conversations(ServerParts& parts) {
  if (parts.store == nullptr) return;
  const ServerConfig& config = parts.config;
  if (is_store_url(config.store.value_or(""))) {
    parts.services->turn_claims = std::make_shared<TurnClaims>(*parts.store_thread, *parts.store, parts.log);
    parts.services->turn_claims->start(StoreOptions().turn_lease / 3);
  }
  StoreKeeping keeping;
  if (config.store_age) keeping.limits.age_seconds_max = *config.store_age / kNanosPerSecond;
  keeping.limits.bytes_max = config.store_size;
  parts.expire_soon = keep_store(*parts.store_thread, *parts.store, keeping, parts.metrics, parts.log);
}

}  // namespace loci
