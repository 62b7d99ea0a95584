// SPDX-License-Identifier: Apache-2.0
// io_uring of a system that is too old, as seen through the one function by which the engine asks for a ring.
#include <gtest/gtest.h>
#include <liburing.h>

#include <string>

#include "loci/memory/disk/disk_io.h"

namespace {

bool hides_time_limits = false;  // as before Linux 5.11

}  // namespace

// In place of liburing's, which does the same for a system as it is.
extern "C" int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  io_uring_params params{};
  params.flags = flags;
  const int made = ::io_uring_queue_init_params(entries, ring, &params);
  if (hides_time_limits) ring->features &= ~IORING_FEAT_EXT_ARG;
  return made;
}

namespace loci {
namespace {

// There the disk's thread would sleep for ever at its first wait that wake() ends.
TEST(UringEngine, WhereWaitsKnowNoTimeLimitItIsRefused) {
  hides_time_limits = true;
  const Result<std::unique_ptr<IoEngine>> engine = make_uring_engine(8);
  hides_time_limits = false;
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(engine.status().message().find("io_uring"), std::string::npos);
}

}  // namespace
}  // namespace loci
