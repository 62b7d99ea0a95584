// SPDX-License-Identifier: Apache-2.0
// GET /v1/models, /v1/models/{id}.
#include <fmt/format.h>

#include "loci/serve/api/openai/endpoints.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace asio = boost::asio;

namespace {

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
  return {{"id", served.model->id},
          {"object", "model"},
          {"created", served.loaded_at},
          {"owned_by", "loci"},
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
  Json list = {{"object", "list"}, {"data", std::move(data)}};
  co_await call.answer(dump_json(list));
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
