// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/openapi/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/verb.hpp>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "loci/base/ascii.h"
#include "loci/base/check.h"
#include "loci/base/version.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/openapi/parts.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace asio = boost::asio;
namespace {

std::string method_of(const Route& route) { return std::string(boost::beast::http::to_string(route.method)); }

// "/v1/models/{model...}" is "/v1/models/{model}" in a document.
std::string path_of(const Route& route) {
  std::string path = route.pattern;
  if (const std::size_t rest = path.find("...}"); rest != std::string::npos) path.erase(rest, 3);
  return path;
}

Json path_parameters(const std::string& path) {
  Json out = Json::array();
  for (std::size_t begin = path.find('{'); begin != std::string::npos; begin = path.find('{', begin + 1)) {
    const std::string name = path.substr(begin + 1, path.find('}', begin) - begin - 1);
    out.push_back({{"name", name},
                   {"in", "path"},
                   {"required", true},
                   {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  return out;
}

// Puts the limits where their names stand.
Status resolve(Json& json) {
  if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    if (!text.starts_with('$')) return {};
    const auto limit = openapi_limits().find(text.substr(1));
    if (limit == openapi_limits().end())
      return internal_error(fmt::format("the API's description names the unknown limit {}", text));
    json = limit->second;
    return {};
  }
  if (!json.is_structured()) return {};
  for (Json& member : json) LOCI_RETURN_IF_ERROR(resolve(member));
  return {};
}

// Adds the members of `from`, none of which `into` has.
Status merge(Json& into, Json& from) {
  for (auto& [name, value] : from.items()) {
    if (into.contains(name)) return internal_error("the API's description has two of " + name);
    into[name] = std::move(value);
  }
  return {};
}

// All parts as one document.
Result<Json> merged_parts() {
  Json out = {{"paths", Json::object()},
              {"components", {{"schemas", Json::object()}, {"responses", Json::object()}}}};
  for (const auto& [name, text] : openapi_parts()) {
    Json part = json_or_null(text);
    if (!part.is_object())
      return internal_error(fmt::format("a part of the API's description is no JSON: {}", name));
    LOCI_RETURN_IF_ERROR(resolve(part));
    for (auto& [path, operations] : part["paths"].items()) {
      if (!out["paths"].contains(path)) out["paths"][path] = Json::object();
      LOCI_RETURN_IF_ERROR(merge(out["paths"][path], operations));
    }
    LOCI_RETURN_IF_ERROR(merge(out["components"]["schemas"], part["schemas"]));
    LOCI_RETURN_IF_ERROR(merge(out["components"]["responses"], part["responses"]));
  }
  return out;
}

// What the route says of its operation: the answers of errors, who may call it, its path's parameters.
void complete(Json& operation, const Route& route) {
  const char* error = route.error_style == ErrorStyle::kAnthropic ? "#/components/responses/MessagesError"
                                                                  : "#/components/responses/Error";
  const bool tenant = route.access != Access::kOpen;
  const std::vector<const char*> statuses =
      tenant ? std::vector<const char*>{"400", "401", "403", "404", "408", "413", "415", "429", "503"}
             : std::vector<const char*>{"400", "403", "408", "413", "503"};
  for (const char* status : statuses) {
    if (!operation["responses"].contains(status)) operation["responses"][status] = {{"$ref", error}};
  }
  operation["security"] = Json::array();
  if (tenant) operation["security"] = json_or_null(R"([{}, {"bearer": []}, {"apiKey": []}])");
  Json parameters = path_parameters(path_of(route));
  if (parameters.empty()) return;
  if (operation.contains("parameters")) {
    for (Json& one : operation["parameters"]) parameters.push_back(std::move(one));
  }
  operation["parameters"] = std::move(parameters);
}

}  // namespace

const std::map<std::string, std::int64_t>& openapi_limits() {
  static const std::map<std::string, std::int64_t> limits = {
      {"choices_max", kChoicesMax},
      {"prompts_max", kPromptsMax},
      {"stop_strings_max", kStopStringsMax},
      {"stop_string_bytes_max", kStopStringBytesMax},
      {"stop_tokens_max", kStopTokensMax},
      {"tools_max", kToolsMax},
      {"logit_bias_max", kLogitBiasMax},
      {"top_logprobs_max", kTopLogprobsMax},
      {"tokens_max", std::numeric_limits<std::int32_t>::max()},
      {"token_id_max", std::numeric_limits<std::uint32_t>::max()},
  };
  return limits;
}

Result<Json> openapi_document(const Router& router) {
  LOCI_ASSIGN_OR_RETURN(Json parts, merged_parts());
  Json paths = Json::object();
  for (const Route& route : router.routes()) {
    const std::string path = path_of(route);
    const std::string method = lower_ascii(method_of(route));
    if (!parts["paths"].contains(path) || !parts["paths"][path].contains(method)) continue;
    Json& operation = paths[path][method];
    operation = parts["paths"][path][method];
    complete(operation, route);
  }
  Json components = std::move(parts["components"]);
  components["securitySchemes"] = {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
                                   {"apiKey", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
  return Json{
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Loci"},
        {"version", kVersion},
        {"description",
         "Unknown fields are accepted. A field that is null counts as absent. See docs/http-api.md."}}},
      {"paths", std::move(paths)},
      {"components", std::move(components)}};
}

const std::vector<std::string>& openapi_paths() {
  static const std::vector<std::string> paths = [] {
    const Result<Json> parts = merged_parts();
    LOCI_CHECK(parts.ok(), parts.status().message().c_str());
    std::vector<std::string> out;
    for (const auto& [path, operations] : parts->at("paths").items()) out.push_back(path);
    std::ranges::stable_partition(
        out, [](const std::string& path) { return path.find('{') == std::string::npos; });
    return out;
  }();
  return paths;
}

Status add_openapi_endpoint(Router& router) {
  const auto text = std::make_shared<std::string>();
  router.add({.pattern = "/openapi.json", .access = Access::kOpen, .handler = [text](Call& call) {
                return call.answer(*text);
              }});
  LOCI_ASSIGN_OR_RETURN(const Json document, openapi_document(router));
  *text = dump_json(document);
  return {};
}

}  // namespace loci
