// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "loci/serve/generation/compute_elsewhere.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::size_t kSaidAtOnce = 256;  // tokens that the network thread says again without a pause
// Bytes of a stream. A token with its log-probabilities takes 2 KB: all that may wait would be half a
// megabyte of a client that does not read.
constexpr std::size_t kFramesAtOnce = 64 << 10;
// Log-probabilities of one choice that the network thread writes at a choice's end. A format may write all
// of them four times there.
constexpr std::size_t kLogprobsWrittenHere = 1'024;
constexpr std::uint64_t kHeldAtOnce = 64 << 10;  // bytes

// Of the time that a reply may take.
std::optional<Nanos> time_left(const GenerationServices& services, Nanos waited) {
  if (!services.time_limit) return std::nullopt;
  return std::max<Nanos>(1, *services.time_limit - waited);
}

// What it takes of memory, roughly: short texts lie in their strings.
std::uint64_t bytes_of(const LogprobEntry& entry) {
  constexpr std::size_t kShort = 15;
  const auto beyond = [](const std::string& text) { return text.size() > kShort ? text.size() : 0; };
  std::uint64_t bytes = sizeof(entry) + entry.top.size() * sizeof(entry.top[0]) + beyond(entry.bytes);
  for (const auto& [text, logprob] : entry.top) bytes += beyond(text);
  return bytes;
}

ApiError too_many_logprobs() {
  return http_error(400,
                    "the log-probabilities of this request's replies take more memory than answers may, or "
                    "than this client's share of it; ask for fewer of them (of replies, of tokens, or of "
                    "alternatives), or stream them",
                    "reply_too_large");
}

std::uint64_t random_seed() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

}  // namespace

Generation::Generation(GenerationServices& services, ReplySink& sink, PreparedGeneration prepared)
    : services_(services),
      served_(*services.served.load()),
      sink_(sink),
      prepared_(std::move(prepared)),
      mailbox_(std::make_shared<EventMailbox>(sink_.origin().io, services.clock)),
      streaming_(prepared_.elsewhere && prepared_.elsewhere->is_streaming) {}

Generation::~Generation() {
  cancel_open();
  mailbox_->close();
}

void Generation::cancel_open() {
  for (Slot& slot : slots_) {
    if (slot.open) served_.engine->cancel(slot.request);
    slot.open = false;
  }
  open_ = 0;
}

void Generation::pause_open(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  for (const Slot& slot : slots_) {
    if (slot.open) served_.engine->pause(slot.request, paused);
  }
}

void Generation::submit() {
  const GenerationFields& fields = prepared_.fields;
  const Tenant& tenant = *sink_.origin().tenant;
  submitted_at_ = services_.clock.now();
  std::uint32_t index = 0;
  const bool computed_anew = served_.backend.positions == Positions::kAbsolute;
  for (std::size_t p = 0; p < prepared_.prompts.size(); ++p) {
    // Where state cannot move to other positions what is left is computed as any prompt is.
    const std::vector<TokenRange> dropped = computed_anew ? std::vector<TokenRange>() : prepared_.dropped[p];
    const std::vector<TokenId> prompt =
        computed_anew ? without(prepared_.prompts[p], prepared_.dropped[p]) : prepared_.prompts[p];
    const auto room = static_cast<std::uint32_t>(served_.context_tokens - kept_tokens(prepared_, p));
    for (std::uint32_t i = 0; i < fields.choices; ++i, ++index) {
      GenerationRequest request{
          .tenant = tenant.id,
          .prompt = prompt,
          .sampling = fields.sampling,
          .max_new_tokens = std::max(std::min(fields.max_tokens.value_or(room), room), 1u),
          .stop_tokens = prepared_.stop_tokens,
          .time_limit = time_left(services_, prepared_.elsewhere ? prepared_.elsewhere->waited : 0),
          .grammar = prepared_.grammar,
          .weight = tenant.limits.weight,
          .queued_max = tenant.limits.queued_max(served_.engine->config().max_queued),
          .dropped = dropped,
          .salt = fields.cache_salt,
          .repeats_prompt = i > 0,
          .text = index == 0 ? prepared_.text : nullptr};
      const std::optional<ResumedReply>& resumed = prepared_.resumed;
      request.sampling.seed = fields.has_seed ? fields.sampling.seed + i
                              : resumed       ? resumed->drawn("seed", index)
                                              : random_seed();
      ChoiceOptions options{.stop = fields.stop,
                            .stop_tokens = prepared_.stop_tokens,
                            .min_tokens = fields.sampling.min_tokens,
                            .logprobs = fields.sampling.logprobs};
      // Whoever scores a prompt counts the tokens that follow it: the one that ends the reply too.
      if (prepared_.scores_prompt) options.stop_tokens.clear();
      if (prepared_.parser) {
        options.syntax = &served_.chat.output;
        options.parser = *prepared_.parser;
        options.parser.id_prefix =
            fmt::format("call_{:016x}", resumed ? resumed->drawn("call", index) : random_seed());
        options.one_call = prepared_.one_call;
      }
      slots_.push_back({.request = {},
                        .choice = Choice(served_.model->tokenizer, std::move(options)),
                        .reply = {.index = index}});
      if (prepared_.scores_prompt) score_prompt(request, slots_.back());
      begin_with_said(request, slots_.back());
      slots_.back().request = served_.engine->submit(std::move(request), mailbox_->listener(index));
      ++open_;
    }
  }
  if (prepared_.elsewhere) prepared_.elsewhere->handed.reset();
}

