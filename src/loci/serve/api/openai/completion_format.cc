// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/completion_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "loci/model/utf8.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/sse.h"

namespace loci {

namespace {

constexpr std::string_view kObject = "text_completion";

// A token as the lists name it. JSON has no text for a part of a character: it is spelled as OpenAI does,
// "bytes:\xe4\xb8". So different tokens have different names.
std::string token_name(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) {
    if (c >= ' ' && c < 0x7f && c != '\\')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

// The lists of OpenAI's format.
struct LogprobLists {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();

  void add(const LogprobEntry& entry, std::uint64_t characters_before) {
    tokens.push_back(token_name(entry.bytes));
    logprobs.push_back(entry.logprob);
    Json top = Json::object();
    // Of tokens with the same bytes the first one, which is the likeliest.
    for (const auto& [bytes, logprob] : entry.top) top.emplace(token_name(bytes), logprob);
    tops.push_back(std::move(top));
    offsets.push_back(entry.text_offset + characters_before);
  }
  Json json() && {
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }
};

Json completion_logprobs_json(const std::vector<LogprobEntry>& entries) {
  LogprobLists lists;
  for (const LogprobEntry& entry : entries) lists.add(entry, 0);
  return std::move(lists).json();
}

// The prompt's tokens, then the reply's. Nothing comes before the first one, so nothing says how likely it
// is.
Json echoed_logprobs_json(const FinishedChoice& choice, std::string_view prompt) {
  LogprobLists lists;
  for (const LogprobEntry& entry : choice.echoed) lists.add(entry, 0);
  lists.logprobs[0] = nullptr;
  lists.tops[0] = nullptr;
  const std::size_t characters = count_characters(prompt);
  for (const LogprobEntry& entry : choice.output.logprobs) lists.add(entry, characters);
  return std::move(lists).json();
}

Json choice_json(const ReplyHead& head, std::uint32_t index, std::string text,
                 const std::vector<LogprobEntry>* logprobs) {
  Json choice = {{"index", index}, {"text", std::move(text)}, {"logprobs", nullptr}};
  if (head.logprobs && logprobs != nullptr) choice["logprobs"] = completion_logprobs_json(*logprobs);
  choice["finish_reason"] = nullptr;
  return choice;
}

// A reply without text is the least likely: it has nothing to be judged by.
double mean_logprob(const FinishedChoice& choice) {
  const std::vector<LogprobEntry>& entries = choice.output.logprobs;
  if (entries.empty()) return -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const LogprobEntry& entry : entries) sum += static_cast<double>(entry.logprob);
  return sum / static_cast<double>(entries.size());
}

// The `kept` likeliest of one prompt's choices, the likeliest first; among equals the earlier one.
std::vector<const FinishedChoice*> likeliest(const FinishedChoice* choices, std::size_t count,
                                             std::size_t kept) {
  std::vector<const FinishedChoice*> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(&choices[i]);
  if (kept >= count) return out;
  std::stable_sort(out.begin(), out.end(), [](const FinishedChoice* a, const FinishedChoice* b) {
    return mean_logprob(*a) > mean_logprob(*b);
  });
  out.resize(kept);
  return out;
}

class CompletionFormat final : public ReplyFormat {
 public:
  CompletionFormat(ReplyHead head, CompletionShape shape)
      : head_(std::move(head)), shape_(std::move(shape)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  std::string echo(std::uint32_t index) const;

  ReplyHead head_;
  UsageSoFar usage_;
  CompletionShape shape_;
};

std::string CompletionFormat::echo(std::uint32_t index) const {
  return shape_.echoed.empty() ? std::string() : shape_.echoed[index / shape_.generated];
}

std::string CompletionFormat::begin(const ReplyUsage& prompt) {
  usage_.begin(prompt);
  return {};
}

std::string CompletionFormat::begin_choice(std::uint32_t index) {
  if (shape_.echoed.empty()) return {};
  return chunk_event(head_, kObject, Json::array({choice_json(head_, index, echo(index), nullptr)}), usage_);
}

std::string CompletionFormat::delta(std::uint32_t index, const OutputDelta& delta) {
  usage_.set_tokens(index, delta.tokens);
  std::string text;
  for (const OutputPiece& piece : delta.pieces) {
    if (const auto* one = std::get_if<TextPiece>(&piece)) text += one->text;
  }
  return chunk_event(head_, kObject,
                     Json::array({choice_json(head_, index, std::move(text), &delta.logprobs)}), usage_);
}

std::string CompletionFormat::finish_choice(const FinishedChoice& choice) {
  usage_.set_tokens(choice.index, choice.tokens.size());
  Json json = choice_json(head_, choice.index, "", nullptr);
  json["finish_reason"] = finish_reason_name(choice.finish);
  return chunk_event(head_, kObject, Json::array({std::move(json)}), usage_);
}

std::string CompletionFormat::end(const std::vector<FinishedChoice>&, const ReplyUsage& usage) {
  return usage_event(head_, kObject, usage) + sse_event(kSseDone);
}

std::string CompletionFormat::stream_error(const ApiError& error) {
  return sse_event(to_json(error)) + sse_event(kSseDone);
}

std::string CompletionFormat::whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  Json list = Json::array();
  for (std::size_t first = 0; first < choices.size(); first += shape_.generated) {
    const std::size_t count = std::min<std::size_t>(shape_.generated, choices.size() - first);
    for (const FinishedChoice* choice : likeliest(&choices[first], count, shape_.kept)) {
      const auto index = static_cast<std::uint32_t>(list.size());
      Json one =
          choice_json(head_, index, echo(choice->index) + choice->output.text(), &choice->output.logprobs);
      if (!choice->echoed.empty()) one["logprobs"] = echoed_logprobs_json(*choice, echo(choice->index));
      one["finish_reason"] = finish_reason_name(choice->finish);
      list.push_back(std::move(one));
    }
  }
  Json json = head_json(head_, kObject);
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  add_explanation(json, usage.explanation);
  return dump_json(json);
}

}  // namespace

std::unique_ptr<ReplyFormat> make_completion_format(ReplyHead head, CompletionShape shape) {
  return std::make_unique<CompletionFormat>(std::move(head), std::move(shape));
}

}  // namespace loci
