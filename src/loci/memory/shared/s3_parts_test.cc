// SPDX-License-Identifier: Apache-2.0
// What the store is made of: where it is, who asks, what it says.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_credentials.h"
#include "loci/memory/shared/s3_reply.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loci {
namespace {

using Variables = std::map<std::string, std::string>;

S3Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

TEST(S3Address, Parses) {
  const S3Environment none = environment_of({});
  const S3Address amazon = parse_s3_address("s3://my-bucket/a/b/?region=eu-west-1", none).value();
  EXPECT_EQ(amazon, (S3Address{.bucket = "my-bucket",
                               .prefix = "a/b/",
                               .endpoint = "https://s3.eu-west-1.amazonaws.com",
                               .region = "eu-west-1",
                               .bucket_in_host = true}));
  EXPECT_EQ(amazon.url("loci/1/x"), "https://my-bucket.s3.eu-west-1.amazonaws.com/a/b/loci/1/x");
  EXPECT_EQ(amazon.path("loci/1/x"), "/my-bucket/a/b/loci/1/x");
  const S3Address own = parse_s3_address("s3://bucket?endpoint=http://[::1]:9000/", none).value();
  EXPECT_EQ(
      own,
      (S3Address{.bucket = "bucket", .prefix = "", .endpoint = "http://[::1]:9000", .region = "us-east-1"}));
  EXPECT_EQ(own.url("x"), "http://[::1]:9000/bucket/x");
  EXPECT_EQ(own.shown(), "s3://bucket/?endpoint=http://[::1]:9000&region=us-east-1&style=path");
  // The environment's region; a bucket whose name has dots is no part of a host's name.
  const S3Environment region = environment_of({{"AWS_REGION", "cn-north-1"}, {"AWS_DEFAULT_REGION", "no"}});
  EXPECT_EQ(parse_s3_address("s3://a.b.c/", region).value().url("x"),
            "https://s3.cn-north-1.amazonaws.com.cn/a.b.c/x");
  EXPECT_EQ(parse_s3_address("s3://abc", environment_of({{"AWS_DEFAULT_REGION", "r2"}})).value().region,
            "r2");
  EXPECT_TRUE(parse_s3_address("s3://abc?endpoint=https://h&style=virtual", none).value().bucket_in_host);
}

TEST(S3Address, WrongPartsAreNamed) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"http://h", "expected s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&style=path|virtual]"},
      {"s3://", "expected a bucket's name"},
      {"s3://ab", "expected a bucket's name"},
      {"s3://Capitals", "expected a bucket's name"},
      {"s3://a..b", "expected a bucket's name"},
      {"s3://bucket/a//b", "expected a prefix"},
      {"s3://bucket/../b", "expected a prefix"},
      {"s3://bucket/a b", "expected a prefix"},
      {"s3://bucket/%41", "expected a prefix"},
      {"s3://bucket", "expected ?region=NAME, or AWS_REGION in the environment"},
      {"s3://bucket?region=", "expected a region"},
      {"s3://bucket?region=a:b", "expected a region"},
      {"s3://bucket?endpoint=ftp://h", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://h:0", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://h:70000", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://h/path", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://[::1", "expected endpoint=https://HOST[:PORT]"},
      {"s3://bucket?endpoint=http://10.0.0.7:9000&style=virtual",
       "expected an endpoint with a name of a host, as style=virtual puts the bucket in front of it; found "
       "http://10.0.0.7:9000"},
      {"s3://bucket?endpoint=http://[::1]&style=virtual", "expected an endpoint with a name of a host"},
      {"s3://bucket?style=other", "expected endpoint=URL, region=NAME or style=path|virtual"},
      {"s3://bucket?speed=9", "expected endpoint=URL, region=NAME or style=path|virtual"}};
  for (const auto& [url, expected] : cases) {
    const auto parsed = parse_s3_address(url, environment_of({}));
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_TRUE(parsed.status().message().starts_with(expected)) << url << ": " << parsed.status().message();
  }
}

TEST(S3Address, WhatMayBeASecretIsNotRepeated) {
  for (const char* url :
       {"s3://KEY:hidden@bucket", "s3://KEY:hid/hidden@bucket", "s3://KEY:hidden", "s3://bucket/a@hidden",
        "s3://bucket?endpoint=https://KEY:hidden@h", "s3://bucket?region=r&secret=hidden"}) {
    const auto parsed = parse_s3_address(url, environment_of({}));
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_EQ(parsed.status().message().find("hidden"), std::string::npos) << parsed.status().message();
  }
  EXPECT_NE(parse_s3_address("s3://KEY:x@bucket", environment_of({}))
                .status()
                .message()
                .find("AWS_SECRET_ACCESS_KEY"),
            std::string::npos);
}

