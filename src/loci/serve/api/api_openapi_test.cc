// SPDX-License-Identifier: Apache-2.0
// The document and the server agree: on the operations, and on the limits of every numeric field.
#include "loci/serve/openapi/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/api/anthropic/messages_request.h"
#include "loci/serve/api/api.h"
#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/api/openai/completion_request.h"
#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/unserved_fields.h"
#include "loci/serve/openapi/parts.h"
#include "loci/serve/page/page.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

// Every endpoint of the API; none is called.
Router all_routes() {
  static WorkerPool workers(1);
  static Tenants tenants;
  static TokenHistory history;
  static ServeMetrics metrics("test");
  static const SystemClock clock;
  static TenantLimiter limiter(clock);
  static PublicPrefixes public_prefixes;
  static ApiServices services{{.workers = workers,
                               .store_thread = workers,
                               .limiter = limiter,
                               .history = history,
                               .metrics = metrics,
                               .clock = clock,
                               .log = nullptr},
                              {},
                              nullptr,
                              tenants,
                              public_prefixes};
  return Api(services).router();
}

Json document() {
  Result<Json> out = openapi_document(all_routes());
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? std::move(*out) : Json::object();
}

// "get /v1/models/{model}" of every operation under a document's or a part's "paths".
std::set<std::string> operations_of(const Json& described) {
  std::set<std::string> out;
  const Json paths = described.value("paths", Json::object());
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) out.insert(method + " " + path);
  }
  return out;
}

// The document leaves out routes that no part describes, and parts of which there is no route. (The web page
// is for people.)
TEST(OpenApi, EveryRouteIsDescribedAndEveryDescriptionHasItsRoute) {
  const Router router = all_routes();
  const std::set<std::string> in_document = operations_of(document());
  const auto is_page = [](const Route& route) { return is_page_path(route.pattern); };
  const auto pages = std::ranges::count_if(router.routes(), is_page);
  EXPECT_EQ(in_document.size(), router.routes().size() - static_cast<std::size_t>(pages));
  std::set<std::string> in_parts;
  for (const OpenApiPart& part : openapi_parts()) in_parts.merge(operations_of(Json::parse(part.text)));
  EXPECT_EQ(in_document, in_parts);
}

// Calls `visit` on every object of the document.
void each_object(const Json& json, const std::function<void(const Json&)>& visit) {
  if (json.is_object()) visit(json);
  if (!json.is_structured()) return;
  for (const Json& member : json) each_object(member, visit);
}

TEST(OpenApi, EveryReferenceHasItsTarget) {
  const Json all = document();
  std::size_t references = 0;
  each_object(all, [&](const Json& object) {
    const auto at = object.find("$ref");
    if (at == object.end()) return;
    ++references;
    const std::string target = at->get<std::string>();
    ASSERT_TRUE(target.starts_with("#/")) << target;
    EXPECT_TRUE(all.contains(Json::json_pointer(target.substr(1)))) << target;
  });
  EXPECT_GT(references, 20u);
}

TEST(OpenApi, EveryOperationHasAnIdOfItsOwnAndAnswers) {
  std::set<std::string> ids;
  const Json all = document();
  for (const auto& [path, operations] : all["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_TRUE(ids.insert(operation.at("operationId")).second) << path;
      EXPECT_TRUE(operation["responses"].contains("400")) << path;
      EXPECT_EQ(operation["security"].empty(), !operation["responses"].contains("401")) << path;
    }
  }
}

// Each numeric property of the schema is taken at its bounds and refused beyond them.
void expect_limits(const Json& schema, std::size_t count,
                   const std::function<bool(const std::string&, const Json&)>& parse) {
  std::size_t tried = 0;
  for (const auto& [name, property] : schema["properties"].items()) {
    // What only means something beside another field.
    if (name == "seed" || name == "top_logprobs" || name == "best_of") continue;
    if (!property.contains("maximum")) continue;
    const double step = property["type"][0] == "integer" ? 1 : 0.5;
    const auto accepts = [&, field = name](double value) {
      return parse(field, step == 1 ? Json(static_cast<std::int64_t>(value)) : Json(value));
    };
    const double maximum = property["maximum"].get<double>();
    EXPECT_TRUE(accepts(maximum)) << name;
    EXPECT_FALSE(accepts(maximum < 1e30 ? maximum + step : maximum * 2)) << name;
    ++tried;
    if (property.contains("minimum")) {
      const double minimum = property["minimum"].get<double>();
      EXPECT_TRUE(accepts(minimum)) << name;
      EXPECT_FALSE(accepts(minimum - step)) << name;
    }
    if (property.contains("exclusiveMinimum")) {
      EXPECT_FALSE(accepts(property["exclusiveMinimum"].get<double>())) << name;
    }
  }
  EXPECT_EQ(tried, count);
}

// The properties of a schema and of all that it is put together from.
std::set<std::string> fields_of(const Json& schemas, const Json& schema) {
  if (const auto target = schema.find("$ref"); target != schema.end()) {
    const std::string path = target->get<std::string>();
    return fields_of(schemas, schemas.at(path.substr(path.rfind('/') + 1)));
  }
  std::set<std::string> out;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, property] : properties.items()) out.insert(name);
  const Json parts = schema.value("allOf", Json::array());
  for (const Json& part : parts) out.merge(fields_of(schemas, part));
  return out;
}

TEST(OpenApi, EveryFieldOfGenerationsIsDescribed) {
  const Json schemas = document()["components"]["schemas"];
  std::set<std::string> described = fields_of(schemas, schemas["ChatRequest"]);
  described.merge(fields_of(schemas, schemas["CompletionRequest"]));
  const std::span<const std::string_view> unserved = unserved_field_names();
  for (const std::string_view name : generation_field_names()) {
    if (std::ranges::count(unserved, name) == 0) {
      EXPECT_TRUE(described.contains(std::string(name))) << name;
    }
  }
}

