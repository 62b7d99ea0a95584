// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_url/reply_stream.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "loci/cli/chat_client.h"

namespace loci {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<std::uint64_t> count_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || *found < 0) return std::nullopt;
  return found->get<std::uint64_t>();
}

}  // namespace

void ReplyStream::push(std::string_view bytes, Nanos now) {
  for (const std::string& data : parser_.push(bytes)) {
    if (error_.empty()) on_event(data, now);
  }
}

void ReplyStream::on_event(const std::string& data, Nanos now) {
  if (data == kSseDone) {
    done_ = true;
    return;
  }
  const Json event = Json::parse(data, nullptr, false);
  if (!event.is_object()) {
    error_ = "the server sent an event that is not a JSON object";
    return;
  }
  if (event.contains("error") && !event["error"].is_null()) {
    error_ = error_message(200, data);
    return;
  }
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) {
    error_ = "the server sent an event without 'choices'";
    return;
  }
  if (!choices->empty() && (*choices)[0].is_object() && read_choice((*choices)[0])) pieces_.push_back(now);
  read_counts(event);
}

bool ReplyStream::read_choice(const Json& choice) {
  if (api_ == BenchApi::kCompletions) {
    const std::string piece = text_of(choice, "text");
    text_ += piece;
    return !piece.empty();
  }
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return false;
  const std::string piece = text_of(*delta, "content");
  text_ += piece;
  return !piece.empty() || !text_of(*delta, "reasoning_content").empty() ||
         !text_of(*delta, "reasoning").empty() || delta->contains("tool_calls");
}

void ReplyStream::read_counts(const Json& event) {
  // llama.cpp's last events have both; its usage is the newer of the two.
  if (const auto timings = event.find("timings"); timings != event.end() && timings->is_object()) {
    if (const auto cached = count_of(*timings, "cache_n")) cached_tokens_ = cached;
  }
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  if (const auto prompt = count_of(*usage, "prompt_tokens")) prompt_tokens_ = prompt;
  if (const auto output = count_of(*usage, "completion_tokens")) output_tokens_ = output;
  const auto details = usage->find("prompt_tokens_details");
  if (details == usage->end() || !details->is_object()) return;
  if (const auto cached = count_of(*details, "cached_tokens")) cached_tokens_ = cached;
}

}  // namespace loci
