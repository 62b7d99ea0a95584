// SPDX-License-Identifier: Apache-2.0
// State that this server reads from another member while that member still computes the rest of the prompt,
// so that all but the last of the transfer is hidden behind computing. (MemServe's by-layer, §5.2; here by
// pass, whose blocks are whole: docs/decisions/roles.md.)
//
//     that member says       this server submits            and so has, when the prompt is computed
//     512 tokens             tokens 0 to 512, and reads 16 blocks
//     1,024 tokens           nothing: it still reads
//     1,536 tokens           tokens 0 to 1,536, and reads the 32 blocks that are new       1,536 tokens
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/engine/run/engine.h"
#include "loci/serve/generation/early_read_pace.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

// The reads of one prompt: the network thread begins them, the core's thread tells what comes of them.
// Thread-safe; nobody holds its mutex while anything is computed.
class EarlyReads {
 public:
  EarlyReadPace now() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return pace_;
  }
  void change(const auto& change_it) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    change_it(pace_);
  }

 private:
  mutable Mutex mutex_;
  EarlyReadPace pace_ GUARDED_BY(mutex_);
};

// Each read is a request of the tenant for one token behind the blocks that are new, of which nothing is
// counted or said: the blocks stay in device memory as those of any request do. One at a time; what comes
// meanwhile waits for the next. Network thread only.
class EarlyReader {
 public:
  // `work` has the prompt's tenant, salt, weight and places in the queue. What else it is given outlives it.
  EarlyReader(Engine& engine, WorkerPool& workers, const PrefillWork& work, std::span<const TokenId> prompt);
  EarlyReader(const EarlyReader&) = delete;
  EarlyReader& operator=(const EarlyReader&) = delete;

  // Reads what is new of the prompt's first `tokens`, where that is worth a request, and nobody waits for
  // what the read would take.
  boost::asio::awaitable<void> read(std::uint32_t tokens);
  // Ends the read that has not ended: nobody wants the prompt any more.
  void cancel();
  // The same if it waits in the queue: the request itself takes its place.
  void cancel_queued();
  std::shared_ptr<const EarlyReads> reads() const { return reads_; }

 private:
  bool has_room() const;

  Engine& engine_;
  WorkerPool& workers_;
  const TenantId tenant_;
  const std::string salt_;
  const std::uint32_t weight_, queued_max_;
  const std::span<const TokenId> prompt_;
  const std::shared_ptr<EarlyReads> reads_ = std::make_shared<EarlyReads>();
  RequestId last_;
};

}  // namespace loci
