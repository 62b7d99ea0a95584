// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/api_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/base/json_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

struct Mapping {
  int http_status;
  const char* type;
  const char* code;
};

Mapping mapping(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument: return {400, "invalid_request_error", "invalid_value"};
    case StatusCode::kUnimplemented: return {400, "invalid_request_error", "unsupported_value"};
    case StatusCode::kNotFound: return {404, "invalid_request_error", "not_found"};
    case StatusCode::kDeadlineExceeded: return {408, "timeout_error", "deadline_exceeded"};
    case StatusCode::kResourceExhausted: return {429, "rate_limit_error", "overloaded"};
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled: return {503, "unavailable_error", error_codes::kUnavailable.data()};
    default: return {500, "server_error", "internal_error"};
  }
}

const char* anthropic_type(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError api_error(const Status& status) {
  const Mapping to = mapping(status.code());
  ApiError error{.http_status = to.http_status,
                 .type = to.type,
                 .message = status.message(),
                 .param = status.field(),
                 .code = to.code,
                 .retry_after_seconds = {}};
  if (!error.param.empty()) error.message = fmt::format("{}: {}", error.param, error.message);
  if (to.http_status == 429 || to.http_status == 503) error.retry_after_seconds = 1;
  return error;
}

ApiError store_error(const Status& status) {
  ApiError error = api_error(status);
  const char* what = status.code() == StatusCode::kUnavailable ? "cannot do this now; try again later"
                     : status.code() == StatusCode::kDataLoss
                         ? "is damaged; its operator finds more in the log"
                     : status.code() == StatusCode::kInternal ? "failed; its operator finds more in the log"
                                                              : nullptr;
  if (what == nullptr) return error;
  error.operator_message = std::exchange(error.message, fmt::format("the conversation store {}", what));
  return error;
}

ApiError unavailable_error(std::string message, std::string code, std::uint32_t retry_after_seconds) {
  return {.http_status = 503,
          .type = "unavailable_error",
          .message = std::move(message),
          .param = {},
          .code = std::move(code),
          .retry_after_seconds = retry_after_seconds};
}

ApiError stopping_error() {
  return unavailable_error("the server is stopping and begins no new requests; try again later",
                           std::string(error_codes::kDraining), 5);
}

ApiError too_many_answers() {
  ApiError error = http_error(503,
                              "answers that clients have not taken yet leave no room for this one, or this "
                              "client's are larger than its share; read those first, or try again later",
                              "too_many_answers");
  error.retry_after_seconds = 1;
  return error;
}

ApiError device_error(const Status& health) {
  if (health.code() == StatusCode::kDeadlineExceeded)
    return unavailable_error("the device stands still: " + health.message(),
                             std::string(error_codes::kDeviceStalled), 10);
  return unavailable_error("the device is lost: " + health.message(), std::string(error_codes::kDeviceLost),
                           60);
}

ApiError api_error(const Status& status, std::int64_t retry_after) {
  ApiError error = api_error(status);
  if (error.retry_after_seconds) {
    const std::int64_t seconds = (std::max<std::int64_t>(retry_after, 0) + 999'999'999) / 1'000'000'000;
    error.retry_after_seconds = static_cast<std::uint32_t>(std::clamp<std::int64_t>(seconds, 1, 3600));
  }
  return error;
}

ApiError http_error(int http_status, std::string message, std::string code) {
  const char* type = http_status >= 500 ? "server_error" : "invalid_request_error";
  return {.http_status = http_status,
          .type = type,
          .message = std::move(message),
          .param = {},
          .code = std::move(code),
          .retry_after_seconds = {}};
}

ApiError context_length_error(std::size_t prompt_tokens, std::size_t context_tokens, std::string param,
                              bool counted_all) {
  ApiError error = http_error(
      400,
      fmt::format("{}: This model's maximum context length is {} tokens, and a reply needs at least "
                  "one of them. The prompt is too long: {} tokens > {} maximum{}",
                  param, context_tokens, prompt_tokens, context_tokens - 1,
                  counted_all ? "" : " (not all of it was counted)"),
      "context_length_exceeded");
  error.param = std::move(param);
  return error;
}

std::string code_of_error(std::string_view body) {
  const Json answer = read_json<Json>(body, {}).value;
  if (!answer.is_object()) return {};
  const auto error = answer.find("error");
  if (error == answer.end() || !error->is_object()) return {};
  const auto text = [](const Json& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto details = error->find("details");
  const bool is_anthropics = details != error->end() && details->is_object();
  return is_anthropics ? text(*details, "error_code") : text(*error, "code");
}

std::string to_json(const ApiError& error, ErrorStyle style) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json json;
  if (style == ErrorStyle::kAnthropic) {
    json = {{"type", "error"},
            {"error", {{"type", anthropic_type(error.http_status)}, {"message", error.message}}}};
    // Fronts know by it what to do about a 503.
    const bool is_told =
        error.code == kThreadUnsupported || (error.http_status == 503 && !error.code.empty());
    if (is_told) json["error"]["details"] = {{"error_code", error.code}};
  } else {
    json["error"] = {{"message", error.message},
                     {"type", error.type},
                     {"param", text_or_null(error.param)},
                     {"code", text_or_null(error.code)}};
  }
  return dump_json(json);
}

}  // namespace loci
