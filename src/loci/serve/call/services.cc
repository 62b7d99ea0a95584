// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/call/services.h"

#include <fmt/format.h>

namespace loci {
namespace {

// So that whoever has all its places taken by followers can still end what they follow.
constexpr std::uint32_t kCancelsMore = 16;

}  // namespace

std::optional<ApiError> ApiServices::not_ready() const {
  if (draining.load()) return stopping_error();
  const ServedModel* model = served.load();
  if (model == nullptr)
    return unavailable_error("the model is still loading; try again later",
                             std::string(error_codes::kLoading), 1);
  return device_fault();
}

std::optional<ApiError> ApiServices::begin_reading(Call& call, Metering metering) {
  const std::optional<std::uint32_t> of_tenant = call.tenant->limits.concurrent_reads;
  const std::uint32_t reads_max = of_tenant.value_or(options.reads_max);
  const std::uint32_t more = metering == Metering::kRead ? 0 : kCancelsMore;
  call.reading = reads.take(of_tenant ? call.tenant->id : std::string(), reads_max + more);
  if (call.reading) return std::nullopt;
  ApiError error = api_error(resource_exhausted(
      fmt::format("rate limit reached: the limit is {} requests at once that read or follow responses and "
                  "conversations ({})",
                  reads_max, of_tenant ? "concurrent_reads" : "of all clients: half of max_connections")));
  error.code = "rate_limit_exceeded";
  return error;
}

std::optional<ApiError> ApiServices::device_fault() const {
  const ServedModel* model = served.load();
  if (model == nullptr) return std::nullopt;
  const Status health = model->engine->health();
  return health.ok() ? std::nullopt : std::optional<ApiError>(device_error(health));
}

}  // namespace loci
