// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "loci/base/ascii.h"

namespace loci {
namespace {

constexpr std::size_t kTextMax = 200;

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// It goes into logs.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, kTextMax));
  std::replace_if(out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return out;
}

std::string unescaped(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 5> kNamed = {
      {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
  std::string out;
  while (!text.empty()) {
    const auto* const found = std::find_if(kNamed.begin(), kNamed.end(),
                                           [&](const auto& one) { return text.starts_with(one.first); });
    out += found == kNamed.end() ? text.front() : found->second;
    text.remove_prefix(found == kNamed.end() ? 1 : found->first.size());
  }
  return out;
}

// The text of the first element of that name that has no others in it.
std::string element(std::string_view body, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const std::size_t begin = body.find(open);
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = body.substr(begin + open.size());
  const std::size_t end = rest.find('<');
  if (end == std::string_view::npos || !rest.substr(end).starts_with(fmt::format("</{}>", name))) return "";
  return printable(unescaped(rest.substr(0, std::min(end, 4 * kTextMax))));
}

// "bytes 0-9/100"
void take_range(std::string_view value, S3Head& head) {
  head.first = head.total = std::nullopt;
  if (!value.starts_with("bytes ")) return;
  value.remove_prefix(6);
  const std::size_t hyphen = value.find('-'), slash = value.find('/');
  if (hyphen == std::string_view::npos || slash == std::string_view::npos || slash < hyphen) return;
  head.first = number<std::uint64_t>(value.substr(0, hyphen));
  head.total = number<std::uint64_t>(value.substr(slash + 1));
}

}  // namespace

std::string_view s3_trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

void S3Head::take(std::string_view line) {
  line = s3_trimmed(line);
  if (line.starts_with("HTTP/")) {
    const std::size_t space = line.find(' ');
    *this = {};
    if (space != std::string_view::npos) code = number<std::uint32_t>(line.substr(space + 1, 3)).value_or(0);
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower_ascii(line.substr(0, colon));
  const std::string_view value = s3_trimmed(line.substr(colon + 1));
  if (name == "content-length") length = number<std::uint64_t>(value);
  if (name == "content-range") take_range(value, *this);
  if (name == "date") date = parse_http_date(value);
  if (name == "last-modified") modified = parse_http_date(value);
  if (name == "x-amz-bucket-region") region = printable(value);
}

std::optional<std::int64_t> S3Head::age() const {
  if (!date || !modified) return std::nullopt;
  return *date - *modified;
}

std::string S3Error::text() const {
  if (code.empty() || message.empty()) return code + message;
  return fmt::format("{}: {}", code, message);
}

S3Error parse_s3_error(std::string_view body) {
  const std::size_t begin = body.find("<Error>");
  if (begin == std::string_view::npos) return {};
  body.remove_prefix(begin);
  return {
      .code = element(body, "Code"), .message = element(body, "Message"), .region = element(body, "Region")};
}

std::optional<std::int64_t> parse_http_date(std::string_view text) {
  static constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (text.size() != 29 || text.substr(3, 2) != ", " || text.substr(25) != " GMT" || text[7] != ' ' ||
      text[11] != ' ' || text[16] != ' ' || text[19] != ':' || text[22] != ':')
    return std::nullopt;
  const std::size_t month = kMonths.find(text.substr(8, 3));
  const auto day = number<unsigned>(text.substr(5, 2)), hour = number<unsigned>(text.substr(17, 2)),
             minute = number<unsigned>(text.substr(20, 2)), second = number<unsigned>(text.substr(23, 2));
  const auto year = number<int>(text.substr(12, 4));
  if (month == std::string_view::npos || month % 3 != 0 || !day || !hour || !minute || !second || !year ||
      *year < 0 || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(month / 3 + 1)),
                                         std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86'400 + *hour * 3'600 + *minute * 60 + *second;
}

}  // namespace loci
