// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "loci/base/exp_negative.h"
#include "loci/base/random.h"
#include "loci/model/sampling_range.h"

namespace loci {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kSumBlock = 64;  // weights that are summed together before the draw walks them

// Candidates that are sorted at once: of most distributions no more are drawn from.
constexpr std::size_t kSortedAtOnce = 256;

// Sum in double over fixed blocks of eight float lanes.
double sum_blocked(std::span<const float> values) {
  double total = 0;
  for (std::size_t start = 0; start < values.size(); start += kSumBlock) {
    std::array<float, 8> lanes{};
    const std::size_t end = std::min(start + kSumBlock, values.size());
    std::size_t i = start;
    for (; i + 8 <= end; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
    }
    for (; i < end; ++i) lanes[0] += values[i];
    total +=
        ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  return total;
}

// NaN has no place in an order.
float number_of(float logit) { return std::isnan(logit) ? kMinusInfinity : logit; }

// The index of the greatest value, the lowest among equals; NaN counts as -inf.
std::uint32_t argmax(std::span<const float> values) {
  std::array<float, 16> best;
  best.fill(kMinusInfinity);
  std::size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) {
      best[lane] = values[i + lane] > best[lane] ? values[i + lane] : best[lane];
    }
  }
  float greatest = *std::max_element(best.begin(), best.end());
  for (; i < values.size(); ++i) greatest = values[i] > greatest ? values[i] : greatest;
  const auto found = std::find(values.begin(), values.end(), greatest);
  return found == values.end() ? 0u : static_cast<std::uint32_t>(found - values.begin());
}

// out[i] = exp(scale * (values[i] - greatest)); 0 for NaN, so all are where the greatest is not finite.
void exponentials(std::span<const float> values, float greatest, float scale, std::span<float> out) {
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = exp_negative((values[i] - greatest) * scale);
}

Status out_of_range(std::string_view field, float value, std::string_view expected) {
  return invalid_argument(fmt::format("must be {}, is {}", expected, value), std::string(field));
}

Status check_range(std::string_view field, float value, const NumberRange& range) {
  if (range.contains(value)) return {};
  return out_of_range(field, value,
                      range.low_excluded ? fmt::format("above {} and at most {}", range.low, range.high)
                                         : fmt::format("between {} and {}", range.low, range.high));
}

void forbid_all_but(std::span<const std::uint32_t> allowed, std::span<float> logits) {
  for (std::size_t word = 0; word < allowed.size(); ++word) {
    const std::span<float> part =
        logits.subspan(word * 32, std::min<std::size_t>(32, logits.size() - word * 32));
    const std::uint32_t bits = allowed[word];
    if (bits == 0) {
      std::fill(part.begin(), part.end(), kMinusInfinity);
    } else if (bits != ~std::uint32_t{0}) {
      for (std::size_t i = 0; i < part.size(); ++i)
        part[i] = ((bits >> i) & 1u) != 0 ? part[i] : kMinusInfinity;
    }
  }
}

void penalise(float& logit, float penalty) { logit = logit > 0 ? logit / penalty : logit * penalty; }

}  // namespace

Status validate_sampling(const SamplingParams& p, std::uint32_t vocabulary) {
  LOCI_RETURN_IF_ERROR(check_range("temperature", p.temperature, kTemperatureRange));
  LOCI_RETURN_IF_ERROR(check_range("top_p", p.top_p, kTopPRange));
  LOCI_RETURN_IF_ERROR(check_range("min_p", p.min_p, kMinPRange));
  LOCI_RETURN_IF_ERROR(check_range("repetition_penalty", p.repetition_penalty, kRepetitionPenaltyRange));
  LOCI_RETURN_IF_ERROR(check_range("frequency_penalty", p.frequency_penalty, kPenaltyRange));
  LOCI_RETURN_IF_ERROR(check_range("presence_penalty", p.presence_penalty, kPenaltyRange));
  if (p.top_logprobs > 20) {
    return invalid_argument(fmt::format("must be at most 20, is {}", p.top_logprobs), "top_logprobs");
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token.value >= vocabulary) {
      return invalid_argument(
          fmt::format("token {} is outside the vocabulary of {} tokens", token.value, vocabulary),
          "logit_bias");
    }
    if (!(std::fabs(bias) <= kBiasMax)) return out_of_range("logit_bias", bias, "between -100 and 100");
  }
  return {};
}

