// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/reply_stream.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "loci/base/json_reader.h"
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
  const Json event = read_json<Json>(data, {}).value;
  if (!event.is_object()) {
    error_ = "the server sent an event that is not a JSON object";
    return;
  }
  if (event.contains("error") && !event["error"].is_null()) {
    error_ = error_message(200, data);
    return;
  }
  if (api_ == BenchApi::kResponses) return on_response_event(event, now);
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) {
    error_ = "the server sent an event without 'choices'";
    return;
  }
  if (!choices->empty() && (*choices)[0].is_object() && read_choice((*choices)[0])) pieces_.push_back(now);
  read_counts(event);
}

void ReplyStream::on_response_event(const Json& event, Nanos now) {
  const std::string type = text_of(event, "type");
  const auto response = event.find("response");
  if (response != event.end() && response->is_object()) id_ = text_of(*response, "id");
  if (type == "error") {
    error_ = text_of(event, "message");
    if (error_.empty()) error_ = "the server sent an error without a message";
  } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta" ||
             type == "response.function_call_arguments.delta") {
    const std::string piece = text_of(event, "delta");
    if (type == "response.output_text.delta") text_ += piece;
    if (!piece.empty()) pieces_.push_back(now);
  } else if (type == "response.completed" || type == "response.incomplete" || type == "response.failed") {
    done_ = true;
    if (response == event.end() || !response->is_object()) {
      error_ = "the server ended a response without saying what it was";
      return;
    }
    if (type == "response.failed") {
      const auto error = response->find("error");
      error_ = error != response->end() && error->is_object() ? text_of(*error, "message") : std::string();
      if (error_.empty()) error_ = "the response failed";
    }
    end_response(*response);
  }
}

void ReplyStream::end_response(const Json& response) {
  const auto usage = response.find("usage");
  if (usage == response.end() || !usage->is_object()) return;
  if (const auto prompt = count_of(*usage, "input_tokens")) prompt_tokens_ = prompt;
  if (const auto output = count_of(*usage, "output_tokens")) output_tokens_ = output;
  const auto details = usage->find("input_tokens_details");
  if (details == usage->end() || !details->is_object()) return;
  if (const auto cached = count_of(*details, "cached_tokens")) cached_tokens_ = cached;
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
