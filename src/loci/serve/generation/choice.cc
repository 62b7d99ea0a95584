#include "loci/serve/generation/choice.h"

#include <algorithm>

namespace loci {
namespace {

std::uint64_t count_characters(std::string_view text) {
  return static_cast<std::uint64_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

Choice::Choice(const Tokenizer& tokenizer, ChoiceOptions options)
    : tokenizer_(&tokenizer), options_(std::move(options)), decoder_(tokenizer), matcher_(options_.stop) {}

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
  if (stopped() || finished_) return;
  ++tokens_;
  const std::vector<TokenId>& ends = options_.stop_tokens;
  if (std::find(ends.begin(), ends.end(), sampled.token) != ends.end()) return;
  Pending pending;
  if (options_.logprobs) pending.entry = describe(sampled);
  pending.begin = decoded_bytes_;
  const std::string text = decoder_.push(sampled.token);
  decoded_bytes_ += text.size();
  decoded_characters_ += count_characters(text);
  pending.end = decoded_bytes_;
  if (options_.logprobs) pending_.push_back(std::move(pending));
  feed(text);
}

void Choice::feed(std::string_view text) {
  if (tokens_ < options_.min_tokens) {
    visible_.text += text;
    unmatched_bytes_ += text.size();
  } else {
    visible_.text += matcher_.push(text);
  }
  release_logprobs();
}

void Choice::release_logprobs() {
  const std::uint64_t shown = unmatched_bytes_ + matcher_.released();
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
  if (finished_ || stopped()) return;
  const std::string rest = decoder_.finish();
  decoded_bytes_ += rest.size();
  feed(rest);
  if (!stopped()) visible_.text += matcher_.finish();
  release_logprobs();
  for (Pending& one : pending_) visible_.logprobs.push_back(std::move(one.entry));
  pending_.clear();
  finished_ = true;
}

Delta Choice::take() { return std::exchange(visible_, {}); }

}  // namespace loci
