// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/resumed_request.h"

#include <fmt/format.h>
#include <sodium.h>

#include <charconv>
#include <utility>
#include <vector>

#include "loci/base/hex.h"
#include "loci/cluster/member.h"

namespace loci {
namespace {

constexpr std::string_view kPurpose = "reply";

// What is sealed: the values are of this request and of these bytes.
std::string sealed_text(const HttpRequest& request, std::string_view values, std::string_view said) {
  return fmt::format("{} {}\n{}\n{}", request.method_text, request.target, values, said);
}

template <class Number>
bool is_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string random_reply_name() {
  std::array<std::uint8_t, kReplyNameDigits / 2> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return to_hex(bytes);
}

std::string reply_header(const ReplyKey& key, const HttpRequest& request, const ResumedReply& resumed,
                         std::string_view said) {
  const std::string values =
      fmt::format("{} {} {} {}", resumed.name, resumed.created_at, resumed.is_again ? 1 : 0, said.size());
  return fmt::format("{}: {} {}\r\n", kReplyHeader, values,
                     seal(key, kPurpose, sealed_text(request, values, said)));
}

std::optional<ResumedReply> take_resumed_reply(const ReplyKey& key, HttpRequest& request) {
  const std::string_view header = request.header(kReplyHeader);
  const std::size_t end = header.rfind(' ');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view values = header.substr(0, end);
  std::vector<std::string_view> fields;
  for (std::string_view left = values; fields.size() < 5;) {
    const std::size_t space = left.find(' ');
    fields.push_back(left.substr(0, space));
    if (space == std::string_view::npos) break;
    left.remove_prefix(space + 1);
  }
  std::size_t bytes = 0;
  int again = 0;
  ResumedReply out;
  if (fields.size() != 4 || !is_number(fields[1], out.created_at) || !is_number(fields[2], again) ||
      !is_number(fields[3], bytes) || bytes > request.body.size())
    return std::nullopt;
  const std::string_view said = std::string_view(request.body).substr(request.body.size() - bytes);
  if (!is_sealed(key, kPurpose, sealed_text(request, values, said), header.substr(end + 1)))
    return std::nullopt;
  out.name = fields[0];
  out.is_again = again != 0;
  if (std::optional<SaidTokens> tokens = read_said(said)) {
    out.prompts = tokens->prompts;
    out.said = std::move(tokens->said);
  }
  request.body.resize(request.body.size() - bytes);
  return out;
}

}  // namespace loci
