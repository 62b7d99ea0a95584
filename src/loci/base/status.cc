// SPDX-License-Identifier: Apache-2.0
#include "loci/base/status.h"

namespace loci {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kNotFound: return "not_found";
    case StatusCode::kResourceExhausted: return "resource_exhausted";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kDeadlineExceeded: return "deadline_exceeded";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kDataLoss: return "data_loss";
    case StatusCode::kUnimplemented: return "unimplemented";
    case StatusCode::kInternal: return "internal";
  }
  return "unknown";
}

std::string Status::to_string() const {
  std::string text(status_code_name(code_));
  if (!field_.empty()) text += ": " + field_;
  if (!message_.empty()) text += ": " + message_;
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_, field_};
}

}  // namespace loci
