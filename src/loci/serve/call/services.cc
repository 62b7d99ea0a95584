// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/services.h"

namespace loci {

std::optional<ApiError> ApiServices::not_ready() const {
  if (draining.load()) return stopping_error();
  const ServedModel* model = served.load();
  if (model == nullptr) return unavailable_error("the model is still loading; try again later", "loading", 1);
  if (const Status health = model->engine->health(); !health.ok()) return device_lost_error(health);
  return std::nullopt;
}

}  // namespace loci
