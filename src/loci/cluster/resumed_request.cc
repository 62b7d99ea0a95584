// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/resumed_request.h"

#include <fmt/format.h>
#include <sodium.h>

#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "loci/base/hex.h"
#include "loci/cluster/member.h"
#include "loci/serve/tenants/tenants.h"

namespace loci {
namespace {

constexpr std::string_view kPurpose = "reply";

std::string digest_of(std::string_view text) {
  std::array<std::uint8_t, 32> out;
  crypto_generichash(out.data(), out.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     nullptr, 0);
  return to_hex(out);
}

// What is sealed: the values are of this request, by whoever has this key.
std::string sealed_text(const HttpRequest& request, std::string_view values) {
  return fmt::format("{} {}\n{}\n{}", request.method_text, request.target, digest_of(api_key_of(request)),
                     values);
}

template <class Number>
bool is_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

struct Header {
  ResumedReply reply;  // without what was said
  std::size_t bytes = 0;
  std::string_view digest;
};

// Absent: no front of the cluster says anything.
std::optional<Header> read_header(const ReplyKey& key, const HttpRequest& request) {
  constexpr std::size_t kValues = 5;
  const std::string_view header = request.header(kReplyHeader);
  const std::size_t end = header.rfind(' ');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view values = header.substr(0, end);
  std::vector<std::string_view> fields;
  for (std::string_view left = values; fields.size() <= kValues;) {
    const std::size_t space = left.find(' ');
    fields.push_back(left.substr(0, space));
    if (space == std::string_view::npos) break;
    left.remove_prefix(space + 1);
  }
  int again = 0;
  Header out;
  if (fields.size() != kValues || !is_number(fields[1], out.reply.created_at) ||
      !is_number(fields[2], again) || !is_number(fields[3], out.bytes) ||
      !is_sealed(key, kPurpose, sealed_text(request, values), header.substr(end + 1)))
    return std::nullopt;
  out.reply.name = fields[0];
  out.reply.is_again = again != 0;
  out.reply.was_lost = again == 2;
  out.digest = fields[4];
  return out;
}

}  // namespace

std::string random_reply_name() {
  std::array<std::uint8_t, kReplyNameDigits / 2> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return to_hex(bytes);
}

std::string reply_header(const ReplyKey& key, const HttpRequest& request, const ResumedReply& resumed,
                         std::string_view said) {
  const int again = resumed.was_lost ? 2 : resumed.is_again ? 1 : 0;
  const std::string values =
      fmt::format("{} {} {} {} {}", resumed.name, resumed.created_at, again, said.size(), digest_of(said));
  return fmt::format("{}: {} {}\r\n", kReplyHeader, values,
                     seal(key, kPurpose, sealed_text(request, values)));
}

bool LostReplies::take(const HttpRequest& request, std::int64_t now_seconds) {
  const std::optional<Header> header = read_header(key_, request);
  if (!header || !header->reply.was_lost) return false;
  if (std::abs(now_seconds - header->reply.created_at) > kLostBelievedSeconds) return false;
  if (!names_.insert(header->reply.name).second) return false;
  in_order_.push_back(header->reply.name);
  if (in_order_.size() > kNamesMax) {
    names_.erase(in_order_.front());
    in_order_.pop_front();
  }
  return true;
}

std::optional<ResumedReply> take_resumed_reply(const ReplyKey& key, HttpRequest& request) {
  std::optional<Header> header = read_header(key, request);
  if (!header || header->bytes > request.body.size()) return std::nullopt;
  const std::string_view said = std::string_view(request.body).substr(request.body.size() - header->bytes);
  if (digest_of(said) != header->digest) return std::nullopt;
  ResumedReply out = std::move(header->reply);
  if (std::optional<SaidTokens> tokens = read_said(said)) {
    out.prompts = tokens->prompts;
    out.said = std::move(tokens->said);
  }
  request.body.resize(request.body.size() - header->bytes);
  return out;
}

}  // namespace loci
