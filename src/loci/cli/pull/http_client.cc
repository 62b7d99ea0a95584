// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>

#include "loci/base/check.h"
#include "loci/base/units.h"
#include "loci/base/version.h"

namespace loci {
namespace {

constexpr int kRedirectsMax = 10;
constexpr std::size_t kBodyBytesMax = std::size_t{32} << 20;
constexpr std::size_t kErrorBytesMax = std::size_t{64} << 10;

struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
};

// Nothing where it is no URL of http or https.
std::optional<Origin> origin_of(const std::string& url) {
  CURLU* parsed = curl_url();
  const auto part = [parsed](CURLUPart which) {
    char* text = nullptr;
    std::string out;
    if (curl_url_get(parsed, which, &text, CURLU_DEFAULT_PORT) == CURLUE_OK) out = text;
    curl_free(text);
    return out;
  };
  std::optional<Origin> out;
  if (curl_url_set(parsed, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK) {
    out = Origin{part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)};
    if (out->scheme != "http" && out->scheme != "https") out.reset();
  }
  curl_url_cleanup(parsed);
  return out;
}

std::string trimmed(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

bool is_web_url(const std::string& url) {
  const std::optional<Origin> origin = origin_of(url);
  return origin && !origin->host.empty();
}

struct HttpClient::State {
  HubAccess access;
  std::optional<Origin> home;
  CURL* curl = nullptr;

  // Of the transfer that runs.
  HttpReply reply;
  BodySink* sink = nullptr;
  bool begun = false;
  bool is_enough = false;  // of an error's body, or a redirect's: the rest is not waited for
  Status failed;
  std::chrono::steady_clock::time_point last_byte, answered;

  bool is_content() const { return sink != nullptr && (reply.status == 200 || reply.status == 206); }

  void on_header(std::string_view line) {
    last_byte = std::chrono::steady_clock::now();
    if (line.starts_with("HTTP/")) {  // a new answer (after "100 Continue" too)
      answered = last_byte;
      HttpReply next;
      next.linked_etag = reply.linked_etag;
      reply = std::move(next);
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == line.npos) return;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string value = trimmed(line.substr(colon + 1));
    if (name == "content-range")
      reply.content_range = std::move(value);
    else if (name == "link")
      reply.link = std::move(value);
    else if (name == "etag")
      reply.etag = std::move(value);
    else if (name == "x-linked-etag")
      reply.linked_etag = std::move(value);
    else if (name == "x-error-code")
      reply.error_code = std::move(value);
    else if (name == "retry-after")
      reply.retry_after = std::move(value);
  }

  bool on_body(std::string_view data) {
    last_byte = std::chrono::steady_clock::now();
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    reply.status = static_cast<int>(status);
    if (is_content()) {
      if (!begun) failed = sink->begin(reply);
      begun = true;
      if (failed.ok()) failed = sink->take(data);
      return failed.ok();
    }
    const bool is_answer = reply.status < 300;
    const std::size_t room = (is_answer ? kBodyBytesMax : kErrorBytesMax) - reply.body.size();
    if (is_answer && data.size() > room) failed = data_loss("the registry's answer is larger than 32 MiB");
    is_enough = !is_answer && (data.size() > room || last_byte - answered > patience());
    reply.body.append(data.substr(0, room));
    return failed.ok() && !is_enough;
  }

  std::chrono::nanoseconds patience() const { return std::chrono::nanoseconds(access.stall_timeout); }

  static std::size_t header_callback(char* data, std::size_t size, std::size_t count, void* self) {
    static_cast<State*>(self)->on_header(std::string_view(data, size * count));
    return size * count;
  }
  static std::size_t body_callback(char* data, std::size_t size, std::size_t count, void* self) {
    return static_cast<State*>(self)->on_body(std::string_view(data, size * count)) ? size * count : 0;
  }

  // Called about once a second, whether anything arrives or not. (libcurl's own limit looks at an average.)
  static int progress_callback(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& state = *static_cast<State*>(self);
    if (std::chrono::steady_clock::now() - state.last_byte < state.patience()) return 0;
    state.failed = Status(StatusCode::kUnavailable,
                          fmt::format("no byte came for {}", format_duration(state.access.stall_timeout)));
    return 1;
  }

  void prepare(const std::string& url, std::uint64_t offset, bool with_token);
  Status transfer(const std::string& url);
};

HttpClient::HttpClient(const HubAccess& access) : state_(std::make_unique<State>()) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  LOCI_CHECK(ready, "libcurl cannot be initialised");
  state_->access = access;
  state_->home = origin_of(access.endpoint);
  state_->curl = curl_easy_init();
  LOCI_CHECK(state_->curl != nullptr, "libcurl gives no handle");
}

HttpClient::~HttpClient() { curl_easy_cleanup(state_->curl); }

void HttpClient::State::prepare(const std::string& url, std::uint64_t offset, bool with_token) {
  curl_easy_reset(curl);  // connections stay
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, (std::string("loci/") + kVersion).c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  last_byte = std::chrono::steady_clock::now();
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &State::progress_callback);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &State::header_callback);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &State::body_callback);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
  if (offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, fmt::format("{}-", offset).c_str());
  if (with_token) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, access.token.c_str());
  }
}

// One hop; `reply` is its answer.
Status HttpClient::State::transfer(const std::string& url) {
  begun = is_enough = false;
  failed = Status();
  CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  if (!failed.ok()) return failed;
  if (is_enough) code = CURLE_OK;
  if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
    return invalid_argument(fmt::format("{}: {}", url, curl_easy_strerror(code)));
  }
  if (code != CURLE_OK) {
    const std::size_t host = url.find("://");
    const std::size_t end = host == url.npos ? url.npos : url.find('/', host + 3);
    return {StatusCode::kUnavailable, fmt::format("{}: {}", url.substr(0, end), curl_easy_strerror(code))};
  }
  // An empty content is content too.
  if (is_content() && !begun) return sink->begin(reply);
  return {};
}

Result<HttpReply> HttpClient::get(const std::string& url, std::uint64_t offset, BodySink* sink) {
  State& state = *state_;
  state.sink = sink;
  state.reply = HttpReply();
  std::string at = url;
  for (int hop = 0; hop <= kRedirectsMax; ++hop) {
    const std::optional<Origin> origin = origin_of(at);
    if (!origin) return invalid_argument(fmt::format("expected a URL of http or https, found \"{}\"", at));
    state.prepare(at, offset, !state.access.token.empty() && origin == state.home);
    LOCI_RETURN_IF_ERROR(state.transfer(at));
    const int status = state.reply.status;
    if (status < 300 || status >= 400 || status == 304) return state.reply;
    char* next = nullptr;
    curl_easy_getinfo(state.curl, CURLINFO_REDIRECT_URL, &next);
    if (next == nullptr) return state.reply;
    const std::optional<Origin> next_origin = origin_of(next);
    if (!next_origin || (origin->scheme == "https" && next_origin->scheme != "https")) {
      return invalid_argument(fmt::format("{} redirects to {}, which is not followed", at, next));
    }
    at = next;
  }
  return invalid_argument(fmt::format("{} redirects more than {} times", url, kRedirectsMax));
}

}  // namespace loci
