// SPDX-License-Identifier: Apache-2.0
// The reply of a generation to the client that called.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "loci/serve/call/router.h"
#include "loci/serve/call/services.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/generation/reply_sink.h"
#include "loci/serve/http/byte_budget.h"

namespace loci {

// Answers the call's client.
class CallSink final : public ReplySink {
 public:
  // `answers`: where the reply is charged, to the call's party.
  CallSink(Call& call, ByteBudget& answers);

  int status() const override { return call_.exchange.status(); }
  void set_header(const std::string& name, const std::string& value) override {
    call_.exchange.set_header(name, value);
  }
  boost::asio::awaitable<bool> respond(std::string json) override;
  boost::asio::awaitable<bool> begin_stream() override;
  boost::asio::awaitable<bool> stream(std::string_view events) override;
  boost::asio::awaitable<bool> end_stream() override;
  boost::asio::awaitable<void> fail(ApiError error) override;
  bool gone() const override { return call_.exchange.gone(); }
  void watch(std::function<void()> on_gone) override { call_.exchange.watch(std::move(on_gone)); }
  bool hold(std::uint64_t bytes) override { return charge_.grow_to(bytes); }
  void account(const GenerationSummary& summary) override;

 private:
  Call& call_;
  ByteBudget::Charge charge_;
};

// Names the prompt of the call, whose body is still there, for fronts.
boost::asio::awaitable<void> name_prompt(ApiServices& services, Call& call, PreparedGeneration& prepared,
                                         std::string_view response_id);

// Answers the call with what the model says, and leaves in it what the access log tells.
boost::asio::awaitable<void> run_generation(ApiServices& services, Call& call, PreparedGeneration prepared);

}  // namespace loci
