// SPDX-License-Identifier: Apache-2.0
// Reading and writing of messages between a front and its instances: headers, events, lists of models. Only
// for front.cc, front_answer.cc, front_questions.cc and front_spans.cc.
#pragma once

#include <algorithm>
#include <boost/beast/http/message.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/cluster/resumed_request.h"
#include "loci/cluster/resumed_stream.h"
#include "loci/cluster/routed_request.h"
#include "loci/serve/http/byte_budget.h"
#include "loci/serve/http/exchange.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Counts a request at its instance for as long as it is there.
class Front::Sent {
 public:
  Sent(std::shared_ptr<Instance> instance, std::uint64_t id, std::uint64_t bytes, std::function<void()> end)
      : instance_(std::move(instance)), id_(id), bytes_(bytes) {
    ++instance_->sent;
    instance_->bytes_before += bytes_;
    instance_->enders.emplace(id_, std::move(end));
  }
  ~Sent() {
    begun();
    --instance_->sent;
    instance_->enders.erase(id_);
  }
  Sent(const Sent&) = delete;
  Sent& operator=(const Sent&) = delete;

  // Its answer begins.
  void begun() { instance_->bytes_before -= std::exchange(bytes_, 0); }

 private:
  std::shared_ptr<Instance> instance_;
  std::uint64_t id_, bytes_;
};

// What the spans of a request tell of it.
struct Front::Traced {
  TracedRequest request;
  bool was_lost = false;  // Request::was_lost
  std::string member;     // that was tried last
  std::size_t tries = 0;
};

// A request that the front is handling.
struct Front::Request {
  Exchange& exchange;
  PromptKey key{};  // its tenant's
  RoutedPrompt prompt;
  ResumedReply reply;  // RoutedPrompt::is_named(): its name, and whether it was sent before
  Nanos begun_at = 0;
  Traced* traced = nullptr;          // null: nothing is traced
  std::vector<std::uint32_t> tried;  // numbers of the instances that were tried
  std::string member;                // id of the member that was tried last
  std::optional<HttpResponse> refusal;
  // Who has the response that the request asks after, by the answer of another instance; null: nobody said
  // so. It is asked next.
  std::shared_ptr<Instance> owner;
  // Of a stream that another instance could continue; it does so only if there is room for the body.
  std::optional<ResumedStream> resumed;
  bool is_streaming = false;     // the client has the reply's header
  bool is_events = false;        // the reply is a stream of server-sent events
  bool awaits_id = false;        // no event has said the response's id yet
  std::uint64_t next_event = 0;  // number of the next event, in the Responses API
  // The body, kept while another instance may have to continue a reply that has begun; and the room that it
  // takes.
  std::string body;
  std::optional<ByteBudget::Charge> body_charge;
  Sent* sent = nullptr;                 // of the instance that is asked
  RoutedWhy why = RoutedWhy::kNothing;  // why the instance tried last was chosen
  std::optional<Nanos> predicted;       // until that one begins to answer
  // Who is to compute the prompt for that one, and counts it until the reply begins; null: nobody.
  std::shared_ptr<Instance> prefill;
  std::shared_ptr<Sent> prefill_sent;
  PrefillPlace prefill_place;
  Nanos prefill_predicted = 0;  // Instances::Prefill::predicted
  PrefillEnd prefilled = PrefillEnd::kNone;
  bool awaits_prefill = false;  // the stream has begun, and will tell how that ended
  int losses = 0;               // instances that ended, or broke the connection, after it was sent
  bool was_drained = false;     // an instance that had begun it was told to stop
  bool is_too_late = false;
  bool was_lost = false;
  // The connection that the request waits for; null: none.
  std::shared_ptr<Upstream*> current = std::make_shared<Upstream*>(nullptr);

  bool has_tried(const Instance& instance) const {
    return std::find(tried.begin(), tried.end(), instance.number) != tried.end();
  }
  const std::string& text() const { return body_charge ? body : exchange.request().body; }
};

// The request's header for an instance at that address: the client's, without fields that concern only the
// client and the front. `header`: reply_header(), or empty.
std::string request_head(const HttpRequest& request, std::size_t body_bytes, std::string_view address,
                         std::string_view request_id, std::string_view header = {});

// Status, type and header fields of an instance's answer, as they are passed on.
HttpResponse response_of(const boost::beast::http::response_header<>& header);

// True: its body has, or may have, more than ByteBudget::kFreeBytes bytes.
bool has_large_body(const HttpRequest& request);
// A question with the request's key, which an instance answers only if the key may use it.
HttpRequest models_request(const HttpRequest& request);
// The error in the form of the client's API: changed for Anthropic's clients, unchanged for others.
std::string in_style_of(RoutedApi api, const HttpResponse& refusal);

// True: a 503 with this code says that nothing was done, because the instance is not ready yet or is
// stopping.
bool is_not_ready(std::string_view code);

// A 503: the front has nobody who could answer.
ApiError no_instance(std::string message);

// The event that ends a stream which cannot go on. `number`: that of the event, in the Responses API.
std::string error_event(RoutedApi api, const ApiError& error, std::uint64_t number);

// The number after that of the last event of the Responses API; absent if the events have no numbers.
std::optional<std::uint64_t> number_after(std::string_view events);

// Passes on whole server-sent events.
class WholeEvents {
 public:
  // Adds a piece and returns the events that are whole now, up to the last empty line.
  std::string push(std::string_view piece);
  // The rest, when the stream has ended well.
  std::string rest() { return std::move(part_); }

 private:
  // A longer event is passed on in parts.
  static constexpr std::size_t kEventMax = std::size_t{4} << 20;
  std::string part_;
};

// Merges the replies of several instances to GET /v1/models.
class ModelUnion {
 public:
  // False: the reply is not a list of models. If no instance answers 200, one of the other answers stands for
  // all.
  bool add(HttpResponse response);
  bool empty() const { return !refusal_ && data_.empty(); }
  HttpResponse take();

 private:
  // From the first list: the fields that tell which origins' pages may read it (CORS).
  std::vector<std::pair<std::string, std::string>> headers_;
  Json data_ = Json::array();
  std::vector<std::string> ids_;
  std::optional<HttpResponse> refusal_;
};

// The number of instances in each state.
struct FrontInstances {
  std::size_t serving = 0, draining = 0;
  std::size_t unlisted = 0;  // not listed any more; they get no requests, and their running replies go on
};

// What instances publish, as the front has read it.
struct FrontFeeds {
  std::size_t read = 0, guessed = 0;  // instances whose state is known, and others
  std::size_t chunks = 0;             // of prompts' text, of all instances
  FeedReaderStats stats;
};

// In Prometheus' text format.
std::string front_metrics(const FrontCounts& counts, const FrontInstances& instances, const FrontFeeds& feeds,
                          std::uint64_t running, const std::optional<TraceCounts>& traces);

// The API's route that the path is of: "/v1/responses/{id}" of "/v1/responses/resp_1"; "/v1/{path}" if there
// is none. So clients cannot make up names for spans.
std::string_view routed_pattern(std::string_view path);

}  // namespace loci
