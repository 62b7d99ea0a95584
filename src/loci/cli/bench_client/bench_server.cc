// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_server.h"

#include <fmt/format.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "loci/base/json_reader.h"
#include "loci/cli/chat_client.h"

namespace loci {
namespace asio = boost::asio;

namespace {

using Json = nlohmann::json;

constexpr Nanos kGreetTimeout = 30 * kNanosPerSecond;
constexpr Nanos kGreetAgain = 100 * kNanosPerMilli;

std::string to_text(const Json& body) {
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The first id of GET /v1/models; "default" where there is none.
std::string first_model(const HttpAnswer& answer) {
  const Json list = read_json<Json>(answer.body, {}).value;
  if (answer.code == 200 && list.is_object() && list.contains("data") && list["data"].is_array() &&
      !list["data"].empty() && list["data"][0].is_object()) {
    const Json& first = list["data"][0];
    if (first.contains("id") && first["id"].is_string()) return first["id"].get<std::string>();
  }
  return "default";
}

std::string failure_of(const HttpAnswer& answer, const ReplyStream& stream) {
  if (!answer.status.ok()) return answer.status.message();
  if (answer.code != 200) return error_message(answer.code, answer.body);
  if (!stream.error().empty()) return stream.error();
  if (!stream.done()) return "the reply broke off";
  return {};
}

void fill(TurnRecord& record, const ReplyStream& stream) {
  const std::vector<Nanos>& pieces = stream.pieces();
  record.first = pieces.empty() ? record.ended : pieces.front();
  for (std::size_t i = 1; i < pieces.size(); ++i) record.gaps.push_back(pieces[i] - pieces[i - 1]);
  record.counts_known = stream.prompt_tokens() && stream.output_tokens();
  record.prompt_tokens = stream.prompt_tokens().value_or(0);
  record.cached_tokens = stream.cached_tokens().value_or(0);
  record.output_tokens = stream.output_tokens().value_or(pieces.size());
}

}  // namespace

BenchServer::BenchServer(std::string url, std::string prefix, CalledServer http, RequestOptions options,
                         const Clock& clock)
    : url_(std::move(url)),
      prefix_(std::move(prefix)),
      http_(std::move(http)),
      options_(std::move(options)),
      clock_(clock) {}

Result<std::unique_ptr<BenchServer>> BenchServer::open(const std::string& url, const RequestOptions& options,
                                                       const Clock& clock) {
  // A base URL as other clients take it, ".../v1", is one too.
  std::string base = url;
  while (base.ends_with('/')) base.pop_back();
  const std::size_t host = base.find("://") == base.npos ? 0 : base.find("://") + 3;
  std::string prefix = "/v1";
  if (const std::size_t path = base.find('/', host); path != base.npos) {
    prefix = base.substr(path);
    base.resize(path);
  }
  LOCI_ASSIGN_OR_RETURN(ServerAddress address, parse_server_url(base, options.tls_ca));
  address.key = options.api_key;
  CalledServer http{.address = std::move(address), .endpoints = {}};
  return std::unique_ptr<BenchServer>(new BenchServer(url, prefix, std::move(http), options, clock));
}

asio::awaitable<Status> BenchServer::greet(Nanos patience) {
  const Nanos deadline = clock_.now() + patience;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  HttpAnswer answer;
  while (true) {
    CallRequest request{.path = prefix_ + "/models", .timeout = kGreetTimeout};
    HttpSink none;
    answer = co_await http_call(http_, clock_, std::move(request), std::move(none));
    const bool loading = answer.status.ok() && answer.code == 503;
    if (!loading || clock_.now() >= deadline) break;
    timer.expires_after(std::chrono::nanoseconds(kGreetAgain));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (!answer.status.ok()) {
    co_return Status(StatusCode::kUnavailable, fmt::format("{}: {}", url_, answer.status.message()));
  }
  if (options_.model.empty()) options_.model = first_model(answer);
  co_return Status();
}

asio::awaitable<void> BenchServer::warm_up(std::string text) {
  History history;
  const Dialogue dialogue{.system = {}, .turns = {std::move(text)}};
  say(history, dialogue, 0);
  CallRequest request = make_request(history);
  HttpSink sink = [](std::string_view, Nanos) { return true; };
  const HttpAnswer answer = co_await http_call(http_, clock_, std::move(request), std::move(sink));
  (void)answer;
}

void BenchServer::begin(const std::vector<Dialogue>& dialogues, Nanos epoch) {
  dialogues_ = &dialogues;
  histories_.assign(dialogues.size(), {});
  epoch_ = epoch;
}

void BenchServer::say(History& history, const Dialogue& dialogue, std::uint32_t turn) const {
  const std::string& words = dialogue.turns[turn];
  if (!dialogue.alone.empty() && dialogue.alone[turn]) history = {};
  history.reply_tokens = dialogue.reply_tokens.empty() ? options_.max_tokens : dialogue.reply_tokens[turn];
  switch (options_.api) {
    case BenchApi::kCompletions:
      if (turn == 0 && !dialogue.system.empty()) history.transcript = dialogue.system + "\n\n";
      history.transcript += "User: " + words + "\n\nAssistant:";
      return;
    case BenchApi::kResponses:
      history.system = dialogue.system;  // instructions are of one response alone
      history.words = words;
      return;
    case BenchApi::kChat: break;
  }
  if (turn == 0 && !dialogue.system.empty()) {
    history.messages.push_back({{"role", "system"}, {"content", dialogue.system}});
  }
  history.messages.push_back({{"role", "user"}, {"content", words}});
}

void BenchServer::hear(History& history, const ReplyStream& reply) const {
  switch (options_.api) {
    case BenchApi::kCompletions: history.transcript += reply.text() + "\n\n"; return;
    case BenchApi::kResponses: history.last_response = reply.id(); return;
    case BenchApi::kChat: break;
  }
  history.messages.push_back({{"role", "assistant"}, {"content", reply.text()}});
}

Json BenchServer::body_of(const History& history) const {
  Json body = {{"model", options_.model}, {"stream", true}, {"temperature", options_.temperature}};
  if (options_.ignore_eos) {
    body["ignore_eos"] = true;
    body["min_tokens"] = history.reply_tokens;
  }
  if (options_.api == BenchApi::kResponses) {
    body["max_output_tokens"] = history.reply_tokens;
    body["input"] = history.words;
    if (!history.system.empty()) body["instructions"] = history.system;
    if (!history.last_response.empty()) body["previous_response_id"] = history.last_response;
    return body;
  }
  body["max_tokens"] = history.reply_tokens;
  body["stream_options"] = {{"include_usage", true}};
  if (options_.api == BenchApi::kChat)
    body["messages"] = history.messages;
  else
    body["prompt"] = history.transcript;
  return body;
}

CallRequest BenchServer::make_request(const History& history) const {
  const char* path = options_.api == BenchApi::kChat        ? "/chat/completions"
                     : options_.api == BenchApi::kResponses ? "/responses"
                                                            : "/completions";
  return {.method = boost::beast::http::verb::post,
          .path = prefix_ + path,
          .body = to_text(body_of(history)),
          .timeout = options_.timeout};
}

asio::awaitable<TurnRecord> BenchServer::run_turn(TurnId id, std::optional<Nanos> due) {
  History& history = histories_[id.conversation];
  say(history, (*dialogues_)[id.conversation], id.turn);
  CallRequest request = make_request(history);
  ReplyStream stream(options_.api);
  HttpSink sink = [&stream, this](std::string_view bytes, Nanos now) {
    stream.push(bytes, now - epoch_);
    return !stream.done();
  };
  const HttpAnswer answer = co_await http_call(http_, clock_, std::move(request), std::move(sink));
  TurnRecord record;
  record.id = id;
  record.sent = answer.sent == 0 ? 0 : answer.sent - epoch_;
  record.due = due.value_or(record.sent);
  record.asked_tokens = history.reply_tokens;
  record.ended = answer.ended - epoch_;
  record.error = failure_of(answer, stream);
  fill(record, stream);
  hear(history, stream);
  co_return record;
}

}  // namespace loci
