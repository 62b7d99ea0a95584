// SPDX-License-Identifier: Apache-2.0
// The client's side of the API, for `loci chat`: waits for a server and streams replies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/http/server_address.h"
#include "loci/serve/wire/sse.h"

namespace loci {

// The events of one streamed chat reply. Thread-compatible; no networking.
class ChatStream {
 public:
  // `on_text` gets the reply's text piece by piece.
  explicit ChatStream(std::function<void(std::string_view)> on_text) : on_text_(std::move(on_text)) {}

  void push(std::string_view bytes);

  bool done() const { return done_; }  // "[DONE]" has come
  const std::string& text() const { return text_; }
  const std::string& finish_reason() const { return finish_reason_; }
  const std::string& error() const { return error_; }  // what the server says went wrong; empty: nothing
  std::optional<std::uint64_t> prompt_tokens() const { return prompt_tokens_; }
  std::uint64_t cached_tokens() const { return cached_tokens_; }
  std::uint64_t completion_tokens() const { return completion_tokens_; }
  // Tokens of the prompt by where their state came from ("device", "host", "disk", "shared", "computed"),
  // where that was asked for.
  const std::vector<std::pair<std::string, std::uint64_t>>& sources() const { return sources_; }

 private:
  void on_event(const std::string& data);

  std::function<void(std::string_view)> on_text_;
  SseParser parser_;
  std::string text_;
  std::string finish_reason_;
  std::string error_;
  std::optional<std::uint64_t> prompt_tokens_;
  std::uint64_t cached_tokens_ = 0;
  std::uint64_t completion_tokens_ = 0;
  std::vector<std::pair<std::string, std::uint64_t>> sources_;
  bool done_ = false;
};

// The message of an error object, or the body itself where it is none.
std::string error_message(int http_status, std::string_view body);

// kBusy: it cannot answer now, but may soon. kFailed: not before somebody mends it. kAbsent: no server
// answers there. kUnsuited: a server answers, but its certificate is not trusted or it speaks something else.
enum class ServerHealth : std::uint8_t { kReady, kLoading, kBusy, kDraining, kFailed, kAbsent, kUnsuited };

// By the body of a 503.
ServerHealth health_of_refusal(std::string_view body);

// Thread-compatible.
class ChatClient {
 public:
  explicit ChatClient(ServerAddress address) : address_(std::move(address)) {}

  // One GET /health.
  struct Health {
    ServerHealth state = ServerHealth::kAbsent;
    std::string reason;  // but of kReady
  };
  Health health() const;

  // Streams one reply into `stream`. SIGINT closes the connection (which makes the server stop) and
  // counts as an end: `interrupted`.
  // Errors: kUnavailable (no server), kInvalidArgument and others as the server's answer says.
  struct Outcome {
    Status status;
    bool interrupted = false;
    std::optional<Nanos> first_text;  // from sending
    Nanos duration = 0;
  };
  Outcome chat(const std::string& body, ChatStream& stream) const;

 private:
  ServerAddress address_;
};

}  // namespace loci
