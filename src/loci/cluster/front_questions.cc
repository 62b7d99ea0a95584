// SPDX-License-Identifier: Apache-2.0
// What a front asks instances itself (front.h): whether a key may use them, and which models they serve.
#include <map>
#include <utility>

#include "loci/cluster/front.h"
#include "loci/cluster/front_request.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kModelsBytesMax = 256 << 10;  // of an instance's list
constexpr std::size_t kKeysMax = 4'096;               // that are known to be let in
constexpr Nanos kKeyTrusted = 10 * kNanosPerSecond;   // before an instance is asked again
constexpr std::size_t kModelsTriesMax = 64;           // for a list of all models

}  // namespace

asio::awaitable<std::optional<HttpResponse>> Front::ask_models(Exchange& exchange,
                                                               const HttpRequest& question,
                                                               std::shared_ptr<Instance> instance) {
  const std::shared_ptr<Upstream> upstream = pool_.make(instance->member);
  exchange.watch([upstream] { upstream->close(); });
  std::optional<HttpResponse> response;
  const Status connected = co_await upstream->connect(instance->member, options_.connect_timeout);
  upstream->set_deadline(options_.connect_timeout);
  const std::string head = request_head(question, 0, instance->member.address(), exchange.request_id());
  const Upstream::Header* header = nullptr;
  if (connected.ok() && co_await upstream->send(head, {})) header = co_await upstream->read_header(false);
  if (header != nullptr) {
    instance->connects.succeed();
    response = response_of(*header);
    std::optional<std::string> body = co_await upstream->read_body(kModelsBytesMax);
    if (body)
      response->body = *std::move(body);
    else
      response.reset();
  } else if (!exchange.gone()) {
    instance->connects.fail(clock_.now());
  }
  co_await exchange.unwatch();
  co_return response;
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
  co_await exchange.respond(std::move(response));
}

}  // namespace loci
