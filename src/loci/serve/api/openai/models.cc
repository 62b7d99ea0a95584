// SPDX-License-Identifier: Apache-2.0
// GET /v1/models, /v1/models/{id}.
#include <array>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

#include "loci/serve/api/openai/endpoints.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/model_list.h"

namespace loci {
namespace asio = boost::asio;

namespace {

// "2026-11-25T08:30:00Z", of seconds since 1970.
std::string utc_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&time, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

Json model_json(const ServedModel& served) {
  const ModelSpec& spec = served.model->spec;
  Json meta = {
      {"family", spec.family},         {"name", spec.display_name},
      {"vocabulary", spec.vocabulary}, {"context_length_trained", spec.context_length},
      {"layers", spec.layer_count()},  {"state_bytes_per_token", served.backend.block_bytes / kBlockTokens}};
  // As they were written: 0.8, not what a float makes of it.
  const SamplingParams& sampling = served.defaults.sampling;
  meta["default_sampling"] = {{"temperature", decimal_json(sampling.temperature)},
                              {"top_p", decimal_json(sampling.top_p)},
                              {"top_k", sampling.top_k},
                              {"min_p", decimal_json(sampling.min_p)},
                              {"repeat_penalty", decimal_json(sampling.repetition_penalty)}};
  // OpenAI's members and Anthropic's: both kinds of client ask here.
  return {{"id", served.model->id},
          {"object", "model"},
          {"created", served.loaded_at},
          {"owned_by", "loci"},
          {"type", "model"},
          {"display_name", spec.display_name.empty() ? served.model->id : spec.display_name},
          {"created_at", utc_time(served.loaded_at)},
          {"max_input_tokens", served.context_tokens},
          {"max_tokens", served.context_tokens},
          {"max_model_len", served.context_tokens},
          {"meta", std::move(meta)}};
}

asio::awaitable<void> answer_model_list(ApiServices& services, Call& call) {
  const ServedModel* served = services.served.load();
  if (served == nullptr) {
    co_await call.fail(*services.not_ready());
    co_return;
  }
  Json data = Json::array({model_json(*served)});
  for (const std::string& alias : served->aliases) {
    data.push_back(model_json(*served));
    data.back()["id"] = alias;
    data.back()["root"] = served->model->id;
  }
  std::string list = model_list_json(std::move(data));
  co_await call.answer(std::move(list));
}

asio::awaitable<void> answer_one(ApiServices& services, Call& call) {
  const ServedModel* served = services.served.load();
  if (served == nullptr) {
    co_await call.fail(*services.not_ready());
    co_return;
  }
  if (std::optional<ApiError> error = check_model(call.parameters[0], *served))
    co_await call.fail(*std::move(error));
  else
    co_await call.answer(dump_json(model_json(*served)));
}

}  // namespace

void add_models_endpoints(Router& router, ApiServices& services) {
  router.add({.pattern = "/v1/models",
              .handler = [&services](Call& call) { return answer_model_list(services, call); }});
  // A model's id may have slashes.
  router.add({.pattern = "/v1/models/{model...}",
              .handler = [&services](Call& call) { return answer_one(services, call); }});
}

}  // namespace loci
