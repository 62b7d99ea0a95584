// SPDX-License-Identifier: Apache-2.0
// Deletions that an S3 store has to carry out, each of all parts of a block. One that fails is kept until the
// store takes it or refuses it; there is a pause before all that were kept are tried again. One whose block
// is being written waits until that has ended (s3_open_writes.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include "loci/base/clock.h"
#include "loci/memory/shared/s3_client.h"
#include "loci/memory/shared/s3_open_writes.h"
#include "loci/memory/shared/s3_read.h"

namespace loci {

// On the client's thread, but for take().
class S3Deletions {
 public:
  static constexpr std::size_t kMax = 262'144;  // that wait; beyond it one is dropped
  static constexpr Nanos kPause = 2 * kNanosPerSecond;

  // All four must outlive it.
  S3Deletions(const S3StoreState& state, S3OpenWrites& open, S3Client& client, const Clock& clock)
      : state_(state), open_(open), client_(client), clock_(clock) {}

  // Thread-safe.
  void take(const ChainKey& key);
  // Begins those that wait, while the store is asked.
  void go_on();
  // The block is to be deleted: nobody may give its objects a new time meanwhile.
  bool has(const ChainKey& key) const { return keys_.contains(key); }
  // Drops all of them, those that were to be done again too: the server ends.
  void drop_all();

 private:
  // A deletion whose parts are being deleted.
  struct Deletion {
    ChainKey key;
    Nanos late = 0;          // until when the store may write it yet; 0: it does not
    std::uint32_t left = 0;  // parts
    bool has_failed = false;
    std::string refusal;  // what the store said
  };

  void queue(const ChainKey& key);
  void begin(const ChainKey& key);
  void take_reply(Deletion& deletion, const S3Reply& reply);
  void end(const Deletion& deletion);
  void repeat(const ChainKey& key, Nanos late);

  const S3StoreState& state_;
  S3OpenWrites& open_;
  S3Client& client_;
  const Clock& clock_;
  std::atomic<std::size_t> count_{0};  // that wait or are under way
  std::deque<ChainKey> waiting_;
  std::multiset<ChainKey> keys_;  // that wait or are under way
  std::size_t under_way_ = 0;
  Nanos paused_until_ = 0;
  bool is_over_ = false;
};

}  // namespace loci
