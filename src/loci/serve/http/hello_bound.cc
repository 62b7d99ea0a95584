// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/hello_bound.h"

namespace loci {

bool HelloBound::take(std::span<const char> bytes, bool is_tls13) {
  for (std::size_t i = 0; i < bytes.size() && !is_over_; ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (record_head_ < kRecordHead) {
      if (record_head_ == 0) {
        // A hello in SSL 2's form, of which the length is elsewhere: no client has sent one for years.
        if ((byte & 0x80) != 0) return false;
        record_type_ = byte;
        is_over_ = byte == kChangeCipher && !is_tls13;
      }
      record_left_ = record_head_ >= 3 ? record_left_ << 8 | byte : 0;
      ++record_head_;
    } else {
      --record_left_;
      if (record_type_ == kHandshake && !take_content(byte)) return false;
    }
    if (record_head_ == kRecordHead && record_left_ == 0) record_head_ = 0;
  }
  return true;
}

bool HelloBound::take_content(std::uint8_t byte) {
  if (message_head_ < kMessageHead) {
    message_left_ = message_head_ == 0 ? 0 : message_left_ << 8 | byte;
    if (++message_head_ == kMessageHead && message_left_ > kMessageBytesMax) return false;
  } else {
    --message_left_;
  }
  if (message_head_ == kMessageHead && message_left_ == 0) {
    message_head_ = 0;
    has_message_ = true;
  }
  return true;
}

}  // namespace loci
