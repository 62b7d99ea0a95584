// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/router.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

namespace loci {
namespace {

namespace http = boost::beast::http;

Router make_router() {
  Router router;
  const Handler handler = [](Call&) -> boost::asio::awaitable<void> { co_return; };
  router.add({.pattern = "/v1/things", .handler = handler});
  router.add({.method = http::verb::post, .pattern = "/v1/things", .handler = handler});
  router.add({.pattern = "/v1/things/{id}", .handler = handler});
  router.add({.method = http::verb::post, .pattern = "/v1/things/{id}/cancel", .handler = handler});
  router.add({.pattern = "/v1/models/{model...}", .handler = handler});
  return router;
}

TEST(Router, MatchesByMethodAndPath) {
  const Router router = make_router();
  EXPECT_NE(router.match(http::verb::get, "/v1/things").route, nullptr);
  EXPECT_NE(router.match(http::verb::head, "/v1/things").route, nullptr);
  const Router::Match post = router.match(http::verb::post, "/v1/things");
  ASSERT_NE(post.route, nullptr);
  EXPECT_EQ(post.route->method, http::verb::post);
  const Router::Match wrong = router.match(http::verb::delete_, "/v1/things");
  EXPECT_EQ(wrong.route, nullptr);
  EXPECT_EQ(wrong.allowed, "GET, HEAD, POST, OPTIONS");
  for (const char* path : {"", "/", "/v1", "/v1/thing", "/v1/things/", "/v1/things/a/b", "/v1/models",
                           "/v1/models/", "v1/things", "*"}) {
    EXPECT_TRUE(router.match(http::verb::get, path).allowed.empty()) << path;
  }
}

TEST(Router, APathIsOfTheFirstPatternThatHasIt) {
  Router router;
  const Handler handler = [](Call&) -> boost::asio::awaitable<void> { co_return; };
  router.add({.method = http::verb::post, .pattern = "/v1/things/count", .handler = handler});
  router.add({.pattern = "/v1/things/{id}", .handler = handler});
  const Router::Match count = router.match(http::verb::post, "/v1/things/count");
  ASSERT_NE(count.route, nullptr);
  EXPECT_EQ(count.pattern, "/v1/things/count");
  const Router::Match get = router.match(http::verb::get, "/v1/things/count");
  EXPECT_EQ(get.route, nullptr) << "it is no thing's id";
  EXPECT_EQ(get.allowed, "POST, OPTIONS");
  EXPECT_NE(router.match(http::verb::get, "/v1/things/counts").route, nullptr);
}

TEST(Router, ErrorsBelowARouteHaveItsStyle) {
  Router router = make_router();
  router.add({.method = http::verb::post,
              .pattern = "/v1/messages",
              .error_style = ErrorStyle::kAnthropic,
              .handler = [](Call&) -> boost::asio::awaitable<void> { co_return; }});
  for (const char* path : {"/v1/messages", "/v1/messages/", "/v1/messages/batches/1"})
    EXPECT_EQ(router.match(http::verb::get, path).error_style, ErrorStyle::kAnthropic) << path;
  for (const char* path : {"/v1/message", "/v1/messages2", "/v1/things/a/b"})
    EXPECT_EQ(router.match(http::verb::get, path).error_style, ErrorStyle::kOpenAi) << path;
}

// Whoever has no key can send one: it must not take the network thread's time.
TEST(Router, LooksAtAPathOnlyUpToWhereItDiffers) {
  const Router router = make_router();
  const std::string slashes(60'000, '/');
  const std::clock_t begin = std::clock();
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(router.match(http::verb::get, slashes).allowed.empty());
    EXPECT_TRUE(router.match(http::verb::get, "/v1/things" + slashes).allowed.empty());
  }
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2) << "half a second of the processor";
  EXPECT_EQ(router.match(http::verb::get, "/v1/models/" + slashes).parameters,
            std::vector<std::string>{slashes});
}

TEST(Router, GivesParametersDecoded) {
  const Router router = make_router();
  EXPECT_EQ(router.match(http::verb::get, "/v1/things/a%2Fb%zz%4").parameters,
            std::vector<std::string>{"a/b%zz%4"});
  const Router::Match cancel = router.match(http::verb::post, "/v1/things/x/cancel");
  ASSERT_NE(cancel.route, nullptr);
  EXPECT_EQ(cancel.parameters, std::vector<std::string>{"x"});
  EXPECT_EQ(cancel.pattern, "/v1/things/{id}/cancel");
  EXPECT_EQ(router.match(http::verb::get, "/v1/models/org/name.gguf").parameters,
            std::vector<std::string>{"org/name.gguf"});
}

}  // namespace
}  // namespace loci
