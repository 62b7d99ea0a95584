// SPDX-License-Identifier: Apache-2.0
// GET over HTTP(S), by libcurl: what a registry's API and its files need.
//
// Redirects are followed here and not by the library: the token goes to the registry's own origin (scheme,
// host and port) and to no other, and what was asked for by https is never answered by http.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

struct HubAccess {
  std::string endpoint;                        // "https://host", without a slash at its end
  bool is_chosen = false;                      // HF_ENDPOINT names it
  std::string token;                           // empty: none
  Nanos stall_timeout = 30 * kNanosPerSecond;  // without a byte: the connection is given up
};

struct HttpReply {
  int status = 0;
  std::string body;  // where there was no sink, or the status is an error's (its beginning)
  // Of the last answer, or (linked_etag) of any on the way; empty where absent.
  std::string content_range;
  std::string link;
  std::string etag;
  std::string linked_etag;
  std::string error_code;  // X-Error-Code
  std::string retry_after;
};

// Takes the body of an answer of 200 or 206.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Before the first byte. An error ends the transfer and is what get() returns.
  virtual Status begin(const HttpReply& head) = 0;
  virtual Status take(std::string_view data) = 0;
};

bool is_web_url(const std::string& url);

// Keeps its connection for the next request. Thread-compatible: one for each thread.
class HttpClient {
 public:
  explicit HttpClient(const HubAccess& access);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // From byte `offset` on (Range). Without a sink the body may have 32 MiB.
  // Errors: kUnavailable (no connection, broken, stalled: try again), kInvalidArgument (a URL or a redirect
  // that is not followed), and the sink's. Any status of HTTP is a reply.
  Result<HttpReply> get(const std::string& url, std::uint64_t offset = 0, BodySink* sink = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loci