Sampler::Sampler(SamplingParams params, std::span<const TokenId> prompt, std::vector<TokenId> stop_tokens,
                 std::uint32_t vocabulary, std::shared_ptr<const Grammar> grammar)
    : params_(std::move(params)), stop_tokens_(std::move(stop_tokens)), vocabulary_(vocabulary) {
  if (grammar != nullptr) {
    constraint_ = std::make_unique<Constraint>(std::move(grammar));
    allowed_.resize((vocabulary + 31) / 32);
  }
  if (params_.repetition_penalty != 1.0f) {
    prompt_tokens_.assign(prompt.begin(), prompt.end());
    prompt_tokens_.insert(prompt_tokens_.end(), params_.forced.begin(), params_.forced.end());
    std::sort(prompt_tokens_.begin(), prompt_tokens_.end());
    prompt_tokens_.erase(std::unique(prompt_tokens_.begin(), prompt_tokens_.end()), prompt_tokens_.end());
  }
  on_device_ = !adjusts() && !params_.logprobs && params_.forced.empty();
}

DeviceSampling Sampler::device_sampling(std::uint64_t draw) const {
  return {.temperature = params_.temperature,
          .top_k = params_.top_k,
          .top_p = params_.top_p,
          .min_p = params_.min_p,
          .seed = params_.seed,
          .draw = draw};
}

bool Sampler::adjusts() const {
  return constraint_ != nullptr || !params_.logit_bias.empty() ||
         (holds_stops_back() && !stop_tokens_.empty()) || params_.repetition_penalty != 1.0f ||
         params_.frequency_penalty != 0.0f || params_.presence_penalty != 0.0f;
}

void Sampler::adjust(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[token.value] += bias;
  if (holds_stops_back()) {
    for (const TokenId token : stop_tokens_) logits[token.value] = kMinusInfinity;
  }
  if (constraint_ != nullptr) forbid_all_but(allowed_, logits);
  if (params_.repetition_penalty != 1.0f) {
    const auto in_prompt = [&](TokenId token) {
      return std::binary_search(prompt_tokens_.begin(), prompt_tokens_.end(), token);
    };
    for (const TokenId token : prompt_tokens_) penalise(logits[token.value], params_.repetition_penalty);
    for (const auto& [token, count] : output_counts_) {
      if (!in_prompt(token)) penalise(logits[token.value], params_.repetition_penalty);
    }
  }
  if (params_.frequency_penalty != 0.0f || params_.presence_penalty != 0.0f) {
    for (const auto& [token, count] : output_counts_) {
      logits[token.value] -= params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
    }
  }
}

// `logits` are adjusted. Weights are e^((logit - greatest) / temperature). Where the greatest is not finite
// there are none: a penalty may overflow, and a model may be broken.
TokenId Sampler::draw(std::span<const float> logits) {
  const std::uint32_t best = argmax(logits);
  if (params_.temperature == 0.0f || params_.top_k == 1 || !std::isfinite(logits[best])) return TokenId(best);
  // (Forced tokens were not drawn: what follows them is what would follow them as a prompt.)
  const double uniform = sample_uniform(params_.seed, draws_ - params_.forced.size());
  weights_.resize(logits.size());
  // A temperature so small that its inverse overflows is greedy all the same: 0 * inf never occurs,
  // because the scale is bounded.
  const float scale = std::min(1.0f / params_.temperature, 1e30f);
  exponentials(logits, logits[best], scale, weights_);
  const bool whole = (params_.top_k == 0 || params_.top_k >= logits.size()) && params_.top_p >= 1.0f &&
                     params_.min_p <= 0.0f;
  return whole ? draw_from_all(uniform, best) : draw_from_some(uniform, best);
}

