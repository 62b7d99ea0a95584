// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/servegen.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/draws.h"
#include "loci/sim/fields.h"
#include "loci/sim/json_text.h"
#include "loci/sim/trace_line.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr double kRateMax = 1e6;
constexpr double kShapeMin = 0.01, kShapeMax = 100;
constexpr double kOnlyStep = 600;  // seconds, where a client has one

// --- reading ---

bool is_number(const Json& json, double least, double most) {
  return json.is_number() && json.get<double>() >= least && json.get<double>() <= most;
}

// [start_s, requests_per_s, cv_of_gaps, family, shape, scale]
void read_step(const Json& row, const std::string& name, double least, Fields& fields,
               ServegenClient& client) {
  const auto expect = [&](bool right, const char* expected) {
    if (!right) fields.wrong(name, expected, shown(row));
    return right;
  };
  if (!expect(row.is_array() && row.size() == 6,
              "[start_s, requests_per_s, cv_of_gaps, family, shape, scale]"))
    return;
  if (!expect(is_number(row[0], 0, kTraceSecondsMax) && row[0].get<double>() > least,
              "seconds from 0 to 10^9, later than the row before"))
    return;
  if (!expect(is_number(row[1], 0, kRateMax), "0 to 10^6 requests a second")) return;
  ServegenStep step{.start = row[0].get<double>(), .rate = row[1].get<double>()};
  if (step.rate > 0) {
    if (!expect(row[3] == "Gamma" || row[3] == "Weibull",
                "the family Gamma or Weibull where there is a rate"))
      return;
    if (!expect(is_number(row[4], kShapeMin, kShapeMax), "a shape from 0.01 to 100")) return;
    step.family = row[3] == "Gamma" ? GapFamily::kGamma : GapFamily::kWeibull;
    step.shape = row[4].get<double>();
  }
  client.steps.push_back(step);
}

void read_lengths(const Json& window, const std::string& name, const char* which, Fields& fields,
                  ServegenLengths& lengths) {
  const auto list = window.find(which);
  const std::string field = name + "." + which;
  if (list == window.end() || !list->is_array())
    return fields.wrong(field, "a list of [tokens, probability]",
                        list == window.end() ? "nothing" : shown(*list));
  double sum = 0;
  for (const Json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2 || !is_number(pair[0], 1, kTraceTokensMax) ||
        pair[0].get<double>() != std::floor(pair[0].get<double>()) || !is_number(pair[1], 0, 1))
      return fields.wrong(
          field,
          fmt::format("[tokens, probability], a whole number from 1 to {} and 0 to 1", kTraceTokensMax),
          shown(pair));
    lengths.tokens.push_back(static_cast<std::uint32_t>(pair[0].get<double>()));
    lengths.upto.push_back(sum += pair[1].get<double>());
  }
  if (!lengths.tokens.empty() && sum <= 0) fields.wrong(field, "probabilities above 0", "none");
}

void read_windows(Fields& fields, ServegenClient& client) {
  const Json& windows = fields.raw("windows");
  if (!windows.is_object()) return fields.wrong("windows", "an object", windows.type_name());
  for (const auto& [key, json] : windows.items()) {
    ServegenWindow window;
    const char* const end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data(), end, window.start);
    if (error != std::errc{} || rest != end || !(window.start >= 0 && window.start <= kTraceSecondsMax))
      return fields.wrong("windows", "names that are seconds from 0 to 10^9", "'" + key.substr(0, 40) + "'");
    const std::string name = fmt::format("windows.{}", key);
    if (!json.is_object()) return fields.wrong(name, "an object", json.type_name());
    read_lengths(json, name, "input_tokens", fields, window.prompts);
    read_lengths(json, name, "output_tokens", fields, window.replies);
    client.windows.push_back(std::move(window));
  }
  std::ranges::sort(client.windows, {}, &ServegenWindow::start);
}

