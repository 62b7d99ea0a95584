// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/chat_client.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <exception>
#include <nlohmann/json.hpp>

#include "loci/base/json_reader.h"
#include "loci/cluster/host_lookup.h"
#include "loci/serve/http/http_call.h"
#include "loci/serve/wire/api_error.h"

namespace loci {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kShownBytes = 200;  // an error quotes so much of a server's answer

Status unreachable(const ServerAddress& address, const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return status;
  return {StatusCode::kUnavailable,
          fmt::format("no server answers at {}:{} ({}); start one with `loci serve default`", address.host,
                      address.port, status.message())};
}

Status status_of(const ServerAddress& address, const HttpAnswer& answer, const ChatStream& stream) {
  if (answer.code == 0) return unreachable(address, answer.status);
  // (Of a refusal that breaks off, what has come says more than that.)
  if (answer.code != 200) {
    return {answer.code < 500 ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
            error_message(answer.code, answer.body)};
  }
  if (!answer.status.ok())
    return {StatusCode::kUnavailable, "the reply has no end: " + answer.status.message()};
  if (!stream.error().empty()) return {StatusCode::kUnavailable, stream.error()};
  if (!stream.done() && stream.finish_reason().empty())
    return {StatusCode::kUnavailable, "the reply has no end: the server closed the connection before it"};
  return {};
}

}  // namespace

void ChatStream::push(std::string_view bytes) {
  for (const std::string& data : parser_.push(bytes)) on_event(data);
  if (parser_.overflowed())
    error_ = fmt::format("the server sent an event of more than {} bytes", parser_.event_bytes_max());
}

void ChatStream::on_event(const std::string& data) {
  if (data == kSseDone) {
    done_ = true;
    return;
  }
  const nlohmann::json event = read_json<nlohmann::json>(data, {}).value;
  if (!event.is_object()) {
    error_ = "the server sent an event that is not JSON";
    return;
  }
  try {
    if (event.contains("error") && !event["error"].is_null()) {
      error_ = error_message(200, data);
      return;
    }
    if (const auto& choices = event.at("choices"); !choices.empty()) {
      const nlohmann::json& choice = choices.at(0);
      // (Others' servers begin with a content of null.)
      const auto content = choice.at("delta").find("content");
      const bool has_text = content != choice.at("delta").end() && !content->is_null();
      const std::string piece = has_text ? content->get<std::string>() : std::string();
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
      // (Others' servers have a null there, or in it.)
      const auto details = usage.find("prompt_tokens_details");
      const bool has_details = details != usage.end() && details->is_object();
      if (has_details && details->contains("cached_tokens") && !(*details)["cached_tokens"].is_null())
        cached_tokens_ = (*details)["cached_tokens"].get<std::uint64_t>();
    }
    if (event.contains("loci") && event["loci"].contains("tokens")) {
      sources_.clear();
      for (const char* source : {"device", "host", "disk", "shared", "computed"})
        sources_.emplace_back(source, event["loci"]["tokens"].value(source, std::uint64_t{0}));
    }
  } catch (const nlohmann::json::exception&) {
    error_ = fmt::format("the server sent an event of another shape: {}", data.substr(0, kShownBytes));
  }
}

std::string error_message(int http_status, std::string_view body) {
  const nlohmann::json json = read_json<nlohmann::json>(body, {}).value;
  if (json.is_object() && json.contains("error")) {
    const nlohmann::json& error = json["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>();
    }
    if (error.is_string()) return error.get<std::string>();
  }
  return fmt::format("the server answered {}: {}", http_status, body.substr(0, kShownBytes));
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
  const SystemClock clock;
  const Nanos begin = clock.now();
  Outcome outcome;
  HttpAnswer answer;
  CalledServer server{.address = address_, .endpoints = {}};
  asio::io_context io{1};
  asio::signal_set signals(io, SIGINT);
  signals.async_wait([&](const error_code& error, int) {
    if (error) return;
    outcome.interrupted = true;
    io.stop();  // the connection closes with it
  });
  const auto read = [&](std::string_view bytes, Nanos now) {
    stream.push(bytes);
    if (!outcome.first_text && !stream.text().empty()) outcome.first_text = now - begin;
    return !stream.done() && stream.error().empty();  // after an error a stream may have no end
  };
  const auto end = [&](HttpAnswer got) {
    answer = std::move(got);
    signals.cancel();
  };
  // An interrupt does not wait for the system's resolver.
  const HostLookup lookup(io, address_.host, address_.port_number(),
                          [&](const error_code& error, const HostLookup::Endpoints& found) {
                            if (error)
                              return end({.status = Status(StatusCode::kUnavailable, error.message())});
                            server.endpoints = found;
                            CallRequest request{.method = boost::beast::http::verb::post,
                                                .path = "/v1/chat/completions",
                                                .body = body};
                            asio::co_spawn(io, http_call(server, clock, std::move(request), read),
                                           [&](const std::exception_ptr& failure, HttpAnswer got) {
                                             if (failure) got.status = internal_error("the call failed");
                                             end(std::move(got));
                                           });
                          });
  io.run();
  if (!outcome.interrupted) outcome.status = status_of(address_, answer, stream);
  outcome.duration = clock.now() - begin;
  return outcome;
}

}  // namespace loci
