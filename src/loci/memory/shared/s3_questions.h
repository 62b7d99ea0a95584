// SPDX-License-Identifier: Apache-2.0
// Which values an S3 store has: a request for each, in the order of the keys, which is that of a prompt.
// Questions take turns, a block each, so a long one holds up no other. Of each question some blocks are asked
// for at once, before the answers about earlier ones have come: its *window*. If many blocks in a row are not
// there, those after them are of little use, because the missing ones have to be computed first. So a
// question ends after kMissesMax blocks in a row that are not there:
//
//     block    0 1 2 3 ... 90 91 92 ... 107 108        x: there, -: not there
//     answer   x x - x ... x  -  -  ...  -             91 to 106 are missing: the question is answered
//
// While blocks are found the window grows, to kWindowMax; of an unknown prompt kMissesMax blocks are asked
// for. When the time for a question is over it is answered with what is known by then; requests that are
// under way go on, since each that is given up costs its connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
  static constexpr std::size_t kMissesMax = 16, kWindowMax = 64;  // blocks
  // Questions that are not answered, and their keys; beyond it nothing is there.
  static constexpr std::size_t kOpenMax = 1'024, kKeysMax = 262'144;

  // All three must outlive it. `at_once`: requests that are under way, at most. `time_limit`: of one request.
  S3Questions(const S3StoreState& state, S3Client& client, std::size_t at_once, Nanos time_limit,
              const Clock& clock)
      : state_(state), client_(client), at_once_(at_once), time_limit_(time_limit), clock_(clock) {}

  void begin(S3Question question);

 private:
  struct Open {
    S3Question question;
    std::vector<std::uint8_t> groups;
    std::vector<std::uint32_t> left;  // of each block, requests without a reply
    std::size_t next = 0;             // the first block that was not asked for
    std::size_t known = 0;            // the first block that is not known
    std::size_t misses = 0;           // blocks before it, in a row, that are not there
    std::size_t window = kMissesMax;
    bool waits = false;  // for its turn
    bool has_failed = false, is_answered = false;

    bool may_ask() const {
      return !is_answered && next < question.keys.size() && next - known + misses < window;
    }
  };
  using Turn = std::shared_ptr<Open>;

  void queue(const Turn& open);
  void go_on();
  void ask(const Turn& open);
  void take_reply(const Turn& open, std::size_t index, std::uint32_t group, const S3Reply& reply);
  void answer(Open& open);

  const S3StoreState& state_;
  S3Client& client_;
  const std::size_t at_once_;
  const Nanos time_limit_;
  const Clock& clock_;
  std::deque<Turn> turns_;     // that may ask, who is next first
  std::size_t under_way_ = 0;  // requests
  std::size_t open_count_ = 0, open_keys_ = 0;
};

}  // namespace loci
