// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_credentials_reader.h"

#include <pthread.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/mutex.h"

namespace loci {

struct S3CredentialsReader::State {
  Mutex mutex;
  Condition ended;
  bool is_reading GUARDED_BY(mutex) = false;
  std::optional<Result<S3Credentials>> found GUARDED_BY(mutex);
};

S3CredentialsReader::S3CredentialsReader(Find find)
    : find_(std::move(find)), state_(std::make_shared<State>()) {}

S3CredentialsReader::~S3CredentialsReader() {
  State& state = *state_;
  MutexLock lock(state.mutex);
  state.ended.wait_for(lock, std::chrono::seconds(1),
                       [&]() REQUIRES(state.mutex) { return !state.is_reading; });
}

void S3CredentialsReader::begin() {
  const MutexLock lock(state_->mutex);
  if (state_->is_reading) return;
  state_->found.reset();
  try {
    std::thread([shared = state_, find = find_] {
      pthread_setname_np(pthread_self(), "loci-shared-key");
      Result<S3Credentials> found = find();
      const MutexLock guard(shared->mutex);
      shared->found.emplace(std::move(found));
      shared->is_reading = false;
      shared->ended.notify_all();
    }).detach();
    state_->is_reading = true;
  } catch (const std::system_error& error) {
    state_->found.emplace(
        resource_exhausted(std::string("no thread to read the credentials: ") + error.what()));
  }
}

std::optional<Result<S3Credentials>> S3CredentialsReader::take() {
  const MutexLock lock(state_->mutex);
  return std::exchange(state_->found, std::nullopt);
}

}  // namespace loci