// What docs/http-api-responses.md lists.
TEST(OpenApi, EveryFieldOfResponsesIsDescribed) {
  const Json schemas = document()["components"]["schemas"];
  const std::set<std::string> described = fields_of(schemas, schemas["ResponseRequest"]);
  for (const char* name : {"background",
                           "cache_salt",
                           "chat_template_kwargs",
                           "conversation",
                           "frequency_penalty",
                           "grammar",
                           "guided_choice",
                           "guided_grammar",
                           "guided_json",
                           "guided_regex",
                           "ignore_eos",
                           "include",
                           "input",
                           "instructions",
                           "loci",
                           "logit_bias",
                           "max_output_tokens",
                           "max_tool_calls",
                           "metadata",
                           "min_p",
                           "min_tokens",
                           "model",
                           "parallel_tool_calls",
                           "presence_penalty",
                           "previous_response_id",
                           "prompt_cache_key",
                           "reasoning",
                           "repeat_penalty",
                           "repetition_penalty",
                           "safety_identifier",
                           "seed",
                           "stop",
                           "stop_token_ids",
                           "store",
                           "stream",
                           "stream_options",
                           "structured_outputs",
                           "temperature",
                           "text",
                           "tool_choice",
                           "tools",
                           "top_k",
                           "top_logprobs",
                           "top_p",
                           "truncation",
                           "user"})
    EXPECT_TRUE(described.contains(name)) << name;
}

// What docs/http-api.md lists.
TEST(OpenApi, EveryFieldOfMessagesIsDescribed) {
  const Json schemas = document()["components"]["schemas"];
  const std::set<std::string> described = fields_of(schemas, schemas["MessagesRequest"]);
  for (const char* name : {"cache_salt",     "chat_template_kwargs",
                           "ignore_eos",     "loci",
                           "logit_bias",     "max_tokens",
                           "messages",       "metadata",
                           "min_p",          "min_tokens",
                           "model",          "output_config",
                           "output_format",  "repetition_penalty",
                           "seed",           "service_tier",
                           "stop_sequences", "stop_token_ids",
                           "stream",         "system",
                           "temperature",    "thinking",
                           "tool_choice",    "tools",
                           "top_k",          "top_p"})
    EXPECT_TRUE(described.contains(name)) << name;
}

TEST(OpenApi, LimitsOfGenerationsAreTheParsers) {
  const Json schemas = document()["components"]["schemas"];
  const auto accepts = [](const std::string& field, const Json& value) {
    Json request = {{"prompt", "x"}};
    if (field == "min_tokens") request["max_tokens"] = std::numeric_limits<std::int32_t>::max();
    request[field] = Json(value);
    return parse_completion_request(request).ok();
  };
  expect_limits(schemas["SharedFields"], 9, accepts);
  expect_limits(schemas["GenerationFields"], 1, accepts);
}

TEST(OpenApi, LimitsOfResponsesAreTheParsers) {
  const Json schemas = document()["components"]["schemas"];
  const auto accepts = [](const std::string& field, const Json& value) {
    Json request = {{"input", "x"}};
    request[field] = Json(value);
    return parse_response_request(request, true).ok();
  };
  expect_limits(schemas["SharedFields"], 9, accepts);
  expect_limits(schemas["ResponseRequest"]["allOf"][1], 2, accepts);
}

TEST(OpenApi, LimitsOfMessagesAreTheParsers) {
  const Json schemas = document()["components"]["schemas"];
  expect_limits(schemas["MessagesRequest"], 7, [](const std::string& field, const Json& value) {
    Json request = {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", "x"}}}}};
    if (field == "min_tokens") request["max_tokens"] = std::numeric_limits<std::int32_t>::max();
    request[field] = Json(value);
    return parse_messages_request(request, MessagesPurpose::kReply).ok();
  });
}

TEST(OpenApi, LimitsOfListsAreTheParsers) {
  const Json schemas = document()["components"]["schemas"];
  const auto accepts = [](const std::string& field, const Json& value) {
    Json request = {{"prompt", "x"}};
    request[field] = value;
    return parse_completion_request(request).ok();
  };
  const std::size_t stops = schemas["SharedFields"]["properties"]["stop"]["anyOf"][2]["maxItems"];
  EXPECT_TRUE(accepts("stop", std::vector<std::string>(stops, "x")));
  EXPECT_FALSE(accepts("stop", std::vector<std::string>(stops + 1, "x")));
  const std::size_t tokens = schemas["StopTokenIds"]["anyOf"][1]["maxItems"];
  EXPECT_TRUE(accepts("stop_token_ids", std::vector<int>(tokens, 1)));
  EXPECT_FALSE(accepts("stop_token_ids", std::vector<int>(tokens + 1, 1)));
  const Json& own = schemas["CompletionRequest"]["allOf"][2]["properties"];
  const std::size_t prompts = own["prompt"]["anyOf"][1]["maxItems"];
  EXPECT_TRUE(accepts("prompt", std::vector<std::string>(prompts, "x")));
  EXPECT_FALSE(accepts("prompt", std::vector<std::string>(prompts + 1, "x")));
  const std::uint32_t alternatives = own["logprobs"]["anyOf"][2]["maximum"];
  EXPECT_TRUE(accepts("logprobs", alternatives));
  EXPECT_FALSE(accepts("logprobs", alternatives + 1));
  const std::uint32_t best_of = own["best_of"]["maximum"];
  EXPECT_TRUE(accepts("best_of", best_of));
  EXPECT_FALSE(accepts("best_of", best_of + 1));
}

}  // namespace
}  // namespace loci
