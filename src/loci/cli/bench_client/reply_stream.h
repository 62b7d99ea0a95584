// SPDX-License-Identifier: Apache-2.0
// One streamed reply of an OpenAI-compatible server, with the time at which each piece of its text came.
// No networking, no clock. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/serve/wire/sse.h"

namespace loci {

enum class BenchApi : std::uint8_t { kChat, kCompletions, kResponses };

class ReplyStream {
 public:
  explicit ReplyStream(BenchApi api) : api_(api) {}

  // Bytes that came at `now`.
  void push(std::string_view bytes, Nanos now);

  bool done() const { return done_; }                  // "[DONE]", or a response's last event, has come
  const std::string& error() const { return error_; }  // what the server says went wrong; empty: nothing
  // What the model said, without its reasoning: what goes into the next turn.
  const std::string& text() const { return text_; }
  const std::string& id() const { return id_; }  // of a response, by which the next turn continues it
  // When each event came that carried text, reasoning or a part of a call.
  const std::vector<Nanos>& pieces() const { return pieces_; }
  // As the server counts; nullopt: it does not say.
  std::optional<std::uint64_t> prompt_tokens() const { return prompt_tokens_; }
  std::optional<std::uint64_t> output_tokens() const { return output_tokens_; }
  // usage.prompt_tokens_details.cached_tokens, or llama.cpp's timings.cache_n.
  std::optional<std::uint64_t> cached_tokens() const { return cached_tokens_; }

 private:
  void on_event(const std::string& data, Nanos now);
  // Whether the choice carries something of the reply.
  bool read_choice(const nlohmann::json& choice);
  void read_counts(const nlohmann::json& event);
  // Of /v1/responses, which names its events.
  void on_response_event(const nlohmann::json& event, Nanos now);
  void end_response(const nlohmann::json& response);

  BenchApi api_;
  SseParser parser_;
  std::string text_;
  std::string id_;
  std::string error_;
  std::vector<Nanos> pieces_;
  std::optional<std::uint64_t> prompt_tokens_;
  std::optional<std::uint64_t> output_tokens_;
  std::optional<std::uint64_t> cached_tokens_;
  bool done_ = false;
};

}  // namespace loci
