// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/services.h"

namespace loci {

std::optional<ApiError> ApiServices::not_ready() const {
  if (draining.load()) return stopping_error();
  const ServedModel* model = served.load();
  if (model == nullptr)
    return unavailable_error("the model is still loading; try again later",
                             std::string(error_codes::kLoading), 1);
  return device_fault();
}

std::optional<ApiError> ApiServices::device_fault() const {
  const ServedModel* model = served.load();
  if (model == nullptr) return std::nullopt;
  const Status health = model->engine->health();
  return health.ok() ? std::nullopt : std::optional<ApiError>(device_error(health));
}

}  // namespace loci
