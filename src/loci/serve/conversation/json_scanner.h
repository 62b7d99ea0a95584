// SPDX-License-Identifier: Apache-2.0
// Reads one JSON value byte by byte: says where it ends, and where it stops being JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace loci {

inline bool is_json_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

// Thread-compatible; bounded memory (nesting is limited).
class JsonScanner {
 public:
  static constexpr std::size_t kDepthMax = 64;

  enum class Step : std::uint8_t {
    kMore,     // the byte belongs to the value, which goes on
    kEnd,      // the byte is the value's last
    kBefore,   // the value (a number) had ended before the byte, which is not part of it
    kInvalid,  // no JSON value goes on like this
  };

  // Nothing may follow kEnd, kBefore or kInvalid.
  Step push(char byte);

  // The text so far is a whole value: a number, which nothing else ends.
  bool complete() const { return state_ == State::kNumber && depth() == 0 && number_may_end_; }
  std::size_t depth() const { return nesting_.size(); }
  bool in_string() const { return state_ >= State::kString; }

 private:
  enum class State : std::uint8_t {
    kValue,         // a value must come
    kValueOrClose,  // after '['
    kKeyOrClose,    // after '{'
    kKey,           // after ',' in an object
    kColon,
    kComma,  // after a value inside of something
    kNumber,
    kLiteral,
    kString,
    kEscape,
    kHex,
  };

  Step value(char byte);
  Step number(char byte);
  Step string(char byte);
  Step close(char byte);
  Step value_ended();

  State state_ = State::kValue;
  std::string nesting_;  // '{' and '['
  bool string_is_key_ = false;
  bool number_may_end_ = false;
  std::uint8_t number_part_ = 0;
  std::uint8_t hex_left_ = 0;
  std::string_view literal_;  // what is left of true, false, null
};

// What stands for `byte` inside a JSON string: a control character, which models write raw, is escaped.
void append_string_byte(char byte, std::string& out);

}  // namespace loci