// The window of a time; nothing: it is before the first.
const ServegenWindow* window_at(const ServegenClient& client, double time) {
  const auto after = std::ranges::upper_bound(client.windows, time, {}, &ServegenWindow::start);
  return after == client.windows.begin() ? nullptr : &*std::prev(after);
}

ServegenClient read_client(Fields& fields, const Status& status) {
  ServegenClient client;
  fields.read("model", client.model);
  const Json& steps = fields.raw("trace");
  if (!steps.is_array() || steps.empty()) {
    fields.wrong("trace", "a list with at least one row", fields.has("trace") ? shown(steps) : "nothing");
    return client;
  }
  double last = -1;
  for (std::size_t i = 0; i < steps.size() && status.ok(); ++i) {
    read_step(steps[i], fmt::format("trace[{}]", i), last, fields, client);
    if (status.ok()) last = client.steps.back().start;
  }
  read_windows(fields, client);
  for (std::size_t i = 0; i < client.steps.size() && status.ok(); ++i) {
    if (client.steps[i].rate == 0) continue;
    const ServegenWindow* const window = window_at(client, client.steps[i].start);
    if (window == nullptr || window->prompts.tokens.empty() || window->replies.tokens.empty())
      fields.wrong(fmt::format("trace[{}]", i), "lengths in the window of its time where there is a rate",
                   "none");
  }
  return client;
}

// --- drawing ---

double end_of(const ServegenClient& client, std::size_t step) {
  const std::vector<ServegenStep>& steps = client.steps;
  if (step + 1 < steps.size()) return steps[step + 1].start;
  return steps[step].start + (step > 0 ? steps[step].start - steps[step - 1].start : kOnlyStep);
}

// A gap with the mean 1.
double unit_gap(Random& random, const ServegenStep& step) {
  if (step.family == GapFamily::kGamma) return draw_gamma(random, step.shape) / step.shape;
  return std::pow(-std::log(1 - random.unit()), 1 / step.shape) / std::tgamma(1 + 1 / step.shape);
}

std::uint32_t drawn_length(Random& random, const ServegenLengths& lengths) {
  const double at = random.unit() * lengths.upto.back();
  const auto found = std::upper_bound(lengths.upto.begin(), lengths.upto.end(), at) - lengths.upto.begin();
  return lengths.tokens[std::min(static_cast<std::size_t>(found), lengths.tokens.size() - 1)];
}

// The arrivals of a client, one after another. The client must outlive it.
class Arrivals {
 public:
  Arrivals(const ServegenClient& client, double from, Random random)
      : client_(&client), random_(random), at_(from) {
    while (step_ < client.steps.size() && end_of(client, step_) <= from) ++step_;
    if (step_ < client.steps.size()) at_ = std::max(at_, client.steps[step_].start);
  }
  // When the next request comes, in the data's time; absent: none does.
  std::optional<double> next() {
    skip_to_rate();
    if (step_ == client_->steps.size()) return std::nullopt;
    for (double left = unit_gap(random_, client_->steps[step_]);;) {
      const double rate = client_->steps[step_].rate, end = end_of(*client_, step_);
      const double here = rate * (end - at_);
      if (left < here) return at_ = std::min(end, at_ + left / rate);
      left -= here;
      at_ = end;
      ++step_;
      skip_to_rate();
      if (step_ == client_->steps.size()) return std::nullopt;
    }
  }
  // Lengths of the request that next() gave last.
  std::uint32_t prompt() { return drawn_length(random_, window().prompts); }
  std::uint32_t reply() { return drawn_length(random_, window().replies); }

 private:
  void skip_to_rate() {
    const std::vector<ServegenStep>& steps = client_->steps;
    while (step_ < steps.size() && steps[step_].rate == 0) ++step_;
    if (step_ < steps.size()) at_ = std::max(at_, steps[step_].start);
  }
  // Of the step's beginning: that one has lengths.
  const ServegenWindow& window() const { return *window_at(*client_, client_->steps[step_].start); }

  const ServegenClient* client_;
  Random random_;
  std::size_t step_ = 0;
  double at_ = 0;
};

