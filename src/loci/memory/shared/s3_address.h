// SPDX-License-Identifier: Apache-2.0
// Where a bucket of an S3 store is: s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&style=path|virtual].
// Without an endpoint it is Amazon's of the region.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// The value of an environment's variable; absent or empty: none.
using S3Environment = std::function<std::string(const char* name)>;
// This process's own.
std::string s3_process_environment(const char* name);

struct S3Address {
  std::string bucket;
  std::string prefix;    // of the objects' names; empty, or ends in a slash
  std::string endpoint;  // http(s)://HOST[:PORT]
  std::string region;
  bool bucket_in_host = false;  // else the bucket is the first part of the path

  // Of the object, whose name has nothing that a URL escapes.
  std::string url(std::string_view name) const;
  // The object as the source of a copy.
  std::string path(std::string_view name) const;
  // For people and logs. (The URL has no secrets.)
  std::string shown() const;
  friend bool operator==(const S3Address&, const S3Address&) = default;
};

// A region that the URL does not name is the environment's (AWS_REGION, AWS_DEFAULT_REGION), or with an
// endpoint us-east-1. Errors: kInvalidArgument, saying which part is wrong.
Result<S3Address> parse_s3_address(std::string_view url,
                                   const S3Environment& environment = s3_process_environment);

}  // namespace loci