TEST(S3Credentials, ComeFromTheEnvironmentOrAFile) {
  const TestFolder folder;
  const std::string path = folder.file("credentials");
  std::ofstream(path) << "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key=first\r\n\n"
                         "[ work ]\naws_access_key_id=two\naws_secret_access_key = se=cond\n"
                         "aws_session_token = token\nregion = elsewhere\n[half]\naws_access_key_id=x\n";
  Variables variables = {{"AWS_SHARED_CREDENTIALS_FILE", path}};
  EXPECT_EQ(find_s3_credentials(environment_of(variables)).value(),
            (S3Credentials{.key_id = "one", .secret = "first", .token = ""}));
  variables["AWS_PROFILE"] = "work";
  EXPECT_EQ(find_s3_credentials(environment_of(variables)).value(),
            (S3Credentials{.key_id = "two", .secret = "se=cond", .token = "token"}));
  variables["AWS_PROFILE"] = "none";
  EXPECT_NE(find_s3_credentials(environment_of(variables)).status().message().find("no profile [none]"),
            std::string::npos);
  variables["AWS_PROFILE"] = "half";
  EXPECT_FALSE(find_s3_credentials(environment_of(variables)).ok());
  variables["AWS_ACCESS_KEY_ID"] = "three";
  EXPECT_FALSE(find_s3_credentials(environment_of(variables)).ok());
  variables["AWS_SECRET_ACCESS_KEY"] = "third";
  EXPECT_EQ(find_s3_credentials(environment_of(variables)).value(),
            (S3Credentials{.key_id = "three", .secret = "third", .token = ""}));
  variables["AWS_SESSION_TOKEN"] = "a\nb: c";
  const Status odd = find_s3_credentials(environment_of(variables)).status();
  EXPECT_EQ(odd.code(), StatusCode::kInvalidArgument) << "it would be a header's line of its own";
  EXPECT_EQ(odd.message().find("third"), std::string::npos);
  const Status none = find_s3_credentials(environment_of({{"HOME", "/nowhere"}})).status();
  EXPECT_NE(none.message().find("/nowhere/.aws/credentials"), std::string::npos) << none.message();
}

TEST(S3Reply, AnAnswersHeaderIsRead) {
  S3Head head;
  for (const char* line :
       {"HTTP/1.1 100 Continue\r\n", "Content-Length: 5\r\n", "HTTP/1.1 206 Partial\r\n",
        "content-range:  bytes 10-19/100 \r\n", "LAST-MODIFIED: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Date: Sun, 06 Nov 1994 09:00:00 GMT\r\n", "\r\n"})
    head.take(line);
  EXPECT_EQ(head.code, 206u);
  EXPECT_FALSE(head.length.has_value()) << "of the interim answer";
  EXPECT_EQ(head.first, 10u);
  EXPECT_EQ(head.object_bytes(), 100u);
  EXPECT_EQ(head.age(), 623);
  head.take("Content-Range: bytes 1-2/*");
  EXPECT_EQ(head.object_bytes(), std::nullopt);
  head.take("HTTP/2 xyz");
  EXPECT_EQ(head.code, 0u);
  EXPECT_EQ(head.age(), std::nullopt);
}

TEST(S3Reply, DatesHaveOneForm) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  EXPECT_EQ(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
  EXPECT_EQ(parse_http_date("Thu, 29 Feb 2024 23:59:60 GMT"), 1709251200);
  for (const char* wrong : {"", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT",
                            "Sun, 06 anN 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
                            "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov -994 08:49:37 GMT"})
    EXPECT_EQ(parse_http_date(wrong), std::nullopt) << wrong;
}

TEST(S3Reply, ErrorsAreRead) {
  const S3Error error = parse_s3_error(
      "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>No &lt;entry&gt;\n&amp; no "
      "more.</Message><Region>eu-west-1</Region></Error>");
  EXPECT_EQ(error.text(), "AccessDenied: No <entry> & no more.");
  EXPECT_EQ(error.region, "eu-west-1");
  EXPECT_EQ(parse_s3_error("<html>").text(), "");
  EXPECT_EQ(parse_s3_error("<Error><Code>A<b>c</b></Code>").text(), "") << "no text alone";
  EXPECT_EQ(parse_s3_error("<Error><Code>Open").text(), "");
  EXPECT_EQ(parse_s3_error("<Error><Code>" + std::string(5000, 'x') + "</Code>").text().size(), 200u);
}

// As the fuzz target, on changed texts that are almost right.
TEST(S3Reply, ChangedTextsDoNoHarm) {
  const std::vector<std::string> texts = {
      "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/737448\r\nDate: Sun, 06 Nov 1994 08:49:37 "
      "GMT\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
      "HTTP/1.1 403 Forbidden\r\n<Error><Code>AccessDenied</Code><Message>&amp;</Message></Error>",
      "bucket/some/prefix?endpoint=https://[::1]:8333&region=eu-north-1&style=virtual",
      "[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\naws_session_token = token\n"};
  Random random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = texts[random.below(texts.size())];
    for (std::uint64_t changes = random.below(4); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random.below(text.size());
      if (random.below(2) == 0)
        text[at] = static_cast<char>(random.below(256));
      else
        text.erase(at, random.below(30));
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace loci
