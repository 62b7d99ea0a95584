// SPDX-License-Identifier: Apache-2.0
// Whether what lacked room is worth another try: room was given back since, or something came that is needed.
//
//     block(a)      a, first in the queue, lacks blocks: is_blocked(a)
//     changed()     something was let go: a may be tried again, and so may every load ahead that lacked room
//
// It owns who is blocked, and how often room has changed. It calls nobody.
#pragma once

#include <cstdint>
#include <optional>

#include "loci/base/ids.h"

namespace loci {

// Thread-compatible; used by the core's thread. O(1).
class Room {
 public:
  // Blocks were let go or have come, or what is known of a waiting request has changed.
  void changed() {
    blocked_.reset();
    ++changes_;
  }
  // The queue's head, which lacks blocks, while none is let go.
  void block(RequestId head) { blocked_ = head; }
  bool is_blocked(RequestId request) const { return blocked_ == request; }
  // Another number after each change; never 0.
  std::uint64_t changes() const { return changes_; }

 private:
  std::optional<RequestId> blocked_;
  std::uint64_t changes_ = 1;
};

}  // namespace loci