void Generation::score_prompt(GenerationRequest& request, Slot& slot) {
  const std::uint32_t reply_tokens = prepared_.fields.max_tokens == 0 ? 0 : request.max_new_tokens;
  if (reply_tokens == 0) request.stop_tokens.clear();
  slot.echo.emplace(served_.model->tokenizer,
                    ChoiceOptions{.stop = {}, .stop_tokens = {}, .min_tokens = 0, .logprobs = true});
  slot.echo->push({.token = request.prompt.front(), .chosen = {request.prompt.front(), 0}, .top = {}});
  request.sampling.forced.assign(request.prompt.begin() + 1, request.prompt.end());
  request.prompt.resize(1);
  slot.forced_tokens = static_cast<std::uint32_t>(request.sampling.forced.size());
  // A request makes a token at least; of a prompt of one token nobody sees it.
  request.max_new_tokens = std::max(reply_tokens + slot.forced_tokens, 1u);
}

bool Generation::tells_tokens() const {
  return prepared_.resumed && prepared_.fields.stream && !prepared_.fields.sampling.logprobs &&
         !prepared_.scores_prompt;
}

void Generation::begin_with_said(GenerationRequest& request, Slot& slot) const {
  if (!tells_tokens() || slot.reply.index >= prepared_.resumed->said.size()) return;
  const std::vector<TokenId>& said = prepared_.resumed->said[slot.reply.index];
  // The last one is sampled again, as it may end the reply.
  const std::size_t count =
      std::min<std::size_t>(said.size() - (said.empty() ? 0 : 1), request.max_new_tokens - 1);
  slot.said.assign(said.begin(), said.begin() + static_cast<std::ptrdiff_t>(count));
  request.prompt.insert(request.prompt.end(), slot.said.begin(), slot.said.end());
  request.said_tokens = static_cast<std::uint32_t>(count);
}

