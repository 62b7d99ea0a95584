// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/front_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <set>
#include <string>
#include <utility>

#include "loci/base/ascii.h"
#include "loci/base/json_reader.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/model_list.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

std::string_view plain(const beast::string_view& text) { return {text.data(), text.size()}; }

// Of one connection, or written anew by who passes the message on.
bool is_of_connection(const beast::string_view& name) {
  static constexpr std::array<beast::string_view, 20> kNames = {"Connection",
                                                                "Keep-Alive",
                                                                "Proxy-Connection",
                                                                "Proxy-Authenticate",
                                                                "Proxy-Authorization",
                                                                "TE",
                                                                "Trailer",
                                                                "Transfer-Encoding",
                                                                "Upgrade",
                                                                "Content-Length",
                                                                "Host",
                                                                "Expect",
                                                                "X-Request-Id",
                                                                "Server",
                                                                "Date",
                                                                "X-Loci-Member",
                                                                "Loci-Reply",
                                                                "Loci-Prefill",
                                                                "Loci-Owner",
                                                                "HTTP2-Settings"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](const auto& one) { return beast::iequals(one, name); });
}

// What a client named in Connection, in lower case: it is between the client and the front too.
std::set<std::string> names_in(std::string_view connection) {
  std::set<std::string> out;
  for (const beast::string_view name : http::token_list(connection)) out.insert(lower_ascii(plain(name)));
  return out;
}

}  // namespace

ApiError no_instance(std::string message) {
  ApiError error = http_error(503, std::move(message), "no_instance");
  error.type = "unavailable_error";
  error.retry_after_seconds = 1;
  return error;
}

std::string request_head(const HttpRequest& request, std::size_t body_bytes, std::string_view address,
                         std::string_view request_id, std::string_view header) {
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nX-Request-Id: {}\r\n", request.method_text,
                                request.target, address, request_id);
  const std::set<std::string> named = names_in(request.header("Connection"));
  for (const auto& [name, value] : request.headers) {
    if (is_of_connection(name) || named.contains(lower_ascii(name))) continue;
    out += fmt::format("{}: {}\r\n", name, value);
  }
  const bool has_body = body_bytes > 0 || request.method == http::verb::post;
  if (has_body) out += fmt::format("Content-Length: {}\r\n", body_bytes);
  out += header;
  return out + "\r\n";
}

HttpResponse response_of(const http::response_header<>& header) {
  HttpResponse out{
      .status = static_cast<int>(header.result_int()), .content_type = {}, .body = {}, .headers = {}};
  for (const auto& field : header) {
    const beast::string_view name = field.name_string();
    if (field.name() == http::field::content_type)
      out.content_type = plain(field.value());
    else if (!is_of_connection(name) && !beast::iequals(name, "Cache-Control") &&
             !beast::iequals(name, "X-Accel-Buffering"))
      out.headers.emplace_back(plain(name), plain(field.value()));
  }
  return out;
}

bool has_large_body(const HttpRequest& request) {
  if (request.is_chunked) return true;
  const std::string_view length = request.header("Content-Length");
  std::uint64_t bytes = 0;
  const auto read = std::from_chars(length.data(), length.data() + length.size(), bytes);
  return read.ec == std::errc::result_out_of_range || bytes > ByteBudget::kFreeBytes;
}

HttpRequest models_request(const HttpRequest& request) {
  HttpRequest out{.target = "/v1/models"};
  for (const char* name : {"Authorization", "X-Api-Key", "Origin", "traceparent"}) {
    if (const auto value = request.find(name)) out.headers.emplace_back(name, *value);
  }
  return out;
}

std::string in_style_of(RoutedApi api, const HttpResponse& refusal) {
  const Json body = read_json<Json>(refusal.body, {}).value;
  if (api != RoutedApi::kMessages || !body.is_object() || !body.contains("error")) return refusal.body;
  const Json& error = body["error"];
  const bool has_message = error.is_object() && error.contains("message") && error["message"].is_string();
  return to_json(http_error(refusal.status, has_message ? error["message"].get<std::string>() : "refused"),
                 ErrorStyle::kAnthropic);
}

bool is_not_ready(std::string_view code) {
  return code == error_codes::kDraining || code == error_codes::kLoading ||
         code == error_codes::kDeviceLost || code == error_codes::kDeviceStalled ||
         code == error_codes::kTooManyConnections;
}

std::string error_event(RoutedApi api, const ApiError& error, std::uint64_t number) {
  if (api == RoutedApi::kMessages)
    return fmt::format("event: error\n{}", sse_event(to_json(error, ErrorStyle::kAnthropic)));
  if (api == RoutedApi::kResponses) {
    const Json event = {{"type", "error"},
                        {"sequence_number", number},
                        {"code", error.code},
                        {"message", error.message},
                        {"param", nullptr}};
    return fmt::format("event: error\n{}", sse_event(dump_json(event)));
  }
  return sse_event(to_json(error)) + sse_event(kSseDone);
}

std::optional<std::uint64_t> number_after(std::string_view events) {
  constexpr std::string_view kNumber = "\"sequence_number\":";
  const std::size_t at = events.rfind(kNumber);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const char* begin = events.data() + at + kNumber.size();
  const auto read = std::from_chars(begin, events.data() + events.size(), number);
  return read.ec == std::errc() ? std::optional<std::uint64_t>(number + 1) : std::nullopt;
}

