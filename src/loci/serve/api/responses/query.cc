// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/percent.h"

namespace loci {
namespace {

constexpr std::uint32_t kPageItemsMax = 100;

// '+' is a blank.
std::string decoded(std::string_view text) {
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '+', ' ');
  return percent_decoded(plain);
}

std::string excerpt(std::string_view value) { return json_excerpt(Json(value)); }

std::optional<std::uint64_t> as_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Query::Query(std::string_view target) {
  const std::size_t begin = target.find('?');
  if (begin == std::string_view::npos) return;
  target.remove_prefix(begin + 1);
  target = target.substr(0, target.find('#'));
  while (!target.empty()) {
    const std::string_view pair = target.substr(0, target.find('&'));
    target.remove_prefix(std::min(target.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    const std::string_view value = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
    if (!pair.empty()) values_.emplace_back(decoded(pair.substr(0, equals)), decoded(value));
  }
}

std::optional<std::string_view> Query::value(std::string_view name) const {
  for (auto pair = values_.rbegin(); pair != values_.rend(); ++pair) {
    if (pair->first == name) return pair->second;
  }
  return std::nullopt;
}

Result<ItemPage> read_page(const Query& query) {
  ItemPage page{.after = {}, .limit = 20, .newest_first = true};
  if (const auto after = query.value("after")) page.after = *after;
  if (const auto limit = query.value("limit")) {
    const std::optional<std::uint64_t> number = as_number(*limit);
    if (!number || *number < 1 || *number > kPageItemsMax) {
      return invalid_argument(
          fmt::format("expected an integer from 1 to {}; got {}", kPageItemsMax, excerpt(*limit)), "limit");
    }
    page.limit = static_cast<std::uint32_t>(*number);
  }
  if (const auto order = query.value("order")) {
    if (*order != "asc" && *order != "desc")
      return invalid_argument(fmt::format("expected asc or desc; got {}", excerpt(*order)), "order");
    page.newest_first = *order == "desc";
  }
  return page;
}

Result<ResponseQuery> read_response_query(const Query& query) {
  ResponseQuery out;
  if (const auto stream = query.value("stream")) {
    if (*stream != "true" && *stream != "false")
      return invalid_argument(fmt::format("expected true or false; got {}", excerpt(*stream)), "stream");
    out.stream = *stream == "true";
  }
  if (const auto after = query.value("starting_after")) {
    const std::optional<std::uint64_t> number = as_number(*after);
    if (!number || *number >= std::uint64_t{1} << 32) {
      return invalid_argument(fmt::format("expected the number of an event; got {}", excerpt(*after)),
                              "starting_after");
    }
    if (!out.stream) return invalid_argument("is only allowed where stream is true", "starting_after");
    out.first_event = *number + 1;
  }
  return out;
}

}  // namespace loci
