// SPDX-License-Identifier: Apache-2.0
// Which values an S3 store has: a request for each, many at once, in the order of the keys. When the time for
// a question is over it is answered with what is known by then; requests that are under way go on, since
// each that is given up costs its connection.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/shared/s3_client.h"
#include "loci/memory/shared/s3_read.h"
#include "loci/memory/shared/shared_store.h"

namespace loci {

struct S3Question {
  std::vector<ChainKey> keys;
  Nanos deadline = 0;
  SharedStore::Answer answer;
};

// On the client's thread.
class S3Questions {
 public:
  static constexpr std::size_t kWaitingMax = 16'384;  // requests; beyond it nothing is there

  // All three must outlive it. `time_limit`: of one request.
  S3Questions(const S3Values& values, S3Client& client, Nanos time_limit, const Clock& clock)
      : values_(values), client_(client), time_limit_(time_limit), clock_(clock) {}

  void begin(S3Question question);

 private:
  struct Open {
    S3Question question;
    std::vector<std::uint8_t> groups;
    std::size_t left = 0;  // requests without a reply
    bool has_failed = false, is_answered = false;
  };
  void ask(const std::shared_ptr<Open>& open, std::size_t index, std::uint32_t group);
  void take_reply(Open& open, std::size_t index, std::uint32_t group, const S3Reply& reply);
  void answer(Open& open);

  const S3Values& values_;
  S3Client& client_;
  const Nanos time_limit_;
  const Clock& clock_;
};

}  // namespace loci
