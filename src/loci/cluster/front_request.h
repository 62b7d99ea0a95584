// SPDX-License-Identifier: Apache-2.0
// What a front writes to instances and reads from them: heads of messages, events, lists of models. For
// front.cc.
#pragma once

#include <boost/beast/http/message.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/cluster/routed_request.h"
#include "loci/serve/http/connection.h"

namespace loci {

// A request on its way.
struct Front::Request {
  Exchange& exchange;
  std::uint64_t seed = 0;
  RoutedPrompt prompt;
  Nanos begun_at = 0;
  std::vector<std::uint32_t> tried;  // instances
  std::string member;                // that was tried last
  std::optional<HttpResponse> refusal;
  int losses = 0;  // instances that ended, or broke the connection, after it was sent
  bool is_too_late = false;
  bool was_lost = false;
  // The connection that it waits for; null: none.
  std::shared_ptr<Upstream*> current = std::make_shared<Upstream*>(nullptr);
};

// The request's lines for an instance at that address: the client's, without those that are between the
// client and the front alone.
std::string request_head(const HttpRequest& request, std::string_view address, std::string_view request_id);

// Status, type and headers of an instance's answer, as they are passed on.
HttpResponse response_of(const boost::beast::http::response_header<>& header);

// Whether a 503 says that nothing was done, as the instance is not there yet or not any more.
bool is_not_ready(std::string_view body);

// What ends a stream of events whose instance ended.
std::string lost_event(RoutedApi api);

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

// In Prometheus' text format.
std::string front_metrics(const FrontCounts& counts, const FrontInstances& instances, std::uint64_t running);

}  // namespace loci
