// SPDX-License-Identifier: Apache-2.0
// What the parts of an S3 store have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "loci/base/clock.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/shared/s3_reply.h"
#include "loci/memory/shared/shared_account.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

// The name of an object: the format's, with slashes.
std::string s3_object_name(const SharedFormat& format, const ChainKey& key, std::uint32_t group);

// Its values' form and time, how long requests may take, and who is told of what was read. Immutable.
struct S3StoreState {
  const SharedFormat& format;
  SharedAccount& account;
  std::int64_t seconds_to_live = 0;                                // since a value was written; 0: for ever
  Nanos request_limit = 0;                                         // of a request, beside what its bytes take
  std::uint64_t rate_min = 1;                                      // bytes a second
  std::function<void(const ChainKey&)> damaged;                    // it is in the way of what was written
  std::function<void(const ChainKey&, std::uint32_t group)> aged;  // it was used, and half its time is over

  Nanos limit_of(std::uint64_t bytes) const;
  bool is_expired(const S3Head& head) const;
  bool is_aged(const S3Head& head) const;
};

}  // namespace loci
