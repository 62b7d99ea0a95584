// SPDX-License-Identifier: Apache-2.0
// Which requests a connection takes, and when it is closed for another one.
#include "loci/serve/http/connection.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/serve/http/server_testing.h"

namespace loci {
namespace {

// Bytes that the client does not expect would be the beginning of its next answer.
TEST_F(ServerTest, HeadOfAStreamHasNoBody) {
  start();
  Client client(server_->port());
  client.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string got = client.read_until(">");
  EXPECT_NE(got.find("Content-Type: text/plain\r\n"), std::string::npos) << got;
  const std::size_t end = got.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_TRUE(got.substr(end + 4).starts_with("HTTP/1.1 200 ")) << got;
}

}  // namespace
}  // namespace loci
