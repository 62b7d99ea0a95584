// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/services.h"

namespace loci {
namespace {

ApiError unavailable(std::string message, std::string code, std::uint32_t retry_after_seconds) {
  return {.http_status = 503,
          .type = "unavailable_error",
          .message = std::move(message),
          .param = {},
          .code = std::move(code),
          .retry_after_seconds = retry_after_seconds};
}

}  // namespace

ApiError stopping_error() {
  return unavailable("the server is stopping and begins no new requests; try again later", "draining", 5);
}

std::optional<ApiError> ApiServices::not_ready() const {
  if (draining.load()) return stopping_error();
  const ServedModel* model = served.load();
  if (model == nullptr) return unavailable("the model is still loading; try again later", "loading", 1);
  if (const Status health = model->engine->health(); !health.ok())
    return unavailable("the device is lost: " + health.message(), "device_lost", 60);
  return std::nullopt;
}

}  // namespace loci
