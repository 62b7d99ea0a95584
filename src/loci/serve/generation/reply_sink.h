// SPDX-License-Identifier: Apache-2.0
// Where the answer of a generation goes: to a connection, or nowhere (a background response, whose outcome is
// read from the store). One object for one generation.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/generation/generation_summary.h"
#include "loci/serve/telemetry/trace_context.h"
#include "loci/serve/tenants/tenants.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

// For whom a generation runs.
struct ReplyOrigin {
  boost::asio::io_context& io;  // of the network thread
  std::shared_ptr<const Tenant> tenant;
  std::string request_id;
  std::string path;
  Nanos received_at = 0;
  std::optional<TraceContext> trace = {};  // of the request's span; absent: nothing is traced
};

// Network thread only. It is answered exactly once: by respond(), by fail(), or by begin_stream(), stream()
// ..., end_stream().
class ReplySink {
 public:
  explicit ReplySink(ReplyOrigin origin) : origin_(std::move(origin)) {}
  virtual ~ReplySink() = default;
  ReplySink(const ReplySink&) = delete;
  ReplySink& operator=(const ReplySink&) = delete;

  const ReplyOrigin& origin() const { return origin_; }
  virtual int status() const = 0;  // of HTTP; 0 before the answer

  // A header of HTTP, for whatever the answer is; instead of an earlier one of its name.
  virtual void set_header(const std::string& /*name*/, const std::string& /*value*/) {}

  // False: the client has gone.
  virtual boost::asio::awaitable<bool> respond(std::string json) = 0;
  virtual boost::asio::awaitable<bool> begin_stream() = 0;  // of server-sent events
  // `events` stays valid until it has returned.
  virtual boost::asio::awaitable<bool> stream(std::string_view events) = 0;
  virtual boost::asio::awaitable<bool> end_stream() = 0;
  virtual boost::asio::awaitable<void> fail(ApiError error) = 0;

  // False: nobody waits for what is written. So a stream needs no comments, and a turn that the store cannot
  // take now is tried again.
  virtual bool has_reader() const { return true; }
  // Whether the client has gone; then the generation is cancelled. `on_gone` is called once, when the client
  // goes.
  virtual bool gone() const = 0;
  virtual void watch(std::function<void()> on_gone) = 0;

  // Takes room for `bytes` of the reply, all that is kept of it until it has been answered. False: there is
  // no room for them.
  virtual bool hold(std::uint64_t /*bytes*/) { return true; }

  // What the generation came to, once it has ended: for the access log.
  virtual void account(const GenerationSummary& summary) = 0;

 private:
  ReplyOrigin origin_;
};

}  // namespace loci
