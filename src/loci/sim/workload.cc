// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/draws.h"
#include "loci/sim/fields.h"

namespace loci::sim {
namespace {

constexpr std::uint32_t kFitConversations = 20'000;
constexpr std::uint64_t kFitSeed = 0xf17;

// A time beyond what a trace may have is refused once the trace is drawn (check_times).
Nanos nanos_of(double seconds) { return static_cast<Nanos>(std::min(seconds, 2 * kTraceSecondsMax) * 1e9); }

Nanos think(Random& random, const WorkloadOptions& options) {
  return nanos_of(options.think == "constant" ? options.think_s : draw_exponential(random, options.think_s));
}

// A whole number of at least 1 whose mean is about `mean`.
std::uint32_t length(Random& random, double mean, double sigma) {
  const double drawn = mean * std::exp(sigma * draw_normal(random) - sigma * sigma / 2);
  return static_cast<std::uint32_t>(std::clamp(std::round(drawn), 1.0, 1e6));
}

std::uint32_t turns_of(Random& random, const ConversationShape& shape) {
  const double u = random.unit(), v = 1 - random.unit();
  if (u < shape.single_share) return 1;
  const double beyond = (shape.turns_mean - shape.single_share) / (1 - shape.single_share) - 2;
  if (beyond <= 0) return 2;
  if (shape.turns_sigma > 0) {  // its mean is half a turn less than the log-normal's, by rounding down
    const double sigma = shape.turns_sigma;
    const double drawn = (beyond + 0.5) * std::exp(sigma * draw_normal(random) - sigma * sigma / 2);
    return 2 + static_cast<std::uint32_t>(std::min(1000.0, std::floor(drawn)));
  }
  return 2 + static_cast<std::uint32_t>(
                 std::min(1000.0, std::floor(std::log(v) / std::log(beyond / (1 + beyond)))));
}

struct Drawn {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> turns;  // input, reply
  double tokens = 0;
};

// `level`: the mean of the logarithm of the conversation's factor, and its sigma.
Drawn draw(Random& random, const ConversationShape& shape, double level, double level_sigma) {
  Drawn out;
  const std::uint32_t turns = turns_of(random, shape);
  const double factor = std::exp(level + level_sigma * draw_normal(random));
  for (std::uint32_t i = 0; i < turns; ++i) {
    const std::uint32_t input = length(random, shape.input_mean * factor, shape.sigma);
    const std::uint32_t reply = length(random, shape.reply_mean * factor, shape.sigma);
    out.turns.emplace_back(input, reply);
    out.tokens += input + reply;
  }
  return out;
}

struct Level {
  double mean = 0, sigma = 0;
};

// Conversations of level 1 and their levels' normal deviates: lengths are proportional to the level but for
// rounding, so a fit draws them once.
struct FitSample {
  std::vector<double> tokens, normals;
};

// The share of conversations above a length.
double share_over(const FitSample& sample, double tokens, Level level) {
  std::size_t over = 0;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    over += sample.tokens[i] * std::exp(level.mean + level.sigma * sample.normals[i]) > tokens;
  }
  return static_cast<double>(over) / static_cast<double>(sample.tokens.size());
}

// Bisection: for a sigma, the mean that gives the first share; then the sigma that gives the second.
Level fit(const ConversationShape& shape) {
  if (shape.over_share[0] <= 0) return {-shape.level_sigma * shape.level_sigma / 2, shape.level_sigma};
  Random random(kFitSeed);
  FitSample sample;
  for (std::uint32_t i = 0; i < kFitConversations; ++i) {
    sample.tokens.push_back(draw(random, shape, 0, 0).tokens);
    sample.normals.push_back(draw_normal(random));
  }
  const auto mean_for = [&](double sigma) {
    double low = -6, high = 6;
    for (int i = 0; i < 20; ++i) {
      const double middle = (low + high) / 2;
      const bool less = share_over(sample, shape.over_tokens[0], {middle, sigma}) < shape.over_share[0];
      (less ? low : high) = middle;
    }
    return (low + high) / 2;
  };
  double low = 0, high = 3;
  for (int i = 0; i < 14; ++i) {
    const double middle = (low + high) / 2;
    const bool less =
        share_over(sample, shape.over_tokens[1], {mean_for(middle), middle}) < shape.over_share[1];
    (less ? low : high) = middle;
  }
  return {mean_for((low + high) / 2), (low + high) / 2};
}

struct Statistics {
  double conversations = 0, turns = 0, input = 0, reply = 0, single = 0, over[2] = {};
  std::vector<double> tokens;
};

std::string describe(const ConversationShape& shape, Level level, Statistics& s) {
  std::sort(s.tokens.begin(), s.tokens.end());
  std::string text = fmt::format(
      "conversations: turns {:.2f} a conversation (wanted {:.2f}), {:.1f} % of one turn (wanted {:.1f}); "
      "{:.2f} tokens in and {:.2f} out a turn",
      s.turns / s.conversations, shape.turns_mean, 100 * s.single / s.conversations, 100 * shape.single_share,
      s.input / s.turns, s.reply / s.turns);
  if (shape.over_share[0] > 0) {
    for (int k = 0; k < 2; ++k) {
      text += fmt::format("; {:.1f} % above {:.0f} tokens (wanted {:.1f})", 100 * s.over[k] / s.conversations,
                          shape.over_tokens[k], 100 * shape.over_share[k]);
    }
  } else {
    text += fmt::format(" (wanted {:.2f} and {:.2f})", shape.input_mean, shape.reply_mean);
  }
  text += fmt::format(
      "; median {:.0f} tokens in all; assumed: {} turns, log-normal lengths (sigma {:.2f}) "
      "with a level of each conversation (mean of the logarithm {:.3f}, sigma {:.3f})",
      s.tokens[s.tokens.size() / 2], shape.turns_sigma > 0 ? "log-normal" : "geometric", shape.sigma,
      level.mean, level.sigma);
  return text;
}

Status wrong(const char* field, std::string_view expected, std::string_view found) {
  return invalid_argument(fmt::format("{}: expected {}, found {}", field, expected, found), field);
}

// `factors`: the fields whose product it is.
Status too_many_requests(const char* factors, double found) {
  return wrong("workload.conversations", fmt::format("at most {} requests, {}", kTraceRequestsMax, factors),
               fmt::format("{:.0f}", found));
}

// Where hardly any conversation is as short as it must be.
Status too_few(const WorkloadOptions& options, const Trace& trace, std::uint64_t dropped) {
  return wrong("workload.tokens_max",
               fmt::format("a limit that lets {} conversations be drawn in a hundred times as many tries",
                           options.conversations),
               fmt::format("{}, which {} of {} keep", options.tokens_max, trace.conversations.size(),
                           dropped + trace.conversations.size()));
}

Result<Trace> conversations(const WorkloadOptions& options, const ConversationShape& shape) {
  constexpr const char* kProduct = "conversations times turns";
  const double expected = options.conversations * shape.turns_mean;
  if (expected > static_cast<double>(kTraceRequestsMax)) return too_many_requests(kProduct, expected);
  Trace trace;
  trace.name = options.kind;
  const Level level = fit(shape);
  Random random(options.seed);
  Statistics seen;
  double at = 0;
  std::uint64_t dropped = 0;
  while (trace.conversations.size() < options.conversations) {
    const Drawn drawn = draw(random, shape, level.mean, level.sigma);
    if (options.tokens_max > 0 && drawn.tokens > options.tokens_max) {
      ++dropped;
      if (dropped > 100ull * options.conversations + 100) return too_few(options, trace, dropped);
      continue;
    }
    Conversation talk;
    at += draw_exponential(random, 1 / options.rate);
    for (const auto& [input, reply] : drawn.turns) {
      Turn turn;
      if (talk.turns.empty()) turn.at = nanos_of(at);
      if (!talk.turns.empty()) turn.after = think(random, options);
      turn.pieces = {{random.next(), input}};
      turn.reply_tokens = reply;
      talk.turns.push_back(std::move(turn));
      seen.input += input;
      seen.reply += reply;
    }
    ++seen.conversations;
    seen.turns += static_cast<double>(drawn.turns.size());
    seen.single += drawn.turns.size() == 1;
    for (int k = 0; k < 2; ++k) seen.over[k] += drawn.tokens > shape.over_tokens[k];
    seen.tokens.push_back(drawn.tokens);
    trace.conversations.push_back(std::move(talk));
    if (seen.turns > static_cast<double>(kTraceRequestsMax)) return too_many_requests(kProduct, seen.turns);
  }
  trace.notes.push_back(describe(shape, level, seen));
  trace.notes.push_back(
      fmt::format("{:.2f} % of those drawn were longer than {} tokens and left out",
                  100.0 * static_cast<double>(dropped) / static_cast<double>(dropped + options.conversations),
                  options.tokens_max));
  return trace;
}

// Requests one by one behind one of many contexts (Berkeley §VII-A; HCache §6.4 with a Zipf order).
Trace text_analysis(const WorkloadOptions& options) {
  Trace trace;
  trace.name = options.kind;
  Random random(options.seed);
  std::vector<double> upto;
  double sum = 0;
  for (std::uint32_t i = 0; i < options.contexts; ++i) {
    upto.push_back(sum += 1 / std::pow(static_cast<double>(i + 1), options.zipf));
  }
  double at = 0;
  for (std::uint32_t i = 0; i < options.conversations; ++i) {
    at += draw_exponential(random, 1 / options.rate);
    const double drawn = random.unit() * sum;
    const auto rank =
        static_cast<std::uint64_t>(std::lower_bound(upto.begin(), upto.end(), drawn) - upto.begin());
    Turn turn;
    turn.at = nanos_of(at);
    turn.appends = false;
    turn.pieces = {{mix64(options.seed ^ (rank + 1)), options.context_tokens},
                   {random.next(), options.body_tokens}};
    turn.reply_tokens = options.reply_tokens;
    trace.conversations.push_back({{std::move(turn)}});
  }
  trace.notes.push_back(fmt::format(
      "{} contexts of {} tokens, drawn with Zipf's exponent {}; bodies of {} and replies "
      "of {} tokens",
      options.contexts, options.context_tokens, options.zipf, options.body_tokens, options.reply_tokens));
  return trace;
}

// Tasks one after the other on a document that is a conversation's beginning (AttentionStore §4.3.8). With
// copies the same conversations come again, in the same order (MemServe §8.4, "share ratio").
Result<Trace> documents(const WorkloadOptions& options) {
  const std::uint64_t requests = std::uint64_t{options.conversations} * options.tasks;
  if (requests > kTraceRequestsMax)
    return too_many_requests("conversations times tasks", static_cast<double>(requests));
  Trace trace;
  trace.name = options.kind;
  Random random(options.seed);
  double at = 0;
  const std::uint32_t distinct = (options.conversations + options.copies - 1) / options.copies;
  for (std::uint32_t i = 0; i < options.conversations; ++i) {
    at += draw_exponential(random, 1 / options.rate);
    Conversation talk;
    for (std::uint32_t t = 0; t < options.tasks; ++t) {
      Turn turn;
      if (t == 0) {
        turn.at = nanos_of(at);
        turn.pieces.push_back({random.next(), options.context_tokens});
      } else {
        turn.after = think(random, options);
      }
      turn.pieces.push_back({random.next(), options.body_tokens});
      if (i >= distinct) turn.pieces = trace.conversations[i % distinct].turns[t].pieces;
      turn.reply_tokens = options.reply_tokens;
      talk.turns.push_back(std::move(turn));
    }
    trace.conversations.push_back(std::move(talk));
  }
  trace.notes.push_back(fmt::format("documents of {} tokens, {} tasks each of {} tokens and replies of {}",
                                    options.context_tokens, options.tasks, options.body_tokens,
                                    options.reply_tokens));
  if (options.copies > 1)
    trace.notes.push_back(fmt::format("{} different ones, each {} times", distinct, options.copies));
  return trace;
}

struct KnownShape {
  std::string_view kind;
  ConversationShape shape;
};

// Pensieve table 2; AttentionStore §2.3, §2.4, §4.2 (its tokens in and out are not given: Pensieve's ratio);
// HCache §2.3, §6.1.1 (turns are not given: Pensieve's).
const std::vector<KnownShape>& known_shapes() {
  static const std::vector<KnownShape> kShapes = {
      {"sharegpt-pensieve", {5.56, 0.27, 37.77, 204.58, 0.8, 0.5}},
      {"ultrachat", {3.86, 0.05, 51.78, 257.81, 0.6, 0.3}},
      {"sharegpt-attentionstore", {5.75, 0.27, 37.77, 204.58, 0.8, 0, 0, {2048, 4096}, {0.47, 0.30}}},
      {"sharegpt-attentionstore-lognormal",
       {5.75, 0.27, 37.77, 204.58, 0.8, 0, 1.2, {2048, 4096}, {0.47, 0.30}}},
      {"sharegpt4-hcache", {5.56, 0.05, 66.8, 358.8, 0.8, 0.5}},
  };
  return kShapes;
}

// Workloads of documents or contexts that papers measure with.
struct KnownTexts {
  std::string_view kind, base;  // base: "documents" or "text-analysis"
  std::uint32_t contexts = 128, context_tokens = 1024, body_tokens = 64, reply_tokens = 32, tasks = 1;
  std::string_view from;  // what is published, and what is assumed
};

constexpr std::string_view kAllMeans =
    "HCache table 1: means, rounded; assumed: all are as long, 128 contexts";
constexpr std::array kKnownTexts = {
    KnownTexts{.kind = "l-eval",
               .base = "text-analysis",
               .context_tokens = 16'340,
               .body_tokens = 45,
               .reply_tokens = 50,
               .from = kAllMeans},
    KnownTexts{.kind = "l-eval-paper-assistant",
               .base = "text-analysis",
               .context_tokens = 10'604,
               .body_tokens = 143,
               .reply_tokens = 405,
               .from = kAllMeans},
    KnownTexts{.kind = "l-eval-gsm-100",
               .base = "text-analysis",
               .context_tokens = 5'452,
               .body_tokens = 77,
               .reply_tokens = 4,
               .from = kAllMeans},
    KnownTexts{.kind = "l-eval-quality",
               .base = "text-analysis",
               .context_tokens = 7'054,
               .body_tokens = 92,
               .reply_tokens = 19,
               .from = kAllMeans},
    KnownTexts{.kind = "loogle",
               .base = "documents",
               .context_tokens = 1'000,
               .body_tokens = 24,
               .reply_tokens = 23,
               .tasks = 5,
               .from =
                   "MemServe section 8.2: the first 1K tokens of a document, five questions one after the "
                   "other; assumed: the lengths of questions and answers"},
    KnownTexts{
        .kind = "react",
        .base = "text-analysis",
        .contexts = 1,
        .context_tokens = 1'508,
        .body_tokens = 150,
        .reply_tokens = 100,
        .from = "MemServe section 8.2: HotpotQA behind ReAct's prompt of examples, which has 1,508 tokens; "
                "assumed: single requests, a question and the steps so far, a thought and an action"},
    KnownTexts{
        .kind = "chat",
        .base = "text-analysis",
        .contexts = 1,
        .context_tokens = 256,
        .body_tokens = 38,
        .reply_tokens = 205,
        .from = "Berkeley section VII-B: ShareGPT's inputs behind a system prompt that all share; assumed: "
                "Pensieve's means (table 2) for all, a prompt of 256 tokens"},
};

const KnownTexts* known_texts(std::string_view kind) {
  const auto at = std::ranges::find(kKnownTexts, kind, &KnownTexts::kind);
  return at == kKnownTexts.end() ? nullptr : &*at;
}

Status check(const WorkloadOptions& options) {
  const auto positive = [](double value, const char* field) {
    return std::isfinite(value) && value > 0 && value <= 1e9
               ? Status()
               : wrong(field, "more than 0 and at most 10^9", fmt::format("{}", value));
  };
  LOCI_RETURN_IF_ERROR(positive(options.conversations, "workload.conversations"));
  LOCI_RETURN_IF_ERROR(positive(options.rate, "workload.rate"));
  if (options.conversations > kTraceRequestsMax)
    return wrong("workload.conversations", fmt::format("at most {}", kTraceRequestsMax),
                 std::to_string(options.conversations));
  if (!std::isfinite(options.think_s) || options.think_s < 0 || options.think_s > 1e9)
    return wrong("workload.think_s", "seconds from 0 to 10^9", fmt::format("{}", options.think_s));
  if (options.think != "exponential" && options.think != "constant")
    return wrong("workload.think", "exponential or constant", "'" + options.think + "'");
  if (!std::isfinite(options.zipf) || options.zipf < 0 || options.zipf > 10)
    return wrong("workload.zipf", "0 to 10", fmt::format("{}", options.zipf));
  const std::pair<std::uint32_t, const char*> tokens[] = {{options.context_tokens, "workload.context_tokens"},
                                                          {options.body_tokens, "workload.body_tokens"},
                                                          {options.reply_tokens, "workload.reply_tokens"},
                                                          {options.contexts, "workload.contexts"},
                                                          {options.tasks, "workload.tasks"},
                                                          {options.copies, "workload.copies"}};
  for (const auto& [value, field] : tokens) {
    if (value == 0 || value > kTraceTokensMax) return wrong(field, "1 to 2^24", std::to_string(value));
  }
  return {};
}

// A trace's turns are due within 10^9 s of its begin.
Status check_times(const Trace& trace, const WorkloadOptions& options) {
  constexpr double kMost = kTraceSecondsMax * 1e9;
  for (const Conversation& talk : trace.conversations) {
    double due = static_cast<double>(talk.turns.front().at);
    if (due > kMost)
      return wrong("workload.rate", "conversations that all begin within 10^9 s",
                   fmt::format("{} of {:g} a second", options.conversations, options.rate));
    for (const Turn& turn : talk.turns) due += static_cast<double>(turn.after);
    if (due > kMost)
      return wrong("workload.think_s", "turns that are due within 10^9 s of the begin",
                   fmt::format("{:g}, and a turn that is due after {:.3g} s", options.think_s, due * 1e-9));
  }
  return {};
}

Result<Trace> drawn(const WorkloadOptions& options) {
  const KnownTexts* const texts = known_texts(options.kind);
  const std::string_view base = texts != nullptr ? texts->base : options.kind;
  if (base == "text-analysis" || base == "documents") {
    Result<Trace> trace = base == "documents" ? documents(options) : text_analysis(options);
    if (trace.ok() && texts != nullptr) trace->notes.emplace_back(texts->from);
    return trace;
  }
  if (options.kind == "conversations") return conversations(options, options.shape);
  const Result<ConversationShape> known = conversation_shape(options.kind);
  if (known.ok()) return conversations(options, *known);
  return wrong("workload.kind", fmt::format("one of {}", joined(workload_kinds())), "'" + options.kind + "'");
}

}  // namespace

