// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/hello_bound.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace loci {
namespace {

std::string record(int type, std::string_view content) {
  const auto size = content.size();
  std::string out = {static_cast<char>(type), 3, 1, static_cast<char>(size >> 8), static_cast<char>(size)};
  return out + std::string(content);
}

std::string message(int type, std::size_t size) {
  return std::string({static_cast<char>(type), static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                      static_cast<char>(size)});
}

std::string whole(int type, std::size_t size) { return message(type, size) + std::string(size, '\xff'); }

// In pieces of each size, as OpenSSL reads them.
bool takes(std::string_view bytes, bool is_tls13, std::size_t piece) {
  HelloBound bound;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!bound.take(bytes.substr(at, piece), is_tls13)) return false;
  }
  return true;
}

// The first bytes come before a version is agreed on, the others when TLS 1.3 is.
bool takes_after(std::string_view before, std::string_view bytes, std::size_t piece) {
  HelloBound bound;
  for (std::size_t at = 0; at < before.size(); at += piece) {
    if (!bound.take(before.substr(at, piece), false)) return false;
  }
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!bound.take(bytes.substr(at, piece), true)) return false;
  }
  return true;
}

// Each byte of the content in a record of its own.
std::string crumbled(std::string_view content) {
  std::string out;
  for (const char byte : content) out += record(22, std::string(1, byte));
  return out;
}

TEST(HelloBound, LongMessagesAreRefusedByTheirHeads) {
  constexpr std::size_t kMost = HelloBound::kMessageBytesMax;
  const std::string hello = whole(1, 300);
  for (const std::size_t piece : {1, 5, 7, 1'000, 100'000}) {
    for (const bool is_tls13 : {false, true}) {
      EXPECT_TRUE(takes(record(22, hello), is_tls13, piece));
      EXPECT_TRUE(takes(record(22, hello + hello) + record(22, hello), is_tls13, piece));
      EXPECT_TRUE(takes(record(22, message(1, kMost)), is_tls13, piece));
      EXPECT_FALSE(takes(record(22, message(1, kMost + 1)), is_tls13, piece));
      EXPECT_FALSE(takes(record(22, hello + message(1, 1 << 17)), is_tls13, piece));
      EXPECT_FALSE(takes(crumbled(hello + message(1, 1 << 17)), is_tls13, piece));
      EXPECT_TRUE(takes(crumbled(hello + hello), is_tls13, piece));
      EXPECT_TRUE(takes(record(22, "") + record(22, hello), is_tls13, piece));
      // Data that is no handshake, and what is encrypted.
      EXPECT_TRUE(takes("GET / HTTP/1.1\r\n" + std::string(1'000, '\xff'), is_tls13, piece));
      EXPECT_TRUE(takes(record(22, hello) + record(23, std::string(1'000, '\xff')), is_tls13, piece));
    }
    // Behind a change of the cipher a client of TLS 1.2 encrypts; one of 1.3 may greet once more.
    const std::string changed = record(22, hello) + record(20, "\x01") + record(22, message(1, 1 << 17));
    EXPECT_TRUE(takes(changed, false, piece));
    EXPECT_FALSE(takes(changed, true, piece));
  }
}

// OpenSSL ignores warnings, and early data once it has asked for another hello.
TEST(HelloBound, OtherRecordsHideNoMessage) {
  const std::string hello = record(22, whole(1, 300)), again = record(22, message(1, 0x01fffc));
  const std::string alert = record(21, "\x01\x5a"), early = record(23, std::string(900, '\x16'));
  for (const std::size_t piece : {1, 5, 7, 1'000, 100'000}) {
    for (const bool is_tls13 : {false, true}) {
      EXPECT_FALSE(takes(alert + again, is_tls13, piece)) << piece;
      EXPECT_TRUE(takes(alert + hello, is_tls13, piece)) << piece;
    }
    for (const std::string& between : {alert, early, early + alert + early, record(20, "\x01") + alert}) {
      EXPECT_FALSE(takes_after(hello, between + again, piece)) << piece;
      EXPECT_TRUE(takes_after(hello, between + hello + early, piece)) << piece;
    }
    EXPECT_FALSE(takes(std::string("\x80\x2e\x01\x03\x03", 5) + again, false, piece)) << piece;
  }
}

}  // namespace
}  // namespace loci
