// SPDX-License-Identifier: Apache-2.0
// Requests about a response that runs at another instance than the one that was asked first (front.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "loci/cluster/front_testing.h"

namespace loci {
namespace {

std::string refused(const std::string& owner) {
  const std::string body = R"({"error":{"message":"elsewhere","code":"response_running"}})";
  return fmt::format(
      "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nLoci-Owner: {}\r\nContent-Length: "
      "{}\r\n\r\n{}",
      owner, body.size(), body);
}

// Three members, called "0" to "2" in their store. One has the response, and the others say so.
class FrontOwnerTest : public FrontTest {
 protected:
  FrontOwnerTest() {
    std::vector<Member> members;
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      instances_[i] = std::make_unique<FakeInstance>(
          [this, own = std::to_string(i)](const std::string& request) { return answer(own, request); });
      members.push_back(instances_[i]->member(fmt::format("000000000000000{}", i)));
      members.back().store = std::to_string(i);
    }
    update(members);
  }
  std::string answer(const std::string& own, const std::string& request) {
    const std::string owner = std::to_string(owner_);
    if (own != owner) return refused(owner);
    if (request.starts_with("POST")) return whole(R"({"status":"cancelled"})");
    return is_away_ ? std::string() : events("data: 1\n\n") + "0\r\n\r\n";
  }
  int requests() const {
    int sum = 0;
    for (const auto& one : instances_) sum += one->requests();
    return sum;
  }

  std::atomic<int> owner_ = 0;
  std::atomic<bool> is_away_ = false;
  std::array<std::unique_ptr<FakeInstance>, 3> instances_;
};

TEST_F(FrontOwnerTest, TheOwnerIsAskedNext) {
  const std::string path = "/v1/responses/resp_1";
  for (owner_ = 0; owner_ < 3; ++owner_) {
    const int redirected = metric("loci_front_redirects_total");
    const std::string stream = get(path + "?stream=true");
    EXPECT_TRUE(stream.starts_with("HTTP/1.1 200")) << stream;
    EXPECT_NE(stream.find("data: 1"), std::string::npos) << stream;
    EXPECT_NE(stream.find(fmt::format("X-Loci-Member: 000000000000000{}", owner_.load())), std::string::npos)
        << stream;
    const int again = metric("loci_front_redirects_total") - redirected;
    EXPECT_TRUE(owner_ == 0 || again == 1) << again << ": the one before it was asked first";
    const int before = requests();
    EXPECT_NE(post(path + "/cancel", "").find("cancelled"), std::string::npos);
    EXPECT_EQ(requests(), before + 1) << "the front knows by now where it is";
  }
  EXPECT_EQ(metric("loci_front_retries_total"), 0) << "nobody failed";
}

TEST_F(FrontOwnerTest, WithoutTheOwnerTheAnswerIsTheInstances) {
  owner_ = 7;
  const std::string answer = post("/v1/responses/resp_1/cancel", "");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 409")) << answer;
  EXPECT_NE(answer.find("response_running"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("Loci-Owner"), std::string::npos) << "it is between instances and fronts";
  EXPECT_EQ(requests(), 1);
}

// Each with members of its own: of one that broke off, the front may find so only when it asks the next time.
class FrontOwnerBreaksTest : public FrontOwnerTest, public testing::WithParamInterface<int> {};

TEST_P(FrontOwnerBreaksTest, AnOwnerThatBreaksOffIsNotAskedAgain) {
  is_away_ = true;
  owner_ = GetParam();
  const std::string answer = get(fmt::format("/v1/responses/resp_{}?stream=true", owner_.load()));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 409")) << answer;
  EXPECT_EQ(instances_[static_cast<std::size_t>(owner_)]->requests(), 1);
}
INSTANTIATE_TEST_SUITE_P(Owners, FrontOwnerBreaksTest, testing::Range(0, 3));

}  // namespace
}  // namespace loci
