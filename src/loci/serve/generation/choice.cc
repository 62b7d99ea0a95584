// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/choice.h"

#include <algorithm>

#include "loci/serve/wire/json_parse.h"

namespace loci {

Choice::Choice(const Tokenizer& tokenizer, ChoiceOptions options)
    : tokenizer_(&tokenizer), options_(std::move(options)), decoder_(tokenizer), matcher_(options_.stop) {
  if (options_.syntax != nullptr) parser_.emplace(*options_.syntax, options_.parser);
}

LogprobEntry Choice::describe(const Sampled& sampled) const {
  LogprobEntry entry{.bytes = tokenizer_->token_bytes(sampled.token),
                     .logprob = sampled.chosen.logprob,
                     .top = {},
                     .text_offset = decoded_characters_};
  entry.top.reserve(sampled.top.size());
  for (const TokenLogprob& one : sampled.top)
    entry.top.emplace_back(tokenizer_->token_bytes(one.token), one.logprob);
  return entry;
}

void Choice::push(const Sampled& sampled) {
  if (ended() || finished_) return;
  ++tokens_;
  const std::vector<TokenId>& ends = options_.stop_tokens;
  if (std::find(ends.begin(), ends.end(), sampled.token) != ends.end()) return;
  if (parser_ && tokenizer_->is_control(sampled.token)) {
    // A mark, or nothing: what it says is in the pieces that follow.
    feed(decoder_.finish());
    parser_->push_control(tokenizer_->token_bytes(sampled.token));
    show_pieces();
    release_logprobs();
    return;
  }
  Pending pending;
  if (options_.logprobs) pending.entry = describe(sampled);
  pending.begin = decoded_bytes_;
  const std::string text = decoder_.push(sampled.token);
  decoded_characters_ += count_characters(text);
  pending.end = decoded_bytes_ + text.size();
  if (options_.logprobs) pending_.push_back(std::move(pending));
  feed(text);
  if (parser_ && parser_->in_reasoning()) ++reasoning_tokens_;
}

void Choice::feed(std::string_view text) {
  decoded_bytes_ += text.size();
  if (parser_) {
    parser_->push(text);
    show_pieces();
  } else {
    show_text(text);
  }
  release_logprobs();
}

void Choice::show_pieces() {
  for (OutputPiece& piece : parser_->take()) {
    if (ended()) return;
    if (const auto* text = std::get_if<TextPiece>(&piece)) {
      show_text(text->text);
      continue;
    }
    // What was held back of the text before it is no stop string.
    if (const std::string held = matcher_.finish(); !held.empty())
      visible_.pieces.emplace_back(TextPiece{held});
    matcher_ = StopMatcher(options_.stop);
    matcher_bytes_ = 0;
    call_ended_ = options_.one_call && std::holds_alternative<ToolCallEnd>(piece);
    visible_.pieces.push_back(std::move(piece));
  }
}

void Choice::show_text(std::string_view text) {
  std::string shown(text);
  if (tokens_ >= options_.min_tokens) {
    shown = matcher_.push(text);
    matcher_bytes_ += text.size();
  }
  if (!shown.empty()) visible_.pieces.emplace_back(TextPiece{std::move(shown)});
}

// Bytes of what was decoded that are shown, or were marks.
std::uint64_t Choice::shown_bytes() const {
  const std::uint64_t held = matcher_bytes_ - matcher_.released();
  return decoded_bytes_ - held - (parser_ ? parser_->undecided() : 0);
}

void Choice::release_logprobs() {
  const std::uint64_t shown = shown_bytes();
  while (!pending_.empty() && pending_.front().end <= shown) {
    visible_.logprobs.push_back(std::move(pending_.front().entry));
    pending_.pop_front();
  }
  if (!stopped()) return;
  // Of the tokens that spell the stop string only the one that opens before it has text of its own.
  for (Pending& one : pending_) {
    if (one.begin < shown) visible_.logprobs.push_back(std::move(one.entry));
  }
  pending_.clear();
}

void Choice::finish() {
  if (finished_ || ended()) return;
  feed(decoder_.finish());
  if (parser_) {
    parser_->finish();
    show_pieces();
  }
  if (!stopped()) {
    if (std::string held = matcher_.finish(); !held.empty())
      visible_.pieces.emplace_back(TextPiece{std::move(held)});
  }
  release_logprobs();
  for (Pending& one : pending_) visible_.logprobs.push_back(std::move(one.entry));
  pending_.clear();
  finished_ = true;
}

OutputDelta Choice::take() {
  visible_.tokens = tokens_;
  return std::exchange(visible_, {});
}

}  // namespace loci
