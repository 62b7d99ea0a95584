// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
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

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

Status unreachable(const ServerAddress& address, const error_code& error) {
  return {StatusCode::kUnavailable,
          fmt::format("no server answers at {}:{} ({}); start one with `loci serve default`", address.host,
                      address.port, error.message())};
}

// One reply in flight: connection, response parser, where its bytes go.
struct Call {
  Call(const ServerAddress& to, ChatStream& out) : address(to), stream(out) {
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  asio::awaitable<void> run(const std::string& body);
  asio::awaitable<error_code> send(const std::string& body);
  asio::awaitable<void> receive();

  const ServerAddress& address;
  ChatStream& stream;
  asio::io_context io{1};
  tcp::socket socket{io};
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  std::string error_body;
  Status status;
  bool interrupted = false;
};

asio::awaitable<error_code> Call::send(const std::string& body) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found = co_await resolver.async_resolve(address.host, address.port,
                                                     asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_await asio::async_connect(socket, found, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return error;
  socket.set_option(tcp::no_delay(true), error);
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
  co_return error;
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
  const error_code error = co_await send(body);
  if (interrupted) co_return;
  if (error) {
    status = unreachable(address, error);
    co_return;
  }
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

Result<ServerAddress> parse_server_url(std::string_view url) {
  const std::string whole(url);
  if (url.starts_with("https://")) {
    return invalid_argument(fmt::format("'{}': only http:// is spoken", whole), "URL");
  }
  if (url.starts_with("http://")) url.remove_prefix(7);
  while (url.ends_with('/')) url.remove_suffix(1);
  ServerAddress address{.host = {}, .port = "8080", .key = {}};
  std::string_view rest;
  if (url.starts_with('[')) {
    const auto end = url.find(']');
    if (end == url.npos) return invalid_argument(fmt::format("'{}': a ']' is missing", whole), "URL");
    address.host = url.substr(1, end - 1);
    rest = url.substr(end + 1);
  } else {
    const auto colon = url.find(':');
    address.host = url.substr(0, colon);
    rest = colon == url.npos ? std::string_view() : url.substr(colon);
  }
  if (rest.starts_with(':')) {
    address.port = rest.substr(1);
    rest = {};
  }
  const bool digits = !address.port.empty() && address.port.size() <= 5 &&
                      address.port.find_first_not_of("0123456789") == std::string::npos;
  if (address.host.empty() || !rest.empty() || !digits || address.host.find('/') != std::string::npos) {
    return invalid_argument(fmt::format("expected http://HOST:PORT; got '{}'", whole), "URL");
  }
  return address;
}

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

ServerHealth ChatClient::health() const {
  asio::io_context io{1};
  error_code error;
  tcp::resolver resolver(io);
  tcp::socket socket(io);
  const auto found = resolver.resolve(address_.host, address_.port, error);
  if (!error) asio::connect(socket, found, error);
  if (error) return ServerHealth::kAbsent;
  // A server that accepts and never answers counts as absent.
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  http::request<http::empty_body> request(http::verb::get, "/health", 11);
  request.set(http::field::host, address_.host);
  request.set(http::field::connection, "close");
  http::write(socket, request, error);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  if (!error) http::read(socket, buffer, response, error);
  if (error) return ServerHealth::kAbsent;
  if (response.result() == http::status::ok) return ServerHealth::kReady;
  return response.body().find("draining") != std::string::npos ? ServerHealth::kDraining
                                                               : ServerHealth::kLoading;
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
    call.socket.close(error);
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
