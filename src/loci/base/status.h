// SPDX-License-Identifier: Apache-2.0
// Status and Result report everything that can go wrong in operation. No exception crosses a module's border.
// A message says what was expected, what was found and what to do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "loci/base/check.h"

namespace loci {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong; the message names the field and the limit
  kNotFound,
  kResourceExhausted,  // a bound was reached; try again later
  kUnavailable,        // stopping, or not yet ready
  kDeadlineExceeded,
  kCancelled,
  kDataLoss,  // stored bytes are damaged
  kUnimplemented,
  kInternal,  // a fault of this program or its machine
};

std::string_view status_code_name(StatusCode code);

// Immutable; copyable; thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The name of the field at fault in the request, file or command line; empty if there is none.
  const std::string& field() const { return field_; }
  // "code: field: message"
  std::string to_string() const;

  // The same error with a context before it: "context: message".
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
};

inline Status invalid_argument(std::string message, std::string field = {}) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(field)};
}
inline Status not_found(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status data_loss(std::string message, std::string field = {}) {
  return {StatusCode::kDataLoss, std::move(message), std::move(field)};
}
inline Status resource_exhausted(std::string message, std::string field = {}) {
  return {StatusCode::kResourceExhausted, std::move(message), std::move(field)};
}
inline Status unimplemented(std::string message, std::string field = {}) {
  return {StatusCode::kUnimplemented, std::move(message), std::move(field)};
}
inline Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// A value, or the error because of which there is none. Accessing the one that is absent is a bug and aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    LOCI_CHECK(!std::get<1>(state_).ok(), "a Result without a value needs an error");
  }

  bool ok() const { return state_.index() == 0; }
  T& value() & {
    check_ok();
    return std::get<0>(state_);
  }
  const T& value() const& {
    check_ok();
    return std::get<0>(state_);
  }
  T&& value() && {
    check_ok();
    return std::get<0>(std::move(state_));
  }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void check_ok() const {
    if (!ok()) [[unlikely]]
      check_failed("ok()", std::get<1>(state_).to_string().c_str());
  }

  std::variant<T, Status> state_;
};

}  // namespace loci

#define LOCI_CONCAT_INNER(a, b) a##b
#define LOCI_CONCAT(a, b) LOCI_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Status) from the enclosing function, if it is one.
#define LOCI_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                       \
    if (::loci::Status loci_status_ = (expression); !loci_status_.ok()) return loci_status_; \
  } while (false)

// LOCI_ASSIGN_OR_RETURN(auto x, make_x()): x is the value, or the error is returned.
#define LOCI_ASSIGN_OR_RETURN(declaration, expression) \
  LOCI_ASSIGN_OR_RETURN_IMPL(LOCI_CONCAT(loci_result_, __LINE__), declaration, expression)
#define LOCI_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  declaration = std::move(result).value()
