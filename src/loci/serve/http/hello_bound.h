// SPDX-License-Identifier: Apache-2.0
// Bounds the messages of a client's side of a TLS handshake. OpenSSL takes memory for as many bytes as a
// message's head says that it has, up to 128 KiB for a ClientHello, before it knows who the client is. A real
// one has 4 KiB at most.
//
// It reads what OpenSSL reads, in step with it, as long as that is not encrypted:
//
//     record    type, version (2 bytes), length (2), content
//     content   of records of type handshake, one behind the other: messages of type (1), length (3), body
//
// A message may lie in several records, even its head. Records of other types are skipped by their length:
// OpenSSL goes on behind an alert that is only a warning, and behind early data that it has no use for. What
// TLS 1.3 encrypts is of type application data and skipped, too; TLS 1.2 hides its messages behind the record
// that says that the cipher changes, where this ends. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace loci {

class HelloBound {
 public:
  // What OpenSSL has room for from the start.
  static constexpr std::uint32_t kMessageBytesMax = (16 << 10) - 4;

  // What OpenSSL read next. `is_tls13`: it has agreed on TLS 1.3 with the client by now; only there a client
  // goes on in the clear behind the record that says that the cipher changes. False: a message is too long
  // (or the hello is one of SSL 2), and OpenSSL must not see what was read.
  bool take(std::span<const char> bytes, bool is_tls13);
  // True: the first message has come whole, the hello.
  bool has_message() const { return has_message_; }

 private:
  enum RecordType : std::uint8_t { kChangeCipher = 20, kHandshake = 22 };
  static constexpr std::size_t kRecordHead = 5, kMessageHead = 4;

  bool take_content(std::uint8_t byte);

  std::size_t record_head_ = 0;  // bytes of it that have come
  std::uint8_t record_type_ = 0;
  std::uint32_t record_left_ = 0;
  std::size_t message_head_ = 0;
  std::uint32_t message_left_ = 0;
  bool is_over_ = false;  // what follows is encrypted by TLS 1.2
  bool has_message_ = false;
};

}  // namespace loci
