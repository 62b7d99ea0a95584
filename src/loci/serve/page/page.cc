// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/page/page.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace loci {
namespace {

constexpr std::string_view kFolder = "/page/";
constexpr std::string_view kFirst = "index.html";

// The page runs its own scripts alone, asks this server alone, and stands in nobody's frame.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view type_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes{
      {{".html", "text/html; charset=utf-8"},
       {".css", "text/css; charset=utf-8"},
       {".js", "text/javascript; charset=utf-8"},
       {".svg", "image/svg+xml"}}};
  const auto found =
      std::ranges::find_if(kTypes, [&](const auto& type) { return name.ends_with(type.first); });
  return found == kTypes.end() ? "application/octet-stream" : found->second;
}

}  // namespace

bool is_page_path(std::string_view path) { return path == "/" || path.starts_with(kFolder); }

std::optional<HttpResponse> page_response(std::string_view path, const HttpRequest& request) {
  if (!is_page_path(path)) return std::nullopt;
  const std::string_view name = path == "/" ? kFirst : path.substr(kFolder.size());
  const auto file = std::ranges::find(page_files(), name, &PageFile::name);
  if (file == page_files().end()) return std::nullopt;
  const std::string tag = fmt::format("\"{:016x}\"", XXH3_64bits(file->content.data(), file->content.size()));
  HttpResponse response{.content_type = std::string(type_of(name)),
                        .body = {},
                        .headers = {{"ETag", tag},
                                    {"Cache-Control", "no-cache"},
                                    {"Content-Security-Policy", kPolicy},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Referrer-Policy", "no-referrer"}}};
  // (Weak or in a list: a cache between may have made it so, and the worst is that the file is sent.)
  if (request.header("If-None-Match").find(tag) != std::string_view::npos)
    response.status = 304;
  else
    response.body = file->content;
  return response;
}

}  // namespace loci