TokenId Sampler::draw_from_all(double uniform, std::uint32_t best) const {
  const std::span<const float> weights(weights_);
  double left = uniform * sum_blocked(weights);
  for (std::size_t start = 0; start < weights.size(); start += kSumBlock) {
    const auto block = weights.subspan(start, std::min(kSumBlock, weights.size() - start));
    const double sum = sum_blocked(block);
    if (left >= sum) {
      left -= sum;
      continue;
    }
    for (std::size_t i = 0; i < block.size(); ++i) {
      left -= static_cast<double>(block[i]);
      if (left < 0) return TokenId(static_cast<std::uint32_t>(start + i));
    }
  }
  return TokenId(best);  // rounding ate the last sliver of the mass
}

// The first `wanted` candidates and some more are the heaviest, in order; `sorted` of them were before.
void Sampler::sort_candidates(std::size_t& sorted, std::size_t wanted) {
  if (sorted >= wanted) return;
  const auto heavier = [&](std::uint32_t a, std::uint32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
  };
  const std::size_t end = std::min(order_.size(), std::max({wanted, 4 * sorted, kSortedAtOnce}));
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(sorted);
  const auto to = order_.begin() + static_cast<std::ptrdiff_t>(end);
  if (end < order_.size()) std::nth_element(from, to, order_.end(), heavier);
  std::sort(from, to, heavier);
  sorted = end;
}

TokenId Sampler::draw_from_some(double uniform, std::uint32_t best) {
  // Tokens that top-p can't reach are never sorted: all tokens lighter than (1 - p) of the total over
  // the vocabulary's size weigh less than 1 - p together. (With top-k the total is another: keep all.)
  float floor = 0.0f;
  if (params_.top_k == 0) {
    const double total = sum_blocked(weights_);
    const double unreachable =
        (1.0 - static_cast<double>(params_.top_p)) * total / static_cast<double>(weights_.size());
    floor = std::max(static_cast<float>(unreachable * 0.999), params_.min_p);
  }
  order_.clear();
  for (std::uint32_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] >= floor && weights_[i] > 0.0f) order_.push_back(i);
  }
  if (order_.empty()) return TokenId(best);
  std::size_t sorted = 0;
  if (params_.top_k > 0) {
    sort_candidates(sorted, std::min<std::size_t>(params_.top_k, order_.size()));
    order_.resize(std::min<std::size_t>(params_.top_k, order_.size()));
    sorted = order_.size();
  }
  double kept = 0;
  if (params_.top_p < 1.0f) {
    double mass = params_.top_k == 0 ? sum_blocked(weights_) : 0.0;
    if (params_.top_k > 0) {
      for (const std::uint32_t i : order_) mass += static_cast<double>(weights_[i]);
    }
    std::size_t count = 0;
    while (count < order_.size() && kept < mass * static_cast<double>(params_.top_p)) {
      sort_candidates(sorted, count + 1);
      kept += static_cast<double>(weights_[order_[count++]]);
    }
    sort_candidates(sorted, 1);
    order_.resize(std::max<std::size_t>(count, 1));
    sorted = std::min(sorted, order_.size());
  }
  std::size_t count = 0;
  kept = 0;
  while (count < order_.size()) {
    sort_candidates(sorted, count + 1);
    if (count > 0 && weights_[order_[count]] < params_.min_p) break;
    kept += static_cast<double>(weights_[order_[count++]]);
  }
  double left = uniform * kept;
  for (std::size_t i = 0; i < count; ++i) {
    left -= static_cast<double>(weights_[order_[i]]);
    if (left < 0) return TokenId(order_[i]);
  }
  return TokenId(order_[0]);
}

void Sampler::report(std::span<const float> logits, Sampled& sampled) {
  const float greatest = logits[argmax(logits)];
  weights_.resize(logits.size());
  exponentials(logits, greatest, 1.0f, weights_);
  const double log_sum = std::log(sum_blocked(weights_)) + static_cast<double>(greatest);
  const auto logprob = [&](std::uint32_t token) {
    const auto value = static_cast<float>(static_cast<double>(logits[token]) - log_sum);
    return TokenLogprob{TokenId(token), value > kLogprobMin ? value : kLogprobMin};
  };
  sampled.chosen = logprob(sampled.token.value);
  order_.resize(logits.size());
  for (std::uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
  const auto end = order_.begin() + std::min<std::size_t>(params_.top_logprobs, order_.size());
  std::partial_sort(order_.begin(), end, order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const float first = number_of(logits[a]), second = number_of(logits[b]);
    return first != second ? first > second : a < b;
  });
  for (auto i = order_.begin(); i != end; ++i) sampled.top.push_back(logprob(*i));
}

