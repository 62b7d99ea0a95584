// SPDX-License-Identifier: Apache-2.0
#include "loci/server/open_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "loci/base/version.h"
#include "loci/serve/http/http_call.h"
#include "loci/serve/http/page_guard.h"
#include "loci/server/trace_headers.h"

namespace loci {
namespace {

std::uint64_t random_seed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

// What the specification of OTLP has sent again.
bool may_be_repeated(int code) { return code == 429 || code == 502 || code == 503 || code == 504; }

// What is sent, and where to.
struct Sender {
  TraceCollector collector;
  std::string headers_file;  // empty: those of `headers`
  TraceHeaders headers;

  PostAnswer operator()(std::string body, Nanos timeout) const;
};

std::string reason(int code) {
  const bool wants_key = code == 401 || code == 403;
  return fmt::format("it answers with status {}{}", code,
                     wants_key ? " (option trace_headers gives a key)" : "");
}

PostAnswer Sender::operator()(std::string body, Nanos timeout) const {
  using Result = PostAnswer::Result;
  TraceHeaders sent = headers;
  if (!headers_file.empty()) {
    loci::Result<TraceHeaders> read = read_trace_headers(headers_file);
    if (!read.ok())
      return {.result = Result::kTryAgain, .why = std::string(read.status().message()), .body = {}};
    sent = std::move(read).value();
  }
  HttpAnswer answer = call_and_wait(collector.address, {.method = boost::beast::http::verb::post,
                                                        .path = collector.path,
                                                        .body = std::move(body),
                                                        .headers = std::move(sent),
                                                        .timeout = timeout});
  if (!answer.status.ok())
    return {.result = Result::kTryAgain, .why = std::string(answer.status.message()), .body = {}};
  if (answer.code >= 200 && answer.code < 300)
    return {.result = Result::kTaken, .why = {}, .body = std::move(answer.body)};
  return {.result = may_be_repeated(answer.code) ? Result::kTryAgain : Result::kRefused,
          .why = reason(answer.code),
          .body = {},
          .retry_after = answer.retry_after};
}

Status named(const Status& status) { return Status(status.code(), status.message(), "traces"); }

}  // namespace

Result<TraceCollector> parse_traces_url(std::string_view url) {
  const auto is_visible = [](char c) { return c > ' ' && c < 0x7f; };
  const bool is_https = url.starts_with("https://");
  if ((!is_https && !url.starts_with("http://")) || !std::ranges::all_of(url, is_visible)) {
    return named(invalid_argument(
        "expected the URL of a collector that takes OTLP by HTTP, as http://127.0.0.1:4318"));
  }
  const std::size_t begin = is_https ? 8 : 7;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  std::string_view path = url.substr(end, url.find('#', end) - end);
  const std::string_view authority = url.substr(begin, end - begin);
  if (authority.find('@') != authority.npos) {
    return named(invalid_argument(
        "expected a URL without a user and a password, found an '@': option trace_headers gives a key"));
  }
  const std::string_view behind_host = authority.substr(std::min(authority.rfind(']'), authority.size()));
  const bool has_port = (authority.starts_with('[') ? behind_host : authority).find(':') != authority.npos;
  const std::string server = has_port ? std::string(url.substr(0, end))
                                      : fmt::format("{}:{}", url.substr(0, end), is_https ? 443 : 80);
  Result<ServerAddress> address = parse_server_url(server, "");
  if (!address.ok()) return named(address.status());
  if (path.empty() || path == "/") path = "/v1/traces";
  if (path == "/?") path = "/";
  return TraceCollector{.address = std::move(address).value(),
                        .path = path.starts_with('/') ? std::string(path) : fmt::format("/{}", path)};
}

Result<Traces> open_traces(const TracesOptions& options, const Clock& clock,
                           std::shared_ptr<spdlog::logger> log) {
  Traces out;
  if (options.url.empty()) return out;
  LOCI_ASSIGN_OR_RETURN(TraceCollector collector, parse_traces_url(options.url));
  Sender send{
      .collector = std::move(collector), .headers_file = options.headers_file, .headers = options.headers};
  if (!send.headers_file.empty())
    LOCI_RETURN_IF_ERROR(
        read_trace_headers(send.headers_file).status());  // else the first batch would say it
  SpanResource resource{.service = options.service,
                        .version = kVersion,
                        .instance = fmt::format("{:016x}", random_seed()),
                        .host = machine_name(),
                        .others = options.attributes};
  // (The path may have a key.)
  const ServerAddress& address = send.collector.address;
  log->info("traces: spans go to {}", authority_of(address.host, address.port));
  out.exporter = std::make_unique<TraceExporter>(TraceExporterOptions(), std::move(resource), clock,
                                                 std::move(send), std::move(log));
  out.tracer = std::make_unique<Tracer>(
      *out.exporter, TracerOptions{.share = options.share, .scheme = options.scheme, .seed = random_seed()});
  return out;
}

}  // namespace loci