asio::awaitable<void> Generation::run(std::function<void()> waits_for_store) {
  waits_for_store_ = std::move(waits_for_store);
  // Each submission copies and sorts its prompt: many long ones are too much for this thread.
  std::size_t tokens = 0;
  for (const std::vector<TokenId>& prompt : prepared_.prompts)
    tokens += prompt.size() * prepared_.fields.choices;
  if (tells_tokens()) {
    const std::uint64_t prompts = prompts_name(prepared_.prompts);
    const auto is_unknown = [&](TokenId token) { return token.value >= served_.model->spec.vocabulary; };
    const auto has_unknown = [&](const auto& said) { return std::ranges::any_of(said, is_unknown); };
    // Told of another model or by a stranger: the reply begins anew, and the front compares its events.
    if (prepared_.resumed->prompts != prompts || std::ranges::any_of(prepared_.resumed->said, has_unknown))
      prepared_.resumed->said.clear();
    for (const std::vector<TokenId>& said : prepared_.resumed->said) tokens += said.size();
    frames_ += mark_event({.kind = ReplyMark::Kind::kPrompts, .number = prompts});
  }
  if (tokens <= kTokensSubmittedHere) {
    submit();
  } else {
    const auto job = [this] {
      submit();
      return true;
    };
    co_await services_.workers.run(sink_.origin().tenant->id, job);
  }
  sink_.watch([mailbox = mailbox_] { mailbox->wake(); });
  mailbox_->on_full([this] { pause_open(true); });
  const auto streams = [this] { return prepared_.fields.stream && accepted_ && !failure_; };
  const bool has_reader = prepared_.fields.stream && sink_.has_reader();
  const auto quiet_limit = has_reader ? std::optional(services_.quiet_limit) : std::nullopt;
  while (open_ > 0 && !failure_ && !client_left_) {
    const bool has_events = co_await mailbox_->wait(quiet_limit);
    client_left_ = client_left_ || sink_.gone();
    if (client_left_) break;
    if (!has_events) {
      frames_ += kSseComment;
      client_left_ = !co_await flush();
      continue;
    }
    for (const MailboxEvent& event : mailbox_->take()) {
      on_event(event);
      if (resumes_) co_await say_again();
      if (streams() && frames_.size() >= kFramesAtOnce && !co_await flush()) client_left_ = true;
      if (client_left_) break;
    }
    if (client_left_) break;
    if (streams() && !co_await flush()) client_left_ = true;
    if (client_left_) break;
    if (mailbox_->empty()) pause_open(false);
  }
  ended_at_ = services_.clock.now();
  cancel_open();
  // A client that stopped the reply goes on with what it has seen of it.
  if (!failure_) co_await remember_tokens();
  if (!client_left_ && !failure_) co_await commit();
  if (!client_left_) co_await answer();
  if (!has_begun()) co_return;
  const ReplyUsage total = usage();
  services_.metrics.generation_done(ended_at_ - sink_.origin().received_at, total.prompt_tokens,
                                    total.completion_tokens);
}

// --- events ---

void Generation::on_event(const MailboxEvent& event) {
  if (!slots_[event.choice].open) return;
  if (const auto* started = std::get_if<GenerationStarted>(&event.event)) {
    on_started(event.choice, *started, event.at);
  } else if (const auto* restored = std::get_if<GenerationRestored>(&event.event)) {
    take_sources(event.choice, restored->sources);
  } else if (const auto* token = std::get_if<GeneratedToken>(&event.event)) {
    on_token(event.choice, *token, event.at);
  } else {
    on_ended(event.choice, std::get<GenerationEnded>(event.event));
  }
}

void Generation::take_sources(std::uint32_t index, const ContextSources& sources) {
  Slot& slot = slots_[index];
  const std::uint32_t prompt = index / prepared_.fields.choices;
  const ComputedElsewhere::Prompt handed =
      prepared_.elsewhere ? prepared_.elsewhere->prompts[prompt] : ComputedElsewhere::Prompt();
  const EarlyReadPace early = handed.early ? handed.early->now() : EarlyReadPace();
  slot.sources = early.as_read(sources);
  // Of a prompt that is scored the engine has had the first token; the others are computed as forced ones.
  slot.sources.computed[static_cast<std::size_t>(MissReason::kNeverSeen)] += slot.forced_tokens;
  // What was computed for it just before, at another member or for a read, was not kept from before.
  const std::uint32_t fresh = std::min(slot.sources.shared, handed.computed) + early.computed();
  slot.cached_tokens = sources.cached() - std::min(sources.cached(), fresh);
  if (!slot.said.empty()) {
    // What stands behind the prompt is no part of it.
    const std::size_t kept = kept_tokens(prepared_, prompt);
    slot.cached_tokens = std::min(slot.cached_tokens, static_cast<std::uint32_t>(kept));
  }
}

void Generation::on_started(std::uint32_t index, const GenerationStarted& started, Nanos at) {
  Slot& slot = slots_[index];
  take_sources(index, started.sources);
  if (!slot.said.empty()) resumes_ = true;
  slot.started_at = at;
  services_.metrics.queued(at - submitted_at_);
  accepted_ = true;
  if (!prepared_.fields.stream) return;
  if (!begun_) frames_ += prepared_.format->begin(usage());
  begun_ = true;
  frames_ += prepared_.format->begin_choice(index);
}

