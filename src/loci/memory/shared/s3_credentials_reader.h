// SPDX-License-Identifier: Apache-2.0
// Reads a store's credentials anew on a thread of its own, one reading at a time: a file of credentials may
// lie on a disk that does not answer, and nobody who talks to the store may wait for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "loci/base/status.h"
#include "loci/memory/shared/s3_credentials.h"

namespace loci {

// One thread's. The destructor waits for a second at most: a reading that hangs ends by itself and touches
// nothing of this.
class S3CredentialsReader {
 public:
  using Find = std::function<Result<S3Credentials>()>;

  // `find` may block.
  explicit S3CredentialsReader(Find find);
  ~S3CredentialsReader();
  S3CredentialsReader(const S3CredentialsReader&) = delete;
  S3CredentialsReader& operator=(const S3CredentialsReader&) = delete;

  // Begins a reading, unless one is under way.
  void begin();
  // What the last reading found, once; absent: it has not ended. Errors: those of `find`; kResourceExhausted
  // (the system has no thread left).
  std::optional<Result<S3Credentials>> take();

 private:
  struct State;
  const Find find_;
  const std::shared_ptr<State> state_;  // the thread's too
};

}  // namespace loci