std::vector<std::string_view> workload_kinds() {
  std::vector<std::string_view> kinds = {"conversations", "text-analysis", "documents"};
  for (const KnownShape& known : known_shapes()) kinds.push_back(known.kind);
  for (const KnownTexts& known : kKnownTexts) kinds.push_back(known.kind);
  return kinds;
}

WorkloadOptions workload_of_kind(std::string_view kind) {
  WorkloadOptions out{.kind = std::string(kind)};
  const KnownTexts* const texts = known_texts(kind);
  if (texts == nullptr) return out;
  out.think_s = 0;  // a request comes when the one before is answered
  out.contexts = texts->contexts;
  out.context_tokens = texts->context_tokens;
  out.body_tokens = texts->body_tokens;
  out.reply_tokens = texts->reply_tokens;
  out.tasks = texts->tasks;
  return out;
}

Result<ConversationShape> conversation_shape(std::string_view kind) {
  for (const KnownShape& known : known_shapes()) {
    if (known.kind == kind) return known.shape;
  }
  return not_found(std::string(kind));
}

Result<Trace> make_workload(const WorkloadOptions& options) {
  LOCI_RETURN_IF_ERROR(check(options));
  Result<Trace> trace = drawn(options);
  if (!trace.ok()) return trace;
  LOCI_RETURN_IF_ERROR(check_times(*trace, options));
  return trace;
}

}  // namespace loci::sim
