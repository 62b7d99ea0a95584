// SPDX-License-Identifier: Apache-2.0
// A shared store in a bucket that speaks S3's protocol: an object for each value (docs/shared-store.md).
//
// S3 differs from Redis in what a question costs: it answers about one object at a time, after a round trip.
// So many requests are under way at once. It keeps no time to live that begins anew with each use. So a
// reader looks at an object's age. It copies an object onto itself that it used and that is older than half
// its time, and ignores one whose time is over. The bucket's own rules delete that.
//
// Threads: one asks, writes, deletes and probes a store that is down; some read. Each has many requests under
// way (s3_client.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_credentials.h"
#include "loci/memory/shared/shared_format.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct S3StoreOptions {
  S3Address address;
  // Called again, on a thread of its own, whenever the store is tried that was left alone, as credentials may
  // be replaced. It may block, and be called once more after the store is gone if it does.
  std::function<Result<S3Credentials>()> credentials = [] { return find_s3_credentials(); };
  SharedKeys keys;
  std::vector<SharedGroup> groups;  // the backend's
  // Since a value was written; of one that is used it begins anew, at the latest when half of it is over.
  // Rounded up to seconds; 0: for ever.
  Nanos time_to_live = 0;
  std::uint32_t readers = 2;         // threads
  std::uint32_t reads_at_once = 16;  // by each reader
  std::uint32_t questions_at_once = 64;
  Nanos connect_limit = 2 * kNanosPerSecond;  // also of a question, or a probe
  // Of one request, beside what its bytes take at the slowest rate that is waited for; and of its waiting
  // before.
  Nanos transfer_limit = 8 * kNanosPerSecond;
  // For so long after a write without an answer the store may carry it out.
  Nanos late_write_limit = 120 * kNanosPerSecond;
  std::uint64_t rate_min = std::uint64_t{4} << 20;                           // bytes a second
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // on its threads
};

// Tries the store. One that cannot be reached is no error, but a warning: it may come. `clock` must outlive
// the store, whose destructor ends what is under way at once and calls back for all of it. Errors:
// kInvalidArgument (no credentials, or the store refuses them; no such bucket; another region; a clock that
// is wrong; not an S3 store).
Result<std::unique_ptr<SharedStore>> open_s3_store(S3StoreOptions options, const Clock& clock);

}  // namespace loci
