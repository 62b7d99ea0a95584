// SPDX-License-Identifier: Apache-2.0
// What a front asks instances itself (front.h): whether a key may use them, which models they serve, and
// whether they live.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "loci/base/json_reader.h"
#include "loci/cluster/front.h"
#include "loci/cluster/front_request.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kModelsBytesMax = 256 << 10;  // of an instance's list
constexpr std::size_t kKeysMax = 4'096;               // that are known to be let in
constexpr Nanos kKeyTrusted = 10 * kNanosPerSecond;   // before an instance is asked again
constexpr std::size_t kModelsTriesMax = 64;           // for a list of all models
constexpr std::uint64_t kLiveBytesMax = 64 << 10;     // of an answer to /live

bool says_ok(std::string_view body) {
  const Json answer = read_json<Json>(body, {}).value;
  return answer.is_object() && answer.value("status", Json()) == "ok";
}

}  // namespace

asio::awaitable<bool> Front::takes_connections(const Member& member) {
  const std::unique_ptr<Upstream> upstream = pool_.make(member);
  co_return (co_await upstream->connect(member, options_.connect_timeout)).ok();
}

asio::awaitable<Front::BriefAnswer> Front::ask_briefly(std::shared_ptr<Upstream> upstream,
                                                       const Member& member, std::string head,
                                                       std::uint64_t bytes_max) {
  BriefAnswer answer;
  const Status connected = co_await upstream->connect(member, options_.connect_timeout);
  if (!connected.ok()) co_return answer;
  upstream->set_deadline(options_.connect_timeout);
  if (!co_await upstream->send(head, {})) co_return answer;
  const Upstream::Header* header = co_await upstream->read_header(false);
  if (header == nullptr) co_return answer;
  answer.has_begun = true;
  HttpResponse response = response_of(*header);
  std::optional<std::string> body = co_await upstream->read_body(bytes_max);
  if (!body) co_return answer;
  response.body = *std::move(body);
  answer.whole = std::move(response);
  co_return answer;
}

asio::awaitable<bool> Front::is_alive(const Member& member) {
  std::string head =
      fmt::format("GET /live HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", member.address());
  const BriefAnswer asked = co_await ask_briefly(pool_.make(member), member, std::move(head), kLiveBytesMax);
  const std::optional<HttpResponse>& answer = asked.whole;
  if (!answer) co_return false;
  if (answer->status == 200) co_return says_ok(answer->body);
  const std::string code = answer->status == 503 ? code_of_error(answer->body) : std::string();
  co_return is_not_ready(code) && code != error_codes::kDeviceStalled;
}

asio::awaitable<std::optional<HttpResponse>> Front::ask_models(Exchange& exchange,
                                                               const HttpRequest& question,
                                                               std::shared_ptr<Instance> instance) {
  const std::shared_ptr<Upstream> upstream = pool_.make(instance->member);
  exchange.watch([upstream] { upstream->close(); });
  std::string head = request_head(question, 0, instance->member.address(), exchange.request_id());
  BriefAnswer answer = co_await ask_briefly(upstream, instance->member, std::move(head), kModelsBytesMax);
  // (A list that is too long, or does not end in time, comes from an instance that can be reached.)
  if (answer.has_begun)
    instance->connects.succeed();
  else if (!exchange.gone())
    instance->connects.fail(clock_.now());
  co_await exchange.unwatch();
  co_return std::move(answer.whole);
}

asio::awaitable<bool> Front::let_in(Exchange& exchange) {
  const RoutedApi api = routed_api(exchange.path());
  const PromptKey key = prompt_key_of(exchange.request(), options_.prompt_key);
  if (const auto known = let_in_until_.find(key); known != let_in_until_.end()) {
    if (clock_.now() < known->second) co_return true;
    let_in_until_.erase(known);
  }
  const HttpRequest question = models_request(exchange.request());
  std::vector<std::shared_ptr<Instance>> instances = instances_.in_turn(clock_.now());
  if (instances.size() > kTriesMax) instances.resize(kTriesMax);
  for (const std::shared_ptr<Instance>& instance : instances) {
    std::optional<HttpResponse> response = co_await ask_models(exchange, question, instance);
    if (exchange.gone()) co_return false;
    if (!response || response->status >= 500) continue;
    if (response->status < 300) {
      if (let_in_until_.size() >= kKeysMax) let_in_until_.clear();
      let_in_until_[key] = clock_.now() + kKeyTrusted;
      co_return true;
    }
    ++counts_.answered;
    response->body = in_style_of(api, *response);
    co_await exchange.respond(*std::move(response));
    co_return false;
  }
  co_await refuse(exchange, api, no_instance("no instance of the cluster answers"));
  co_return false;
}

// All that instances serve: one of each kind is asked, with the client's key.
asio::awaitable<void> Front::answer_models(Exchange& exchange) {
  // By kind, so that the models are in the same order whoever was asked.
  std::map<std::vector<std::string>, HttpResponse> lists;
  std::optional<HttpResponse> failure;  // of one that cannot say; others of its kind are asked
  std::size_t tries = 0;
  for (const std::shared_ptr<Instance>& instance : instances_.in_turn(clock_.now())) {
    if (lists.contains(instance->member.models)) continue;
    if (++tries > kModelsTriesMax) break;
    std::optional<HttpResponse> response = co_await ask_models(exchange, exchange.request(), instance);
    if (exchange.gone()) co_return;
    if (response && response->status >= 500)
      failure = std::move(response);
    else if (response && ModelUnion().add(*response))
      lists.emplace(instance->member.models, *std::move(response));
  }
  ModelUnion models;
  for (auto& [names, list] : lists) models.add(std::move(list));
  if (lists.empty() && failure) models.add(*std::move(failure));
  if (models.empty()) {
    co_await refuse(exchange, RoutedApi::kOpenAi, no_instance("no instance of the cluster answers"));
    co_return;
  }
  HttpResponse response = models.take();
  if (response.status == 401) exchange.give_way();
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
