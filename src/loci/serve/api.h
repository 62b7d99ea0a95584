// The HTTP API: which path is answered by what. See docs/http-api.md.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/api_error.h"
#include "loci/serve/connection.h"
#include "loci/serve/generation.h"
#include "loci/serve/metrics.h"
#include "loci/serve/served_model.h"
#include "loci/serve/worker_pool.h"

namespace loci {

struct ApiOptions {
  std::string cors_origin = "*";    // Access-Control-Allow-Origin; empty: none is sent
  std::optional<Nanos> time_limit;  // of a whole generation
};

// handle(): network thread. set_...(): any thread.
class Api {
 public:
  Api(ApiOptions options, WorkerPool& workers, ServeMetrics& metrics, const Clock& clock,
      std::shared_ptr<spdlog::logger> log);

  // Answers one exchange; never throws.
  boost::asio::awaitable<void> handle(Exchange& exchange);

  // Until then everything that needs the model is answered by 503. `served` must outlive the server.
  void set_ready(const ServedModel& served) { served_.store(&served); }
  // New generations are refused with 503 from now on, and /health says so.
  void set_draining() { draining_.store(true); }

 private:
  struct Route;
  static const Route* find_route(std::string_view path);

  boost::asio::awaitable<void> dispatch(Exchange& exchange, const Route& route);
  boost::asio::awaitable<void> answer(Exchange& exchange, ApiError error);
  boost::asio::awaitable<void> answer_json(Exchange& exchange, std::string body);
  boost::asio::awaitable<void> health(Exchange& exchange);
  boost::asio::awaitable<void> metrics(Exchange& exchange);
  boost::asio::awaitable<void> models(Exchange& exchange);
  boost::asio::awaitable<void> chat(Exchange& exchange);
  boost::asio::awaitable<void> completions(Exchange& exchange);
  boost::asio::awaitable<void> tokenize_text(Exchange& exchange);
  boost::asio::awaitable<void> detokenize_tokens(Exchange& exchange);

  using Preparer = std::variant<PreparedGeneration, ApiError> (*)(std::string_view, const ServedModel&);
  using Transformer = std::variant<std::string, ApiError> (*)(std::string_view, const ServedModel&);
  boost::asio::awaitable<void> generate(Exchange& exchange, Preparer prepare);
  boost::asio::awaitable<void> transform(Exchange& exchange, Transformer transformer);

  // What keeps a request that needs the model from being served now.
  std::optional<ApiError> not_ready() const;
  void log_generation(const Exchange& exchange, const GenerationSummary& summary) const;
  void add_common_headers(Exchange& exchange) const;

  ApiOptions options_;
  WorkerPool& workers_;
  ServeMetrics& metrics_;
  const Clock& clock_;
  std::shared_ptr<spdlog::logger> log_;
  std::atomic<const ServedModel*> served_{nullptr};
  std::atomic<bool> draining_{false};
};

}  // namespace loci