double expected_requests(const ServegenClient& client, double from) {
  double sum = 0;
  for (std::size_t i = 0; i < client.steps.size(); ++i)
    sum += client.steps[i].rate * std::max(0.0, end_of(client, i) - std::max(from, client.steps[i].start));
  return sum;
}

Status check(const std::vector<ServegenClient>& clients, const std::string& name, const ServegenDraw& draw) {
  const auto wrong = [&](const char* field, const std::string& expected, const std::string& found) {
    return invalid_argument(fmt::format("{}: {}: expected {}, found {}", name, field, expected, found),
                            field);
  };
  std::set<std::string> models;
  double expected = 0;
  for (const ServegenClient& client : clients) {
    models.insert(client.model);
    if (draw.model.empty() || draw.model == client.model) expected += expected_requests(client, draw.from_s);
  }
  if (!draw.model.empty() && !models.contains(draw.model))
    return wrong("trace.model", fmt::format("one of {}", joined(models)), "'" + draw.model + "'");
  if (draw.requests == 0 && expected > static_cast<double>(kTraceRequestsMax))
    return wrong("trace.requests", fmt::format("how many to draw, at most {}", kTraceRequestsMax),
                 fmt::format("nothing, and rates that make some {:.3g}", expected));
  return {};
}

Turn request_of(double at, std::uint64_t content, Arrivals& of) {
  Turn turn;
  turn.at = turn.noted = static_cast<Nanos>(std::llround(at * 1e9));
  turn.pieces = {{content, of.prompt()}};
  turn.reply_tokens = of.reply();
  return turn;
}

}  // namespace

Result<std::vector<ServegenClient>> parse_servegen(const std::string& text, const std::string& name) {
  std::vector<ServegenClient> clients;
  LOCI_RETURN_IF_ERROR(each_trace_line(text, name, [&](const TraceLine& line) -> Status {
    Status status;
    Fields fields(line.json(), line.place().text(), "", status);
    clients.push_back(read_client(fields, status));
    return status;
  }));
  return clients;
}

Result<Trace> draw_servegen(const std::vector<ServegenClient>& clients, const std::string& name,
                            const ServegenDraw& draw) {
  LOCI_RETURN_IF_ERROR(check(clients, name, draw));
  Trace trace;
  trace.name = name;
  std::vector<Arrivals> arrivals;
  using Due = std::pair<double, std::uint32_t>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> next;
  std::uint64_t taking = 0;
  for (std::uint32_t c = 0; c < clients.size(); ++c) {
    // Of its own, so that a client's requests do not depend on which others are taken.
    arrivals.emplace_back(clients[c], draw.from_s, Random(mix64(draw.seed) ^ mix64(c + 1)));
    if (!draw.model.empty() && draw.model != clients[c].model) continue;
    ++taking;
    if (const std::optional<double> at = arrivals[c].next()) next.emplace(*at, c);
  }
  const std::uint64_t most = draw.requests > 0 ? draw.requests : kTraceRequestsMax;
  while (!next.empty() && trace.conversations.size() < most) {
    const auto [at, c] = next.top();
    next.pop();
    const std::uint64_t content = mix64(mix64(draw.seed) ^ trace.conversations.size());
    trace.conversations.push_back({{request_of(at - draw.from_s, content, arrivals[c])}, c});
    if (const std::optional<double> later = arrivals[c].next()) next.emplace(*later, c);
  }
  if (trace.conversations.empty())
    return invalid_argument(
        fmt::format("{}: trace.from_s: expected a time with requests after it, found {:g}", name,
                    draw.from_s),
        "trace.from_s");
  trace.notes.push_back(fmt::format(
      "{} requests of {} clients, drawn from the data's rates and distributions of lengths from {:g} s on; "
      "lengths of a prompt and its reply are drawn independently, and no two prompts have anything in common",
      trace.conversations.size(), taking, draw.from_s));
  return trace;
}

}  // namespace loci::sim
