// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_store_state.h"

#include <algorithm>

namespace loci {

std::string s3_object_name(const SharedFormat& format, const ChainKey& key, std::uint32_t group) {
  std::string name = format.name(key, group);
  std::replace(name.begin(), name.end(), ':', '/');
  return name;
}

Nanos S3StoreState::limit_of(std::uint64_t bytes) const {
  return shared_transfer_limit(request_limit, bytes, rate_min);
}

bool S3StoreState::is_expired(const S3Head& head) const {
  return seconds_to_live > 0 && head.age().value_or(0) >= seconds_to_live;
}

bool S3StoreState::is_aged(const S3Head& head) const {
  return seconds_to_live > 0 && head.age().value_or(0) >= (seconds_to_live + 1) / 2;
}

}  // namespace loci
