// SPDX-License-Identifier: Apache-2.0
// Traces that are tables with commas and a header: arrivals and lengths, without contents.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/fields.h"
#include "loci/sim/trace_line.h"
#include "loci/sim/trace_readers.h"

namespace loci::sim {
namespace {

std::string in_quotes(std::string_view text) { return "'" + std::string(text.substr(0, 40)) + "'"; }

// A row, in the order of the columns' names.
class Row {
 public:
  Row(std::span<const std::string_view> columns, const TracePlace& place)
      : columns_(columns), place_(place) {}

  Status parse(std::string_view text) {
    cells_.clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      cells_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    if (cells_.size() == columns_.size()) return {};
    return place_.wrong("line", fmt::format("{} cells, {}", columns_.size(), joined(columns_)),
                        fmt::format("{}", cells_.size()));
  }
  bool is_header() const { return std::equal(cells_.begin(), cells_.end(), columns_.begin()); }
  std::string_view cell(std::size_t column) const { return cells_[column]; }
  Status wrong(std::size_t column, std::string_view expected) const {
    return place_.wrong(columns_[column], expected, in_quotes(cells_[column]));
  }
  Result<std::uint32_t> count(std::size_t column, std::uint32_t least, std::uint32_t most) const {
    const std::string_view cell = cells_[column];
    std::uint32_t value = 0;
    const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || rest != cell.data() + cell.size() || value < least || value > most)
      return wrong(column, fmt::format("a whole number from {} to {}", least, most));
    return value;
  }

 private:
  std::span<const std::string_view> columns_;
  const TracePlace& place_;
  std::vector<std::string_view> cells_;
};

// Calls `take` for each row behind the header.
template <class Take>
Status each_row(const std::string& text, const std::string& name, std::span<const std::string_view> columns,
                const Take& take) {
  bool began = false;
  LOCI_RETURN_IF_ERROR(each_text_line(text, name, [&](std::string_view content, const TracePlace& place) {
    Row row(columns, place);
    const Status parsed = row.parse(content);
    if (std::exchange(began, true)) return parsed.ok() ? take(row) : parsed;
    if (parsed.ok() && row.is_header()) return Status();
    return place.wrong("header", in_quotes(fmt::format("{}", fmt::join(columns, ","))), in_quotes(content));
  }));
  return {};
}

// Adds a request that has nothing in common with any other.
void add_request(Trace& trace, Nanos at, std::uint32_t prompt, std::uint32_t reply,
                 std::optional<std::uint32_t> client) {
  Turn turn;
  turn.at = turn.noted = at;
  turn.pieces = {{mix64(trace.conversations.size()), prompt}};
  turn.reply_tokens = reply;
  trace.conversations.push_back({{std::move(turn)}, client});
}

Result<Trace> whole(Trace trace) {
  trace.notes.emplace_back(
      "the data does not say what prompts have in common; here they have nothing, so none is reused");
  if (!trace.conversations.empty()) return trace;
  return invalid_argument(trace.name + ": expected at least one request, found none", "file");
}

// The next whole number of `text` of so many digits, which it takes off.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  int value = 0;
  if (text.size() < digits) return std::nullopt;
  for (const char digit : text.substr(0, digits)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + (digit - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take_mark(std::string_view& text, char mark) {
  if (text.empty() || text.front() != mark) return false;
  text.remove_prefix(1);
  return true;
}

struct Moment {
  std::int64_t seconds = 0;  // since 1970
  Nanos beyond = 0;
};

// "2023-11-16 18:15:46.6805900", with up to nine digits behind the point, or none.
std::optional<Moment> parse_moment(std::string_view text) {
  const std::array<std::pair<std::size_t, char>, 6> kParts = {
      {{4, '-'}, {2, '-'}, {2, ' '}, {2, ':'}, {2, ':'}, {2, '.'}}};
  std::array<int, 6> numbers{};
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    const std::optional<int> number = take_number(text, kParts[i].first);
    if (!number) return std::nullopt;
    numbers[i] = *number;
    const bool last = i + 1 == kParts.size();
    if (last && text.empty()) break;
    if (!take_mark(text, kParts[i].second) || text.empty()) return std::nullopt;
  }
  const std::chrono::year_month_day day{std::chrono::year(numbers[0]),
                                        std::chrono::month(static_cast<unsigned>(numbers[1])),
                                        std::chrono::day(static_cast<unsigned>(numbers[2]))};
  if (!day.ok() || numbers[3] > 23 || numbers[4] > 59 || numbers[5] > 59) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  Moment moment{.seconds = ((days * 24 + numbers[3]) * 60 + numbers[4]) * 60 + numbers[5]};
  if (text.empty()) return moment;
  const std::size_t digits = text.size();
  const std::optional<int> part = digits > 9 ? std::nullopt : take_number(text, digits);
  if (!part) return std::nullopt;
  moment.beyond = *part;
  for (std::size_t i = digits; i < 9; ++i) moment.beyond *= 10;
  return moment;
}

}  // namespace

Result<Trace> parse_azure(const std::string& text, const std::string& name) {
  static constexpr std::array<std::string_view, 3> kColumns = {"TIMESTAMP", "ContextTokens",
                                                               "GeneratedTokens"};
  Trace trace;
  trace.name = name;
  std::optional<Moment> begin;
  Nanos last = 0;
  LOCI_RETURN_IF_ERROR(each_row(text, name, kColumns, [&](const Row& row) -> Status {
    const std::optional<Moment> moment = parse_moment(row.cell(0));
    if (!moment) return row.wrong(0, "a time as 2023-11-16 18:15:46.6805900");
    if (!begin) begin = moment;
    const std::int64_t seconds = moment->seconds - begin->seconds;
    if (seconds > static_cast<std::int64_t>(kTraceSecondsMax) - 1)
      return row.wrong(0, "a time less than 10^9 s after the first row's");
    const Nanos at = seconds < 0 ? -1 : seconds * kNanosPerSecond + moment->beyond - begin->beyond;
    if (at < last) return row.wrong(0, "times that do not go back");
    last = at;
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t prompt, row.count(1, 1, kTraceTokensMax));
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t reply, row.count(2, 1, kTraceTokensMax));
    add_request(trace, at, prompt, reply, std::nullopt);
    return {};
  }));
  return whole(std::move(trace));
}

Result<Trace> parse_arena(const std::string& text, const std::string& name) {
  static constexpr std::array<std::string_view, 4> kColumns = {"req_time", "client", "prompt_len",
                                                               "output_len"};
  Trace trace;
  trace.name = name;
  Nanos last = 0;
  LOCI_RETURN_IF_ERROR(each_row(text, name, kColumns, [&](const Row& row) -> Status {
    const std::string_view cell = row.cell(0);
    double seconds = 0;
    const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), seconds);
    if (error != std::errc{} || rest != cell.data() + cell.size() || !std::isfinite(seconds) || seconds < 0 ||
        seconds > kTraceSecondsMax)
      return row.wrong(0, "seconds from 0 to 10^9");
    const auto at = static_cast<Nanos>(std::llround(seconds * 1e9));
    if (at < last) return row.wrong(0, "times that do not go back");
    last = at;
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t client, row.count(1, 0, UINT32_MAX));
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t prompt, row.count(2, 1, kTraceTokensMax));
    LOCI_ASSIGN_OR_RETURN(const std::uint32_t reply, row.count(3, 1, kTraceTokensMax));
    add_request(trace, at, prompt, reply, client);
    return {};
  }));
  return whole(std::move(trace));
}

}  // namespace loci::sim
