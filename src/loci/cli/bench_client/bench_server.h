// SPDX-License-Identifier: Apache-2.0
// One server under test, and its side of every conversation: what was said and what it replied.
// Thread-compatible: used by the thread that runs the io_context.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cli/bench_client/dialogue.h"
#include "loci/cli/bench_client/reply_stream.h"
#include "loci/cli/bench_client/turn_schedule.h"
#include "loci/serve/http/http_call.h"

namespace loci {

struct RequestOptions {
  BenchApi api = BenchApi::kChat;
  std::string model;  // empty: the first that the server names
  std::string api_key;
  std::string tls_ca;  // PEM file of the authorities to trust for https; empty: those of the system
  std::uint32_t max_tokens = 64;
  bool ignore_eos = false;  // replies of exactly max_tokens, where the server heeds it
  double temperature = 0;
  Nanos timeout = 0;  // of one request
};

// One request, as the client saw it. Times are since the run's begin.
struct TurnRecord {
  TurnId id;
  std::string error;  // empty: there is a whole reply
  // When it was to be sent; in a closed loop when it was. Its times count from here: a client that comes late
  // to send makes no server look faster.
  Nanos due = 0;
  Nanos sent = 0;
  Nanos first = 0;  // the first piece of the reply; its end where nothing of it was text
  Nanos ended = 0;
  std::vector<Nanos> gaps;  // between its pieces
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint32_t asked_tokens = 0;  // the most that its reply was to have; 0: as the run's options say
  bool counts_known = false;       // false: the server does not count; output_tokens are pieces
};

class BenchServer {
 public:
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;

  // Errors: kInvalidArgument (the URL).
  static Result<std::unique_ptr<BenchServer>> open(const std::string& url, const RequestOptions& options,
                                                   const Clock& clock);

  const std::string& url() const { return url_; }
  const ServerAddress& address() const { return http_.address; }
  // What its host's name was looked up as. Before anything is asked.
  void found(Endpoints endpoints) { http_.endpoints = std::move(endpoints); }
  const std::string& model() const { return options_.model; }

  // Waits while the server loads, at most `patience`, and finds out the model's name.
  // Errors: kUnavailable, where nobody answers.
  boost::asio::awaitable<Status> greet(Nanos patience);
  // One request outside of all conversations; how it ends does not matter.
  boost::asio::awaitable<void> warm_up(std::string text);
  // From here on `dialogues` are spoken (they outlive the server) and times count from `epoch`.
  void begin(const std::vector<Dialogue>& dialogues, Nanos epoch);
  // Sends one turn, which was `due` then; nullopt: now. A conversation's turns must follow each other.
  boost::asio::awaitable<TurnRecord> run_turn(TurnId id, std::optional<Nanos> due);

 private:
  // What has been said in a conversation: messages of chats, a transcript of completions. Of responses the
  // server has it, and the last one's id continues it.
  struct History {
    nlohmann::json messages = nlohmann::json::array();
    std::string transcript;
    std::string system, words, last_response;
    std::uint32_t reply_tokens = 0;  // of the turn that is open
  };
  BenchServer(std::string url, std::string prefix, CalledServer http, RequestOptions options,
              const Clock& clock);
  void say(History& history, const Dialogue& dialogue, std::uint32_t turn) const;
  void hear(History& history, const ReplyStream& reply) const;
  CallRequest make_request(const History& history) const;
  nlohmann::json body_of(const History& history) const;

  std::string url_;
  std::string prefix_;  // of paths: "/v1"
  CalledServer http_;
  RequestOptions options_;
  const Clock& clock_;
  const std::vector<Dialogue>* dialogues_ = nullptr;
  std::vector<History> histories_;
  Nanos epoch_ = 0;
};

}  // namespace loci
