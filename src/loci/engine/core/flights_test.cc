// SPDX-License-Identifier: Apache-2.0
// Copies of a pass that was put off, over an index of one group. (Passes in flight are tested with the core.)
#include "loci/engine/core/flights.h"

#include <gtest/gtest.h>

#include <utility>

#include "loci/engine/core/prefixes.h"
#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

class FlightsTest : public TransfersFixture {
 protected:
  FlightsTest() : TransfersFixture({.block_count = 16, .disk_blocks = 16}, 4) {
    EXPECT_TRUE(index_.place(target_, 0));
    for (CoreRequest* request : {&one_, &other_}) {
      CorePass pass;
      pass.copies.push_back({request, computed(request == &one_ ? 100 : 200), {target_.block(), 5, {}}});
      if (request == &one_) {
        pass.copies.back().target.claim = 0;
        pass.claims.push_back(index_.claim(target_.block()));
      }
      flights_.put_off(std::move(pass));
    }
  }

  Prefixes prefixes_{config_, index_, transfers_};
  Places places_{config_, index_, transfers_};
  Windows windows_{config_, index_, transfers_, prefixes_, places_};
  CoreRequest one_, other_;
  BlockPin target_ = block(300);
  Flights flights_{config_, index_, transfers_, windows_};
};

TEST_F(FlightsTest, WhatWasPutOffComesWithTheNextPassAndKeepsItsClaim) {
  EXPECT_FALSE(index_.claim(target_.block()).has_value()) << "nobody else fills it meanwhile";
  CorePass pass = flights_.form(7);
  EXPECT_EQ(pass.budget, 7u);
  ASSERT_EQ(pass.copies.size(), 2u);
  EXPECT_TRUE(pass.claims.at(*pass.copies[0].target.claim).has_value());
  EXPECT_TRUE(flights_.form(7).copies.empty()) << "it comes once";
}

TEST_F(FlightsTest, ARequestThatLeavesTakesItsCopiesAlong) {
  flights_.forget_copies(one_);
  EXPECT_TRUE(index_.claim(target_.block()).has_value()) << "others may fill it";
  const CorePass pass = flights_.form(7);
  ASSERT_EQ(pass.copies.size(), 1u);
  EXPECT_EQ(pass.copies[0].request, &other_);
}

}  // namespace
}  // namespace loci