void Generation::on_token(std::uint32_t index, const GeneratedToken& token, Nanos at) {
  Slot& slot = slots_[index];
  if (slot.echoed_tokens < slot.forced_tokens) {
    ++slot.echoed_tokens;
    slot.echo->push(token);
    OutputDelta echoed = slot.echo->take();
    keep(echoed.logprobs);
    std::move(echoed.logprobs.begin(), echoed.logprobs.end(), std::back_inserter(slot.reply.echoed));
    return;
  }
  if (prepared_.fields.max_tokens == 0) return;
  if (!first_token_at_) {
    first_token_at_ = at;
    services_.metrics.first_token(at - sink_.origin().received_at);
  }
  if (!slot.first_token_at) {
    slot.first_token_at = at;
    const bool first_of_prompt = index % prepared_.fields.choices == 0;
    if (first_of_prompt && slot.started_at) services_.metrics.restored(slot.sources, at - *slot.started_at);
  }
  if (slot.last_token_at != 0) services_.metrics.next_token(at - slot.last_token_at);
  slot.last_token_at = at;
  say(index, token);
}

void Generation::say(std::uint32_t index, const GeneratedToken& token) {
  Slot& slot = slots_[index];
  slot.reply.tokens.push_back(token.token);
  slot.choice.push(token);
  slot.completion_tokens = slot.choice.tokens();
  if (tells_tokens()) frames_ += mark_event({.choice = index, .number = token.token.value});
  show(index);
  if (!slot.choice.ended()) return;
  served_.engine->cancel(slot.request);
  close(slot, slot.choice.stopped() ? ReplyFinish::kStopString : ReplyFinish::kToolCalls);
}

asio::awaitable<void> Generation::say_again() {
  resumes_ = false;
  for (std::uint32_t index = 0; index < slots_.size() && !client_left_; ++index) {
    Slot& slot = slots_[index];
    while (slot.started_at && slot.open && slot.said_again < slot.said.size() && !client_left_) {
      const std::size_t end = std::min(slot.said.size(), slot.said_again + kSaidAtOnce);
      while (slot.open && slot.said_again < end)
        say(index, GeneratedToken{.token = slot.said[slot.said_again++], .chosen = {}, .top = {}});
      if (!co_await flush()) client_left_ = true;
    }
  }
}

// A front gives to another server what this one cannot go on with as it stops or has lost its device, and
// knows that by the code; no turn of it was stored.
std::optional<ApiError> Generation::failure_of(const GenerationEnded& ended) const {
  const bool stops = services_.draining.load();
  if (!ended.status.ok()) {
    const Status health = served_.engine->health();
    const bool is_lost = health.code() == StatusCode::kUnavailable;  // standing still ends no request
    if (ended.status.code() == StatusCode::kUnavailable && is_lost) return device_error(health);
    if (ended.status.code() == StatusCode::kUnavailable && stops) return stopping_error();
    // The engine does not know which field of the request its grammar was made of.
    if (ended.reason == FinishReason::kGrammar) {
      const auto& constraint = prepared_.fields.constraint;
      return api_error(
          Status(ended.status.code(), ended.status.message(), constraint ? constraint->field : "tools"));
    }
    return api_error(ended.status, ended.retry_after);
  }
  if (ended.reason == FinishReason::kCancelled || (ended.reason == FinishReason::kDeadline && stops)) {
    ApiError error = stopping_error();
    error.message = "the server is stopping, and the reply was cut off; send the request again later";
    return error;
  }
  if (ended.reason == FinishReason::kDeadline) {
    return api_error(Status(StatusCode::kDeadlineExceeded,
                            "the reply took longer than this server allows (option request_timeout); ask "
                            "for fewer tokens or send it again later"));
  }
  if (ended.reason == FinishReason::kFailed)
    return api_error(internal_error("the conversation's state could not be loaded; send the request again"));
  return std::nullopt;
}

void Generation::on_ended(std::uint32_t index, const GenerationEnded& ended) {
  Slot& slot = slots_[index];
  if (!failure_) failure_ = failure_of(ended);
  if (failure_) {
    slot.open = false;
    --open_;
    return;
  }
  slot.choice.finish();
  slot.completion_tokens = static_cast<std::uint32_t>(slot.said.size()) + ended.usage.completion_tokens -
                           std::min(ended.usage.completion_tokens, slot.forced_tokens);
  if (prepared_.fields.max_tokens == 0) slot.completion_tokens = 0;
  show(index);
  // A stop string may be found in what was held back for an unfinished character.
  if (slot.choice.stopped())
    close(slot, ReplyFinish::kStopString);
  else if (ended.reason != FinishReason::kStop)
    close(slot, ReplyFinish::kLength);
  else
    close(slot, slot.choice.called() ? ReplyFinish::kToolCalls : ReplyFinish::kStop);
}

