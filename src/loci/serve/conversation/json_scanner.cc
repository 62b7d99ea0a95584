// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/json_scanner.h"

#include <fmt/format.h>

#include <iterator>

namespace loci {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

// Parts of a number: what may come next.
enum NumberPart : std::uint8_t {
  kSign,
  kZero,
  kInteger,
  kPoint,
  kFraction,
  kExponent,
  kExponentSign,
  kPower
};

}  // namespace

JsonScanner::Step JsonScanner::value_ended() {
  state_ = State::kComma;
  return nesting_.empty() ? Step::kEnd : Step::kMore;
}

JsonScanner::Step JsonScanner::close(char byte) {
  if (byte != '}' && byte != ']') return Step::kInvalid;
  if (nesting_.empty() || nesting_.back() != (byte == '}' ? '{' : '[')) return Step::kInvalid;
  nesting_.pop_back();
  return value_ended();
}

JsonScanner::Step JsonScanner::value(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (nesting_.size() == kDepthMax) return Step::kInvalid;
      nesting_ += byte;
      state_ = byte == '{' ? State::kKeyOrClose : State::kValueOrClose;
      return Step::kMore;
    case '"':
      string_is_key_ = false;
      state_ = State::kString;
      return Step::kMore;
    case 't': literal_ = "rue"; break;
    case 'f': literal_ = "alse"; break;
    case 'n': literal_ = "ull"; break;
    default:
      if (byte != '-' && !is_digit(byte)) return Step::kInvalid;
      state_ = State::kNumber;
      number_part_ = byte == '-' ? kSign : (byte == '0' ? kZero : kInteger);
      number_may_end_ = byte != '-';
      return Step::kMore;
  }
  state_ = State::kLiteral;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::number(char byte) {
  if (is_digit(byte)) {
    if (number_part_ == kZero) return Step::kInvalid;
    if (number_part_ == kSign) number_part_ = byte == '0' ? kZero : kInteger;
    if (number_part_ == kPoint) number_part_ = kFraction;
    if (number_part_ == kExponent || number_part_ == kExponentSign) number_part_ = kPower;
    number_may_end_ = true;
    return Step::kMore;
  }
  const bool whole = number_part_ == kZero || number_part_ == kInteger;
  if (byte == '.' && whole) {
    number_part_ = kPoint;
  } else if ((byte == 'e' || byte == 'E') && (whole || number_part_ == kFraction)) {
    number_part_ = kExponent;
  } else if ((byte == '+' || byte == '-') && number_part_ == kExponent) {
    number_part_ = kExponentSign;
  } else {
    if (!number_may_end_) return Step::kInvalid;
    if (nesting_.empty()) return Step::kBefore;
    state_ = State::kComma;
    return push(byte);
  }
  number_may_end_ = false;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::string(char byte) {
  if (state_ == State::kHex) {
    if (!is_hex(byte)) return Step::kInvalid;
    if (--hex_left_ == 0) state_ = State::kString;
  } else if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return Step::kInvalid;
    state_ = byte == 'u' ? State::kHex : State::kString;
    hex_left_ = 4;
  } else if (byte == '\\') {
    state_ = State::kEscape;
  } else if (byte == '"') {
    if (!string_is_key_) return value_ended();
    state_ = State::kColon;
  }
  return Step::kMore;
}

JsonScanner::Step JsonScanner::push(char byte) {
  if (in_string()) return string(byte);
  if (state_ == State::kNumber) return number(byte);
  if (state_ == State::kLiteral) {
    if (literal_.front() != byte) return Step::kInvalid;
    literal_.remove_prefix(1);
    return literal_.empty() ? value_ended() : Step::kMore;
  }
  if (is_json_space(byte)) return Step::kMore;
  switch (state_) {
    case State::kValueOrClose:
      if (byte == ']') return close(byte);
      return value(byte);
    case State::kKeyOrClose:
      if (byte == '}') return close(byte);
      [[fallthrough]];
    case State::kKey:
      if (byte != '"') return Step::kInvalid;
      string_is_key_ = true;
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      if (byte != ':') return Step::kInvalid;
      state_ = State::kValue;
      return Step::kMore;
    case State::kComma:
      if (byte != ',') return close(byte);
      state_ = nesting_.back() == '{' ? State::kKey : State::kValue;
      return Step::kMore;
    default: return value(byte);
  }
}

void append_string_byte(char byte, std::string& out) {
  switch (byte) {
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(byte) < 0x20)
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(byte));
  else
    out += byte;
}

}  // namespace loci
