// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

#include "loci/serve/http/http_call.h"
#include "loci/serve/http/http_socket.h"
#include "loci/serve/wire/api_error.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

Status unreachable(const ServerAddress& address, const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return status;
  return {StatusCode::kUnavailable,
          fmt::format("no server answers at {}:{} ({}); start one with `loci serve default`", address.host,
                      address.port, status.message())};
}

// One reply in flight: connection, response parser, where its bytes go.
struct Call {
  Call(const ServerAddress& to, ChatStream& out) : address(to), stream(out) {
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  asio::awaitable<void> run(const std::string& body);
  asio::awaitable<Status> send(const std::string& body);
  asio::awaitable<void> receive();

  const ServerAddress& address;
  ChatStream& stream;
  asio::io_context io{1};
  HttpSocket socket{tcp::socket(io), address.tls};
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  std::string error_body;
  Status status;
  bool interrupted = false;
};

asio::awaitable<Status> Call::send(const std::string& body) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found = co_await resolver.async_resolve(address.host, address.port,
                                                     asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return Status(StatusCode::kUnavailable, error.message());
  const CalledServer server{.address = address, .endpoints = found};
  Status connected = co_await connect_to(socket, server.address.host, server.endpoints);
  if (!connected.ok()) co_return connected;
  http::request<http::string_body> request(http::verb::post, "/v1/chat/completions", 11);
  request.set(http::field::host, address.host);
  request.set(http::field::content_type, "application/json");
  if (!address.key.empty()) request.set(http::field::authorization, "Bearer " + address.key);
  request.body() = body;
  request.prepare_payload();
  co_await http::async_write(socket, request, asio::redirect_error(asio::use_awaitable, error));
  if (!error)
    co_await http::async_read_header(socket, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
  co_return error ? Status(StatusCode::kUnavailable, error.message()) : Status();
}

asio::awaitable<void> Call::receive() {
  std::array<char, 8192> piece{};
  const bool is_stream = parser.get().result() == http::status::ok;
  while (!parser.is_done() && !stream.done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    error_code error;
    co_await http::async_read_some(socket, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (is_stream)
      stream.push(got);
    else
      error_body += got;
    if (error && error != http::error::need_buffer) {
      if (!interrupted)
        status = Status(StatusCode::kUnavailable,
                        "the server went away in the middle of the reply: " + error.message());
      co_return;
    }
  }
}

asio::awaitable<void> Call::run(const std::string& body) {
  if (const Status sent = co_await send(body); !sent.ok()) {
    if (!interrupted) status = unreachable(address, sent);
    co_return;
  }
  if (interrupted) co_return;
  co_await receive();
  const int code = parser.get().result_int();
  if (!interrupted && status.ok() && code != 200) {
    status = Status(code < 500 ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
                    error_message(code, error_body));
  } else if (!interrupted && status.ok() && !stream.error().empty()) {
    status = Status(StatusCode::kUnavailable, stream.error());
  }
}

}  // namespace

void ChatStream::push(std::string_view bytes) {
  for (const std::string& data : parser_.push(bytes)) on_event(data);
}

void ChatStream::on_event(const std::string& data) {
  if (data == kSseDone) {
    done_ = true;
    return;
  }
  const nlohmann::json event = nlohmann::json::parse(data, nullptr, false);
  if (!event.is_object()) {
    error_ = "the server sent an event that is not JSON";
    return;
  }
  try {
    if (event.contains("error")) {
      error_ = error_message(200, data);
      return;
    }
    if (const auto& choices = event.at("choices"); !choices.empty()) {
      const nlohmann::json& choice = choices.at(0);
      const std::string piece = choice.at("delta").value("content", "");
      text_ += piece;
      if (!piece.empty()) on_text_(piece);
      if (choice.contains("finish_reason") && choice["finish_reason"].is_string()) {
        finish_reason_ = choice["finish_reason"].get<std::string>();
      }
    }
    if (event.contains("usage") && event["usage"].is_object()) {
      const nlohmann::json& usage = event["usage"];
      prompt_tokens_ = usage.at("prompt_tokens").get<std::uint64_t>();
      completion_tokens_ = usage.at("completion_tokens").get<std::uint64_t>();
      if (usage.contains("prompt_tokens_details"))
        cached_tokens_ = usage["prompt_tokens_details"].value("cached_tokens", 0);
    }
    if (event.contains("loci") && event["loci"].contains("tokens")) {
      sources_.clear();
      for (const char* source : {"device", "host", "disk", "computed"})
        sources_.emplace_back(source, event["loci"]["tokens"].value(source, std::uint64_t{0}));
    }
  } catch (const nlohmann::json::exception& error) {
    error_ = fmt::format("the server sent an event of another shape: {}", error.what());
  }
}

std::string error_message(int http_status, std::string_view body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const nlohmann::json& error = json["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>();
    }
    if (error.is_string()) return error.get<std::string>();
  }
  return fmt::format("the server answered {}: {}", http_status, body.substr(0, 200));
}

ServerHealth health_of_refusal(std::string_view body) {
  const std::string code = code_of_error(body);
  if (code == error_codes::kLoading) return ServerHealth::kLoading;
  if (code == error_codes::kDraining) return ServerHealth::kDraining;
  if (code == error_codes::kDeviceLost) return ServerHealth::kFailed;
  return ServerHealth::kBusy;
}

ChatClient::Health ChatClient::health() const {
  // A server that accepts and never answers counts as absent.
  const HttpAnswer answer = call_and_wait(address_, {.path = "/health", .timeout = 5 * kNanosPerSecond});
  if (answer.status.code() == StatusCode::kInvalidArgument)
    return {ServerHealth::kUnsuited, answer.status.message()};
  if (!answer.status.ok()) return {ServerHealth::kAbsent, answer.status.message()};
  if (answer.code == 200) return {ServerHealth::kReady, {}};
  std::string reason = error_message(answer.code, answer.body);
  if (answer.code != 503) return {ServerHealth::kUnsuited, std::move(reason)};
  return {health_of_refusal(answer.body), std::move(reason)};
}

ChatClient::Outcome ChatClient::chat(const std::string& body, ChatStream& stream) const {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - begin).count();
  };
  Outcome outcome;
  Call call(address_, stream);
  asio::signal_set signals(call.io, SIGINT);
  signals.async_wait([&](error_code error, int) {
    if (error) return;
    call.interrupted = true;
    call.socket.tcp().close(error);
  });
  asio::co_spawn(call.io, call.run(body), [&](const std::exception_ptr& failure) {
    signals.cancel();
    if (failure) std::rethrow_exception(failure);
  });
  try {
    while (call.io.run_one() > 0) {
      if (!outcome.first_text && !stream.text().empty()) outcome.first_text = since();
    }
    outcome.status = call.status;
  } catch (const std::exception& error) {
    outcome.status = Status(StatusCode::kUnavailable, error.what());
  }
  outcome.interrupted = call.interrupted;
  outcome.duration = since();
  return outcome;
}

}  // namespace loci