std::string WholeEvents::push(std::string_view piece) {
  part_ += piece;
  const std::size_t end = part_.rfind("\n\n");
  const std::size_t whole =
      end != std::string::npos ? end + 2 : (part_.size() > kEventMax ? part_.size() : 0);
  std::string out = part_.substr(0, whole);
  part_.erase(0, whole);
  return out;
}

namespace {

bool is_of_pages(std::string_view name) {
  constexpr std::string_view kCors = "Access-Control-";
  return beast::iequals(name.substr(0, kCors.size()), kCors) || beast::iequals(name, "Vary");
}

}  // namespace

bool ModelUnion::add(HttpResponse response) {
  if (response.status != 200) {
    refusal_ = std::move(response);
    return true;
  }
  const Json list = read_json<Json>(response.body, {}).value;
  if (!list.is_object() || !list.contains("data") || !list["data"].is_array()) return false;
  if (data_.empty()) {
    headers_ = std::move(response.headers);
    std::erase_if(headers_, [](const auto& header) { return !is_of_pages(header.first); });
  }
  for (const Json& model : list["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) return false;
    const std::string id = model["id"].get<std::string>();
    if (std::find(ids_.begin(), ids_.end(), id) != ids_.end()) continue;
    ids_.push_back(id);
    data_.push_back(model);
  }
  return true;
}

HttpResponse ModelUnion::take() {
  if (data_.empty()) return *std::move(refusal_);
  return {.body = model_list_json(std::move(data_)), .headers = std::move(headers_)};
}

std::string front_metrics(const FrontCounts& counts, const FrontInstances& instances, const FrontFeeds& feeds,
                          std::uint64_t running, const std::optional<TraceCounts>& traces) {
  std::string out;
  const auto begin = [&](const char* name, const char* help, const char* type) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  begin("loci_front_instances", "Instances that the front knows, by what they do", "gauge");
  out += fmt::format(
      "loci_front_instances{{state=\"serving\"}} {}\nloci_front_instances{{state=\"draining\"}} {}\n"
      "loci_front_instances{{state=\"unlisted\"}} {}\n",
      instances.serving, instances.draining, instances.unlisted);
  begin("loci_front_requests_running", "Requests that were sent to instances and have not ended", "gauge");
  out += fmt::format("loci_front_requests_running {}\n", running);
  begin("loci_front_requests_total", "Requests by who answered them", "counter");
  out += fmt::format(
      "loci_front_requests_total{{by=\"instance\"}} {}\nloci_front_requests_total{{by=\"front\"}} {}\n",
      counts.answered, counts.refused);
  begin("loci_front_retries_total", "Requests that were sent to another instance", "counter");
  out += fmt::format("loci_front_retries_total {}\n", counts.retried);
  begin("loci_front_redirects_total",
        "Requests that were sent on to the instance that makes the response, which another one had named",
        "counter");
  out += fmt::format("loci_front_redirects_total {}\n", counts.redirected);
  begin("loci_front_streams_moved_total", "Streams that another instance went on with", "counter");
  out += fmt::format("loci_front_streams_moved_total {}\n", counts.moved);
  begin("loci_front_prefills_total", "Prompts that a prefill member was to compute, by what became of them",
        "counter");
  for (std::size_t end = 0; end < kPrefillEnds; ++end)
    out += fmt::format("loci_front_prefills_total{{result=\"{}\"}} {}\n",
                       prefill_end_name(static_cast<PrefillEnd>(end)), counts.prefills[end]);
  begin("loci_front_lost_total", "Requests whose instance ended, which their clients were told", "counter");
  out += fmt::format("loci_front_lost_total {}\n", counts.lost);
  begin("loci_front_rows_refused", "Rows of the latest list of members without this cluster's seal", "gauge");
  out += fmt::format("loci_front_rows_refused {}\n", counts.refused_rows);
  begin("loci_front_feeds", "Instances, by whether what they hold is read or guessed", "gauge");
  out += fmt::format("loci_front_feeds{{state=\"read\"}} {}\nloci_front_feeds{{state=\"guessed\"}} {}\n",
                     feeds.read, feeds.guessed);
  begin("loci_front_held_chunks", "Chunks of prompts' text whose state instances publish to have", "gauge");
  out += fmt::format("loci_front_held_chunks {}\n", feeds.chunks);
  begin("loci_front_feed_changes_total", "Changes that instances have published", "counter");
  out += fmt::format("loci_front_feed_changes_total {}\n", feeds.stats.changes_total);
  begin("loci_front_feed_snapshots_total", "Times that all that an instance holds was read", "counter");
  out += fmt::format("loci_front_feed_snapshots_total {}\n", feeds.stats.snapshots_total);
  begin("loci_front_feed_failures_total", "Times that an instance did not tell what it holds", "counter");
  out += fmt::format("loci_front_feed_failures_total {}\n", feeds.stats.failures_total);
  begin("loci_front_choices_total", "Requests by why their instance was chosen", "counter");
  for (std::size_t why = 0; why < kRoutedWhys; ++why) {
    out += fmt::format("loci_front_choices_total{{why=\"{}\"}} {}\n",
                       routed_why_name(static_cast<RoutedWhy>(why)), counts.chosen[why]);
  }
  if (traces) {
    begin("loci_trace_spans_total", "Spans that the collector of traces took, and those that are lost",
          "counter");
    out += fmt::format(
        "loci_trace_spans_total{{result=\"sent\"}} {}\nloci_trace_spans_total{{result=\"dropped\"}} {}\n",
        traces->sent, traces->dropped);
  }
  return out;
}

}  // namespace loci