void Sampler::prepare() {
  if (constraint_ != nullptr) constraint_->prepare();
}

// What the grammar and the end of the reply allow; false where that is nothing.
bool Sampler::find_allowed() {
  const MatchState state = constraint_->next();
  const std::span<const std::uint32_t> mask = constraint_->mask();
  const std::size_t words = std::min(mask.size(), allowed_.size());
  std::copy_n(mask.begin(), words, allowed_.begin());
  const bool may_end = state == MatchState::kMayEnd || state == MatchState::kComplete;
  const bool held_back = holds_stops_back();
  for (const TokenId token : stop_tokens_) {
    std::uint32_t& word = allowed_[token.value / 32];
    const std::uint32_t bit = std::uint32_t{1} << (token.value % 32);
    if (held_back) {
      word &= ~bit;
    } else if (may_end) {
      word |= bit;
    }
  }
  if (std::any_of(allowed_.begin(), allowed_.end(), [](std::uint32_t word) { return word != 0; }))
    return true;
  grammar_end_ = may_end ? GrammarEnd::kComplete : GrammarEnd::kFailed;
  return false;
}

Status Sampler::grammar_status() const {
  if (grammar_end_ != GrammarEnd::kFailed) return {};
  if (!constraint_->status().ok()) return constraint_->status();
  return invalid_argument("the reply can't go on: no token continues it as its grammar wants");
}

TokenId Sampler::first_allowed() const {
  for (std::size_t word = 0; word < allowed_.size(); ++word) {
    if (allowed_[word] != 0) {
      return TokenId(static_cast<std::uint32_t>(word * 32) +
                     static_cast<std::uint32_t>(std::countr_zero(allowed_[word])));
    }
  }
  LOCI_CHECK(false, "something is allowed");
  return TokenId(0);
}

// A stop token ends the request without the grammar. False: the grammar has failed.
bool Sampler::accept(TokenId token) {
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) return true;
  const MatchState state = constraint_->accept(token);
  if (state == MatchState::kComplete) grammar_end_ = GrammarEnd::kComplete;
  if (state == MatchState::kStuck) grammar_end_ = GrammarEnd::kFailed;
  return state != MatchState::kStuck;
}

std::optional<Sampled> Sampler::sample(std::span<const float> logits) {
  LOCI_CHECK(logits.size() == vocabulary_, "one row of logits over the vocabulary");
  if (draws_ < params_.forced.size()) {
    Sampled forced;
    forced.token = params_.forced[draws_++];
    if (params_.logprobs) report(logits, forced);
    return forced;
  }
  if (constraint_ != nullptr && !find_allowed()) return std::nullopt;
  std::span<const float> adjusted = logits;
  if (adjusts()) {
    scratch_.assign(logits.begin(), logits.end());
    adjust(scratch_);
    adjusted = scratch_;
  }
  Sampled sampled;
  sampled.token = draw(adjusted);
  if (constraint_ != nullptr) {
    // Where no allowed token has a finite logit, draw() has found none of them.
    if (!mask_allows(allowed_, sampled.token)) sampled.token = first_allowed();
    if (!accept(sampled.token)) return std::nullopt;
  }
  if (params_.logprobs) report(logits, sampled);
  count_output(sampled.token);
  return sampled;
}

void Sampler::count_output(TokenId token) {
  ++draws_;
  const auto at = std::lower_bound(output_counts_.begin(), output_counts_.end(), token,
                                   [](const auto& entry, TokenId wanted) { return entry.first < wanted; });
  if (at != output_counts_.end() && at->first == token) {
    ++at->second;
  } else {
    output_counts_.insert(at, {token, 1});
  }
}

void Sampler::resume_after(std::span<const TokenId> said) {
  LOCI_CHECK(draws_ == 0 && params_.forced.empty(), "a reply is resumed before its first token");
  for (const TokenId token : said) count_output(token);
  if (constraint_ != nullptr) constraint_->resume_after({said.begin(), said.end()});
}

}  // namespace loci
