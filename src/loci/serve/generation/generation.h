// SPDX-License-Identifier: Apache-2.0
// One generation: submits its choices to the engine, turns their events into a stream or one reply, and
// cancels what nobody waits for any more (the client left, a stop string was found).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/serve/generation/choice.h"
#include "loci/serve/generation/event_mailbox.h"
#include "loci/serve/generation/generation_services.h"
#include "loci/serve/generation/generation_summary.h"
#include "loci/serve/generation/prepare.h"
#include "loci/serve/generation/reply_sink.h"

namespace loci {

// Network thread only. The destructor cancels what still runs.
class Generation {
 public:
  Generation(GenerationServices& services, ReplySink& sink, PreparedGeneration prepared);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Answers the sink. `waits_for_store` is called once if all is made and only the store's taking of it is
  // waited for.
  boost::asio::awaitable<void> run(std::function<void()> waits_for_store);
  GenerationSummary summary() const;
  // True: the engine has taken a choice; else it was refused, or its client left before.
  bool has_begun() const { return accepted_; }
  // What its tenant pays for. One that failed by the server's fault (5xx) costs what it came to only if a
  // part of its reply was sent. (What another server goes on with is paid for there.)
  std::uint64_t paid_tokens() const;

 private:
  struct Slot {
    RequestId request;
    Choice choice;
    std::optional<Choice> echo;       // of the prompt's tokens, where they are scored
    std::uint32_t forced_tokens = 0;  // of them, all but the first
    std::uint32_t echoed_tokens = 0;  // that came so far
    // With what the reply begins, as another server said; of it, what was said here again.
    std::vector<TokenId> said;
    std::size_t said_again = 0;
    bool open = true;            // its end has not come
    bool finished_late = false;  // its end is written with the stream's, by a worker
    std::uint32_t cached_tokens = 0;
    ContextSources sources;
    std::optional<Nanos> started_at;  // admitted
    std::optional<Nanos> first_token_at;
    std::uint32_t completion_tokens = 0;
    Nanos last_token_at = 0;
    FinishedChoice reply;  // as far as it is known
  };

  void submit();
  // Adds to the request the tokens with which the choice begins.
  void begin_with_said(GenerationRequest& request, Slot& slot) const;
  // Makes the engine return the log-probabilities of the prompt's tokens: it samples them all, after the
  // first, as forced ones.
  void score_prompt(GenerationRequest& request, Slot& slot);
  void on_event(const MailboxEvent& event);
  void on_started(std::uint32_t index, const GenerationStarted& started, Nanos at);
  // Where its prompt's state comes from: what was found, then what came of it.
  void take_sources(std::uint32_t index, const ContextSources& sources);
  void on_token(std::uint32_t index, const GeneratedToken& token, Nanos at);
  // A token of the reply, or of its beginning that was said before.
  void say(std::uint32_t index, const GeneratedToken& token);
  // Says the beginnings of choices that have begun since; between parts of them the network thread does other
  // work.
  boost::asio::awaitable<void> say_again();
  // True: the front is told the reply's tokens. (Of log probabilities another server knows nothing.)
  bool tells_tokens() const;
  void on_ended(std::uint32_t index, const GenerationEnded& ended);
  // Why the reply ends without an end of its own; absent: it has one.
  std::optional<ApiError> failure_of(const GenerationEnded& ended) const;
  void show(std::uint32_t index);
  // Counts log-probabilities that are kept until the answer; where there is no room for them it fails.
  void keep(std::span<const LogprobEntry> entries);
  void close(Slot& slot, ReplyFinish finish);
  void cancel_open();
  // The client has stopped reading, or reads again. Meanwhile its requests are paused.
  void pause_open(bool paused);
  boost::asio::awaitable<bool> flush();
  boost::asio::awaitable<void> remember_tokens();
  // Makes the turn durable where that was asked for.
  boost::asio::awaitable<void> commit();
  // Where nobody waits for the answer, until the store takes the turn or refuses it for good.
  boost::asio::awaitable<Status> store_turn();
  boost::asio::awaitable<void> answer();
  boost::asio::awaitable<void> answer_stream_end();
  boost::asio::awaitable<void> answer_whole();
  boost::asio::awaitable<void> answer_error();
  // True: it failed, and the front has another server go on with its stream.
  bool goes_on_elsewhere() const;
  ReplyUsage usage() const;
  ReplyExplanation explanation() const;
  std::vector<FinishedChoice> take_choices();

  GenerationServices& services_;
  std::function<void()> waits_for_store_;
  const ServedModel& served_;
  ReplySink& sink_;
  PreparedGeneration prepared_;
  std::shared_ptr<EventMailbox> mailbox_;
  std::vector<Slot> slots_;  // prompt-major: choice = prompt * n + i
  std::size_t open_ = 0;
  bool accepted_ = false;   // a choice was admitted: the answer is a 200
  bool begun_ = false;      // the format has begun its stream
  bool resumes_ = false;    // a choice that has begun has more to be said again
  bool streaming_ = false;  // its header was sent
  bool client_left_ = false;
  bool paused_ = false;
  std::string frames_;  // events of the stream that are not yet written
  std::optional<ApiError> failure_;
  std::uint64_t kept_bytes_ = 0;         // of log-probabilities
  std::uint64_t held_bytes_ = 0;         // for which the sink has room
  std::vector<FinishedChoice> choices_;  // once all have ended
  Nanos submitted_at_ = 0;
  std::optional<Nanos> first_token_at_;
  Nanos ended_at_ = 0;
};

}  // namespace loci
