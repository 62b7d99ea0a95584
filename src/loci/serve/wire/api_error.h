// SPDX-License-Identifier: Apache-2.0
// Errors as clients of OpenAI's API know them, an HTTP status and
// {"error": {"message", "type", "param", "code"}}, or as those of Anthropic's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

struct ApiError {
  int http_status = 500;
  std::string type = "server_error";
  std::string message;
  std::string param;                                 // the field at fault; empty: null
  std::string code;                                  // empty: null
  std::optional<std::uint32_t> retry_after_seconds;  // becomes the Retry-After header
  std::string owner = {};                            // becomes the header kOwnerHeader; empty: there is none
  std::string operator_message = {};  // for the log alone, in place of the message; empty: the message
};

// Of an error: the server (ConversationStore::server()) that can do what was asked for. A front passes the
// request on to it.
inline constexpr std::string_view kOwnerHeader = "Loci-Owner";

// kInvalidArgument, kUnimplemented → 400; kNotFound → 404; kDeadlineExceeded → 408;
// kResourceExhausted → 429; kUnavailable, kCancelled → 503; the rest → 500.
ApiError api_error(const Status& status);
// Of an error of the conversation store: what it says of files, addresses and accounts is for the log alone.
// (What its kCancelled says is for clients: a turn was taken over, or nobody knows whether it was stored.)
ApiError store_error(const Status& status);
// `retry_after` in nanoseconds is rounded up to whole seconds, at least one.
ApiError api_error(const Status& status, std::int64_t retry_after);
// An error of HTTP itself: 405, 413, 431, ...
ApiError http_error(int http_status, std::string message, std::string code = {});
// 503 with Retry-After: nothing of the request was done, and it may be sent again.
ApiError unavailable_error(std::string message, std::string code, std::uint32_t retry_after_seconds);
// Likewise, for a new request once the server drains.
ApiError stopping_error();
// Likewise, for a while: answers that clients have yet to take leave no room for this one.
ApiError too_many_answers();
// `health` is Engine::health(), not ok: kDeviceLost, or kDeviceStalled while it stands still.
ApiError device_error(const Status& health);
// The prompt and at least one new token don't fit: 400 with both numbers. Clients shorten a conversation when
// they find OpenAI's or Anthropic's words in the message ("maximum context length is", "prompt is too long"),
// so it has both. Without `counted_all` the prompt has more than `prompt_tokens`.
ApiError context_length_error(std::size_t prompt_tokens, std::size_t context_tokens, std::string param,
                              bool counted_all = true);

// The code of a request that wants the server to hold the conversation where it doesn't: clients of
// Anthropic's API find it in error.details.error_code, and send the whole conversation instead.
inline constexpr std::string_view kThreadUnsupported = "thread_unsupported_request";

// Codes by which fronts and `loci chat` know what to do about a 503.
namespace error_codes {
inline constexpr std::string_view kLoading = "loading";
inline constexpr std::string_view kDraining = "draining";
inline constexpr std::string_view kDeviceLost = "device_lost";
inline constexpr std::string_view kDeviceStalled = "device_stalled";
inline constexpr std::string_view kTooManyConnections = "too_many_connections";
inline constexpr std::string_view kUnavailable = "unavailable";  // what all servers share is away: a store
}  // namespace error_codes
// The code in the body of an error; empty: it has none.
std::string code_of_error(std::string_view body);

// Whose clients read the error: {"error": {...}} or {"type": "error", "error": {...}}.
enum class ErrorStyle : std::uint8_t { kOpenAi, kAnthropic };

// One line of JSON.
std::string to_json(const ApiError& error, ErrorStyle style = ErrorStyle::kOpenAi);

}  // namespace loci
