// SPDX-License-Identifier: Apache-2.0
#include "loci/server/trace_headers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

std::string error_of(std::string_view text) { return parse_trace_headers(text).status().message(); }

TEST(TraceHeadersTest, AFileHasOneOnEachLine) {
  const Result<TraceHeaders> headers = parse_trace_headers(
      "# of the collector\r\nAuthorization:  Basic c2VjcmV0Og==\t\r\n\n  \nx-team:a:b, c\nX-Empty:\n");
  ASSERT_TRUE(headers.ok()) << headers.status().to_string();
  EXPECT_EQ(*headers,
            (TraceHeaders{{"Authorization", "Basic c2VjcmV0Og=="}, {"x-team", "a:b, c"}, {"X-Empty", ""}}));
  EXPECT_TRUE(parse_trace_headers("")->empty());
}

TEST(TraceHeadersTest, ErrorsNameTheLineAndShowNothingOfIt) {
  EXPECT_EQ(error_of("X-A: 1\nhidden"), "line 2: expected NAME: VALUE, found no colon");
  for (const char* text : {": hidden", "hidden name: x", " hidden: x", "hid\tden: x", "hidd\xc3\xa9n: x",
                           "hidden : x", "hid(den): x"})
    EXPECT_TRUE(error_of(text).starts_with("line 1: expected a header's name of letters")) << error_of(text);
  for (const std::string text :
       {"X: hid\rden", "X: hidden\r\r\n", "X: hidd\xc3\xa9n", "X: hid\x7f", "X: hid\x01", "X: \x1b[2Jhidden"})
    EXPECT_TRUE(error_of(text).starts_with("line 1: expected a header's value")) << error_of(text);
  EXPECT_TRUE(error_of(std::string("X: hid\0den", 10)).starts_with("line 1: expected a header's value"));
  for (const char* text : {": hidden", "hidden", "hidden name: x", "X: hid\rden"})
    EXPECT_EQ(error_of(text).find("hid"), std::string::npos) << error_of(text);
}

// With two of them a proxy and the collector might each find another end of the request.
TEST(TraceHeadersTest, WhatTheExporterSetsItselfIsRefused) {
  for (const char* name : {"Content-Length", "content-length", "Transfer-Encoding", "Host", "CONNECTION",
                           "Content-Type", "Content-Encoding", "Expect", "TE", "Trailer", "Upgrade"})
    EXPECT_EQ(check_trace_header(name, "1").message(),
              std::string("expected a header beside the exporter's own, found ") + name);
  EXPECT_TRUE(check_trace_header("X-Scope-OrgID", "tenant 1").ok());
}

TEST(TraceHeadersTest, TheirNumberIsBounded) {
  std::string text;
  for (std::size_t i = 0; i < kTraceHeadersMax; ++i) text += "X: 1\n";
  EXPECT_EQ(parse_trace_headers(text)->size(), kTraceHeadersMax);
  EXPECT_EQ(error_of(text + "X: 1\n"), "line 65: expected at most 64 headers");
}

TEST(TraceHeadersTest, TheFileIsItsOwnersAlone) {
  const TestFolder folder;
  const std::string path = folder.file("headers");
  const auto error = [&path] {
    const Status status = read_trace_headers(path).status();
    EXPECT_EQ(status.field(), "trace_headers");
    return status.message();
  };
  EXPECT_EQ(error(), path + " is not there");
  std::ofstream(path) << "Authorization: Bearer hidden\n";
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(error(),
            path + ": expected mode 0600, so that its owner alone reads it, found 0640; chmod 600 " + path);
  for (const mode_t mode : {0600, 0400}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(*read_trace_headers(path), (TraceHeaders{{"Authorization", "Bearer hidden"}}));
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "# none\n";
  EXPECT_EQ(error(), path + ": expected lines such as Authorization: Bearer KEY, found none");
  std::ofstream(path) << "hidden\n";
  EXPECT_EQ(error(), path + ": line 1: expected NAME: VALUE, found no colon");
  std::filesystem::resize_file(path, kTraceHeadersBytesMax + 1);
  EXPECT_EQ(error(), path + ": expected an ordinary file of at most 8192 bytes, found 8193 bytes");
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(error(), path + ": expected an ordinary file of at most 8192 bytes, found another kind");
}

}  // namespace
}  // namespace loci
