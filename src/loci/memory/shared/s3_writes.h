// SPDX-License-Identifier: Apache-2.0
// What is written to an S3 store: values, unless another server has written them, and old ones anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/s3_client.h"
#include "loci/memory/shared/s3_open_writes.h"
#include "loci/memory/shared/s3_read.h"

namespace loci {

struct S3Write {
  ChainKey key;
  std::uint32_t group = 0;
  std::vector<std::byte> bytes;  // of the block's part
  std::function<void(Status)> done;
  Nanos waits_until = 0;
};

// On the client's thread.
class S3Writes {
 public:
  // All three must outlive it.
  S3Writes(const S3StoreState& state, S3OpenWrites& open, S3Client& client)
      : state_(state), open_(open), client_(client) {}

  void begin(S3Write write);
  // Gives a value that was used its time again; one of too many at once keeps its age.
  void renew(const ChainKey& key, std::uint32_t group);

 private:
  using Write = std::shared_ptr<S3Write>;
  void take_head(const Write& write, const S3Reply& reply);
  void send(const Write& write);
  void take_reply(const Write& write, std::uint64_t bytes, const S3Reply& reply);
  // `is_over`: the store is done with all that was asked for this write.
  void refuse(const Write& write, const std::string& refusal, bool is_over);

  const S3StoreState& state_;
  S3OpenWrites& open_;
  S3Client& client_;
};

}  // namespace loci
