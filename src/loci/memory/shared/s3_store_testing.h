// SPDX-License-Identifier: Apache-2.0
// For tests: S3 stores at a server of this process (s3_testing.h).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/memory/shared/s3_store.h"
#include "loci/memory/shared/s3_store_state.h"
#include "loci/memory/shared/s3_testing.h"
#include "loci/memory/shared/shared_store_testing.h"

namespace loci::shared_test {

inline constexpr Nanos kSoon = kNanosPerSecond / 5;  // for what gives up in time for a test

inline S3StoreOptions options_at(std::uint16_t port, std::uint8_t secret, Warnings& warnings) {
  return {.address = {.bucket = S3Fake::kBucket,
                      .prefix = "some/place/",
                      .endpoint = fmt::format("http://127.0.0.1:{}", port),
                      .region = "eu-north-1"},
          .credentials = []() -> Result<S3Credentials> {
            return S3Credentials{.key_id = S3Fake::kKeyId, .secret = S3Fake::kSecret, .token = {}};
          },
          .keys = keys_of(secret),
          .groups = kGroups,
          .time_to_live = 1000 * kNanosPerSecond,
          .connect_limit = kPatient,
          .transfer_limit = kPatient,
          .warn = [&warnings](const std::string& line) { warnings.add(line); }};
}

inline std::string path_of(std::uint64_t seed, std::uint32_t group) {
  const SharedFormat format(keys_of(1), kGroups);
  return "/bucket/some/place/" + s3_object_name(format, test_key(seed), group);
}

class S3StoreFixture : public testing::Test {
 protected:
  S3StoreOptions options() {
    S3StoreOptions options = options_at(server_.port(), 1, warnings_);
    options.credentials = [this]() -> Result<S3Credentials> { return credentials_; };
    return options;
  }
  // What gives up in time for a test.
  S3StoreOptions hasty() {
    S3StoreOptions options = this->options();
    options.connect_limit = options.transfer_limit = kSoon;
    return options;
  }
  std::unique_ptr<SharedStore> open(S3StoreOptions options) {
    return open_s3_store(std::move(options), clock_).value();
  }
  Status start(S3StoreOptions options) { return open_s3_store(std::move(options), clock_).status(); }

  // The store has the parts of these blocks in the second group, of the right size.
  void have(const std::vector<std::uint64_t>& seeds) {
    const SharedFormat format(keys_of(1), kGroups);
    S3Fake::Objects objects = server_.objects();
    for (const std::uint64_t seed : seeds)
      objects[path(seed, 1)] = {.bytes = std::string(format.value_bytes(1), 'x')};
    server_.set_objects(std::move(objects));
  }
  static std::string path(std::uint64_t seed, std::uint32_t group) { return path_of(seed, group); }
  void set_age(std::uint64_t seed, std::uint32_t group, std::int64_t age) {
    S3Fake::Objects objects = server_.objects();
    objects.at(path(seed, group)).age = age;
    server_.set_objects(std::move(objects));
  }
  // An answer to what may be asked of objects; the probe finds the store well.
  void answer_objects(std::function<std::optional<std::string>(const S3Fake::Request&)> answer) {
    server_.answer(
        [answer = std::move(answer)](const S3Fake::Request& request) -> std::optional<std::string> {
          if (request.path.ends_with("/probe")) return std::nullopt;
          return answer(request);
        });
  }

  SystemClock clock_;
  S3Fake server_;
  S3Credentials credentials_{.key_id = S3Fake::kKeyId, .secret = S3Fake::kSecret, .token = {}};
  Warnings warnings_;
};

}  // namespace loci::shared_test
