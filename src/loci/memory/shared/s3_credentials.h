// SPDX-License-Identifier: Apache-2.0
// Who asks an S3 store. As for Amazon's own programs: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN of the environment; otherwise the profile AWS_PROFILE ("default") of the file
// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials).
#pragma once

#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/memory/shared/s3_address.h"

namespace loci {

struct S3Credentials {
  std::string key_id, secret;
  std::string token;  // of a session; empty: none
  friend bool operator==(const S3Credentials&, const S3Credentials&) = default;
};

// Errors: kInvalidArgument, saying where they were looked for. No message has a secret.
Result<S3Credentials> find_s3_credentials(const S3Environment& environment = s3_process_environment);

// A profile of a credentials file's text. Errors: kNotFound (no such profile), kInvalidArgument.
Result<S3Credentials> parse_s3_credentials(std::string_view text, std::string_view profile);

}  // namespace loci