void Generation::show(std::uint32_t index) {
  Slot& slot = slots_[index];
  OutputDelta output = slot.choice.take();
  if (output.empty()) return;
  if (prepared_.fields.stream) {
    frames_ += prepared_.format->delta(index, output);
    // They are most of a reply's bytes, and were told.
    if (!prepared_.commit) output.logprobs.clear();
  }
  keep(output.logprobs);
  slot.reply.output.append(std::move(output));
}

void Generation::keep(std::span<const LogprobEntry> entries) {
  for (const LogprobEntry& entry : entries) kept_bytes_ += bytes_of(entry);
  if (kept_bytes_ <= held_bytes_ || failure_) return;
  held_bytes_ = kept_bytes_ + kHeldAtOnce;
  if (!sink_.hold(held_bytes_)) failure_ = too_many_logprobs();
}

void Generation::close(Slot& slot, ReplyFinish finish) {
  slot.open = false;
  --open_;
  slot.reply.finish = finish;
  if (finish == ReplyFinish::kStopString) slot.reply.stop_string = slot.choice.stop_string();
  if (!prepared_.fields.stream) return;
  slot.finished_late = prepared_.fields.sampling.logprobs && slot.reply.tokens.size() > kLogprobsWrittenHere;
  if (!slot.finished_late) frames_ += prepared_.format->finish_choice(slot.reply);
}

// --- answers ---

asio::awaitable<bool> Generation::flush() {
  if (!streaming_) {
    streaming_ = true;
    if (!co_await sink_.begin_stream()) co_return false;
  }
  const std::string frames = std::exchange(frames_, {});
  co_return co_await sink_.stream(frames);
}

std::vector<FinishedChoice> Generation::take_choices() {
  std::vector<FinishedChoice> choices;
  for (Slot& slot : slots_) {
    if (slot.echo) {
      slot.echo->finish();
      std::vector<LogprobEntry> last = slot.echo->take().logprobs;
      std::move(last.begin(), last.end(), std::back_inserter(slot.reply.echoed));
    }
    choices.push_back(std::move(slot.reply));
  }
  return choices;
}

asio::awaitable<void> Generation::answer() {
  if (failure_)
    co_await answer_error();
  else if (prepared_.fields.stream)
    co_await answer_stream_end();
  else
    co_await answer_whole();
}

asio::awaitable<void> Generation::answer_stream_end() {
  const auto write = [this] {
    std::string frames;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].finished_late) frames += prepared_.format->finish_choice(choices_[i]);
    }
    return frames += prepared_.format->end(choices_, usage());
  };
  if (std::ranges::any_of(slots_, &Slot::finished_late)) {
    const std::string frames = co_await services_.workers.run(sink_.origin().tenant->id, write);
    frames_ += frames;
  } else {
    frames_ += write();
  }
  bool there = co_await flush();
  if (there) there = co_await sink_.end_stream();
  if (!there) client_left_ = true;
}

asio::awaitable<void> Generation::answer_whole() {
  // With log-probabilities a reply may be megabytes of JSON: not on this thread.
  const auto build = [&] { return prepared_.format->whole(choices_, usage()); };
  std::string body = co_await services_.workers.run(sink_.origin().tenant->id, build);
  // They took more than the body, which its client may take slowly.
  for (FinishedChoice& choice : choices_) {
    choice.output.logprobs = std::vector<LogprobEntry>();
    choice.echoed = std::vector<LogprobEntry>();
  }
  if (!co_await sink_.respond(std::move(body))) client_left_ = true;
}

asio::awaitable<void> Generation::answer_error() {
  if (streaming_) {
    if (goes_on_elsewhere()) {
      const bool is_drained = failure_->code == stopping_error().code;
      frames_ += mark_event({.kind = is_drained ? ReplyMark::Kind::kDrained : ReplyMark::Kind::kStopped});
    }
    frames_ += prepared_.format->stream_error(*failure_);
    if (co_await flush()) co_await sink_.end_stream();
    co_return;
  }
  ApiError error = *failure_;
  co_await sink_.fail(std::move(error));
}

bool Generation::goes_on_elsewhere() const {
  return prepared_.resumed && failure_ && failure_->http_status == 503;
}

}  // namespace loci
