// SPDX-License-Identifier: Apache-2.0
// What a front writes to instances and reads from them: heads of messages, events, lists of models. For
// front.cc.
#pragma once

#include <array>
#include <boost/beast/http/message.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/cluster/routed_request.h"
#include "loci/cluster/told_stream.h"
#include "loci/serve/http/body_budget.h"
#include "loci/serve/http/connection.h"

namespace loci {

// A request on its way.
struct Front::Request {
  Exchange& exchange;
  PromptKey key{};  // its tenant's
  RoutedPrompt prompt;
  Nanos begun_at = 0;
  std::vector<std::uint32_t> tried;  // instances
  std::string member;                // that was tried last
  std::optional<HttpResponse> refusal;
  std::optional<ToldStream> told;  // where another instance can go on with it
  bool is_streaming = false;       // the client has the reply's header
  bool is_events = false;          // of the reply: server-sent ones
  std::uint64_t next_event = 0;    // its number, of the Responses API
  // The body, once another instance may have to go on with a reply that has begun, and the room that it
  // takes.
  std::string body;
  std::optional<BodyBudget::Charge> body_charge;
  RoutedWhy why = RoutedWhy::kNothing;  // the last one got it
  std::optional<Nanos> predicted;       // until that one begins to answer
  int losses = 0;                       // instances that ended, or broke the connection, after it was sent
  bool is_too_late = false;
  bool was_lost = false;
  // The connection that it waits for; null: none.
  std::shared_ptr<Upstream*> current = std::make_shared<Upstream*>(nullptr);

  const std::string& text() const { return body_charge ? body : exchange.request().body(); }
};

// The request's lines for an instance at that address: the client's, without those that are between the
// client and the front alone.
std::string request_head(const HttpRequest& request, std::size_t body_bytes, std::string_view address,
                         std::string_view request_id);

// Status, type and headers of an instance's answer, as they are passed on.
HttpResponse response_of(const boost::beast::http::response_header<>& header);

// Whether its body is, or may be, of more than BodyBudget::kFreeBytes.
bool has_large_body(const HttpRequest& request);
// A question that only whoever may use an instance gets an answer to, with the request's key.
HttpRequest models_request(const HttpRequest& request);
// The same error as Anthropic's clients know it; others' bodies stay as they are.
std::string in_style_of(RoutedApi api, const HttpResponse& refusal);

// The code of an answer that is an error; empty: it has none.
std::string code_of_error(std::string_view body);
// Whether a 503 of that code says that nothing was done, as the instance is not there yet or not any more.
bool is_not_ready(std::string_view code);
inline constexpr std::string_view kDeviceLost = "device_lost";

// What ends a stream of events that can't go on. `number`: of the event, in the Responses API.
std::string error_event(RoutedApi api, const ApiError& error, std::uint64_t number);

// The number behind the last one of the Responses API's events; nothing where they have none.
std::optional<std::uint64_t> number_after(std::string_view events);

// Passes on whole server-sent events.
class WholeEvents {
 public:
  // What is whole now, up to the latest empty line.
  std::string push(std::string_view piece);
  // What is left when the stream has ended well.
  std::string rest() { return std::move(part_); }

 private:
  // An event that is longer is passed on in parts.
  static constexpr std::size_t kEventMax = std::size_t{4} << 20;
  std::string part_;
};

// GET /v1/models of several instances as one.
class ModelUnion {
 public:
  // False: what came is no list of models. An answer other than 200 stands for all where no other comes.
  bool add(HttpResponse response);
  bool empty() const { return !refusal_ && data_.empty(); }
  HttpResponse take();

 private:
  // Of the first list: what pages of other origins may read (CORS).
  std::vector<std::pair<std::string, std::string>> headers_;
  nlohmann::ordered_json data_ = nlohmann::ordered_json::array();
  std::vector<std::string> ids_;
  std::optional<HttpResponse> refusal_;
};

// How many there are of each kind.
struct FrontInstances {
  std::size_t serving = 0, draining = 0;
  std::size_t unlisted = 0;  // that get nothing, and whose replies go on
};

// What instances publish, as the front has read it.
struct FrontFeeds {
  std::size_t read = 0, guessed = 0;  // instances whose state is known, and others
  std::size_t chunks = 0;             // of prompts' text, of all instances
  FeedReaderStats stats;
  // By member: requests that it was chosen for, by why.
  std::vector<std::pair<std::string, std::array<std::uint64_t, kRoutedWhys>>> chosen;
};

// In Prometheus' text format.
std::string front_metrics(const FrontCounts& counts, const FrontInstances& instances, const FrontFeeds& feeds,
                          std::uint64_t running);

}  // namespace loci
