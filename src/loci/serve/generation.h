// One generation over HTTP: submits its choices to the engine, turns their events into a stream or one
// reply, and cancels what nobody waits for any more (the client left, a stop string was found).
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/serve/connection.h"
#include "loci/serve/event_mailbox.h"
#include "loci/serve/prepare.h"
#include "loci/serve/response_json.h"
#include "loci/serve/served_model.h"
#include "loci/serve/worker_pool.h"

namespace loci {

struct GenerationContext {
  const ServedModel& served;
  WorkerPool& workers;
  ServeMetrics& metrics;
  const Clock& clock;
  const std::atomic<bool>& draining;  // the server is stopping
  std::optional<Nanos> time_limit;
  SharingGroup group;
};

// What the access log tells of it.
struct GenerationSummary {
  ReplyUsage usage;
  std::size_t choices = 0;
  std::optional<Nanos> first_token;  // from the request's last byte
  Nanos duration = 0;
  bool client_left = false;
  std::string finish_reason;  // of the first choice
};

// Network thread only. The destructor cancels what still runs.
class Generation {
 public:
  Generation(const GenerationContext& context, Exchange& exchange, PreparedGeneration prepared);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Answers the exchange.
  boost::asio::awaitable<void> run();
  GenerationSummary summary() const;

 private:
  struct Slot {
    RequestId request;
    Choice choice;
    bool open = true;  // its end has not come
    std::uint32_t cached_tokens = 0;
    std::uint32_t completion_tokens = 0;
    Nanos last_token_at = 0;
    Delta content;  // not streamed: all so far
    std::string finish_reason;
  };

  void submit();
  void on_event(const MailboxEvent& event);
  void on_started(std::uint32_t index, const GenerationStarted& started, Nanos at);
  void on_token(std::uint32_t index, const GeneratedToken& token, Nanos at);
  void on_ended(std::uint32_t index, const GenerationEnded& ended);
  void show(std::uint32_t index);
  void close(Slot& slot, std::string finish_reason);
  void cancel_open();
  boost::asio::awaitable<bool> flush();
  boost::asio::awaitable<void> answer_whole();
  boost::asio::awaitable<void> answer_error();
  ReplyUsage usage() const;

  const GenerationContext& context_;
  Exchange& exchange_;
  PreparedGeneration prepared_;
  ReplyHead head_;
  std::shared_ptr<EventMailbox> mailbox_;
  std::vector<Slot> slots_;  // prompt-major: choice = prompt * n + i
  std::size_t open_ = 0;
  bool accepted_ = false;   // a choice was admitted: the answer is a 200
  bool streaming_ = false;  // its header was sent
  bool client_left_ = false;
  std::string frames_;  // events of the stream that are not yet written
  std::optional<ApiError> failure_;
  Nanos submitted_at_ = 0;
  std::optional<Nanos> first_token_at_;
  Nanos ended_at_ = 0;
};

}  // namespace loci
