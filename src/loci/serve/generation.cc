#include "loci/serve/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>

#include "loci/serve/sse.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr std::size_t kTokensSubmittedHere = 16'384;

std::uint64_t random_seed() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Generation::Generation(const GenerationContext& context, Exchange& exchange, PreparedGeneration prepared)
    : context_(context),
      exchange_(exchange),
      prepared_(std::move(prepared)),
      mailbox_(std::make_shared<EventMailbox>(exchange.io(), context.clock)) {
  const bool chat = prepared_.shape == ApiShape::kChat;
  head_ = {.shape = prepared_.shape,
           .id = fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl", exchange.request_id()),
           .created = seconds_since_1970(),
           .model = context.served.model->id,
           .fingerprint = context.served.fingerprint,
           .include_usage = prepared_.fields.include_usage};
}

Generation::~Generation() {
  cancel_open();
  mailbox_->close();
}

void Generation::cancel_open() {
  for (Slot& slot : slots_) {
    if (slot.open) context_.served.engine->cancel(slot.request);
    slot.open = false;
  }
  open_ = 0;
}

void Generation::submit() {
  const GenerationFields& fields = prepared_.fields;
  submitted_at_ = context_.clock.now();
  std::uint32_t index = 0;
  for (const std::vector<TokenId>& prompt : prepared_.prompts) {
    const auto room = static_cast<std::uint32_t>(context_.served.context_tokens - prompt.size());
    for (std::uint32_t i = 0; i < fields.choices; ++i, ++index) {
      GenerationRequest request{.group = context_.group,
                                .prompt = prompt,
                                .sampling = fields.sampling,
                                .max_new_tokens = std::min(fields.max_tokens.value_or(room), room),
                                .stop_tokens = prepared_.stop_tokens,
                                .time_limit = context_.time_limit};
      request.sampling.seed = fields.has_seed ? fields.sampling.seed + i : random_seed();
      ChoiceOptions options{.stop = fields.stop,
                            .stop_tokens = prepared_.stop_tokens,
                            .min_tokens = fields.sampling.min_tokens,
                            .logprobs = fields.sampling.logprobs};
      slots_.push_back({.request = {},
                        .choice = Choice(context_.served.model->tokenizer, std::move(options)),
                        .content = {},
                        .finish_reason = {}});
      slots_.back().request = context_.served.engine->submit(std::move(request), mailbox_->listener(index));
      ++open_;
    }
  }
}

asio::awaitable<void> Generation::run() {
  // Each submission copies and sorts its prompt: many long ones are too much for this thread.
  std::size_t tokens = 0;
  for (const std::vector<TokenId>& prompt : prepared_.prompts)
    tokens += prompt.size() * prepared_.fields.choices;
  if (tokens <= kTokensSubmittedHere) {
    submit();
  } else {
    const auto job = [this] {
      submit();
      return true;
    };
    co_await context_.workers.run(job);
  }
  exchange_.watch([mailbox = mailbox_] { mailbox->wake(); });
  while (open_ > 0 && !failure_) {
    co_await mailbox_->wait();
    client_left_ = client_left_ || exchange_.gone();
    if (client_left_) break;
    for (const MailboxEvent& event : mailbox_->take()) on_event(event);
    if (prepared_.fields.stream && accepted_ && !failure_ && !co_await flush()) client_left_ = true;
    if (client_left_) break;
  }
  ended_at_ = context_.clock.now();
  cancel_open();
  if (client_left_) {
    context_.metrics.client_left();
  } else if (failure_) {
    co_await answer_error();
  } else if (prepared_.fields.stream) {
    if (head_.include_usage) frames_ += sse_event(usage_chunk_json(head_, usage()));
    frames_ += sse_event(kSseDone);
    if (!co_await flush() || !co_await exchange_.end_stream()) client_left_ = true;
  } else {
    co_await answer_whole();
  }
  const ReplyUsage total = usage();
  context_.metrics.generation_done(ended_at_ - exchange_.received_at(), total.prompt_tokens,
                                   total.completion_tokens);
}

// --- events ---

void Generation::on_event(const MailboxEvent& event) {
  if (!slots_[event.choice].open) return;
  if (const auto* started = std::get_if<GenerationStarted>(&event.event)) {
    on_started(event.choice, *started, event.at);
  } else if (const auto* token = std::get_if<GeneratedToken>(&event.event)) {
    on_token(event.choice, *token, event.at);
  } else {
    on_ended(event.choice, std::get<GenerationEnded>(event.event));
  }
}

void Generation::on_started(std::uint32_t index, const GenerationStarted& started, Nanos at) {
  slots_[index].cached_tokens = started.cached_tokens;
  context_.metrics.queued(at - submitted_at_);
  accepted_ = true;
  if (prepared_.fields.stream && prepared_.shape == ApiShape::kChat)
    frames_ += sse_event(role_chunk_json(head_, index));
}

void Generation::on_token(std::uint32_t index, const GeneratedToken& token, Nanos at) {
  Slot& slot = slots_[index];
  if (!first_token_at_) {
    first_token_at_ = at;
    context_.metrics.first_token(at - exchange_.received_at());
  }
  if (slot.last_token_at != 0) context_.metrics.next_token(at - slot.last_token_at);
  slot.last_token_at = at;
  slot.choice.push(token);
  slot.completion_tokens = slot.choice.tokens();
  show(index);
  if (!slot.choice.stopped()) return;
  context_.served.engine->cancel(slot.request);
  close(slot, "stop");
}

void Generation::on_ended(std::uint32_t index, const GenerationEnded& ended) {
  Slot& slot = slots_[index];
  if (!ended.status.ok()) {
    failure_ = api_error(ended.status, ended.retry_after);
  } else if (ended.reason == FinishReason::kCancelled ||
             (ended.reason == FinishReason::kDeadline && context_.draining.load())) {
    failure_ = api_error(Status(StatusCode::kUnavailable, "the server is stopping"));
  } else if (ended.reason == FinishReason::kDeadline) {
    failure_ = api_error(Status(StatusCode::kDeadlineExceeded,
                                "the reply was not finished in the time that the server allows"));
  } else if (ended.reason == FinishReason::kFailed) {
    failure_ = api_error(internal_error("the state of the conversation could not be brought back"));
  }
  if (failure_) {
    slot.open = false;
    --open_;
    return;
  }
  slot.choice.finish();
  // A stop string may be found in what was held back for an unfinished character.
  const bool stopped = slot.choice.stopped() || ended.reason == FinishReason::kStop;
  slot.completion_tokens = ended.usage.completion_tokens;
  show(index);
  close(slot, stopped ? "stop" : "length");
}

void Generation::show(std::uint32_t index) {
  Slot& slot = slots_[index];
  Delta delta = slot.choice.take();
  if (delta.empty()) return;
  if (prepared_.fields.stream) {
    frames_ += sse_event(delta_chunk_json(head_, index, delta, prepared_.fields.sampling.logprobs));
    return;
  }
  slot.content.text += delta.text;
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(slot.content.logprobs));
}

void Generation::close(Slot& slot, std::string finish_reason) {
  slot.open = false;
  --open_;
  slot.finish_reason = std::move(finish_reason);
  if (!prepared_.fields.stream) return;
  const auto index = static_cast<std::uint32_t>(&slot - slots_.data());
  frames_ += sse_event(finish_chunk_json(head_, index, slot.finish_reason));
}

// --- answers ---

asio::awaitable<bool> Generation::flush() {
  if (!streaming_) {
    streaming_ = true;
    if (!co_await exchange_.begin_stream("text/event-stream; charset=utf-8")) co_return false;
  }
  const std::string frames = std::exchange(frames_, {});
  co_return co_await exchange_.stream(frames);
}

asio::awaitable<void> Generation::answer_whole() {
  std::vector<ReplyChoice> choices;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    choices.push_back({.index = static_cast<std::uint32_t>(i),
                       .content = std::move(slots_[i].content),
                       .finish_reason = slots_[i].finish_reason});
  }
  HttpResponse response;
  // With log-probabilities a reply may be megabytes of JSON: not on this thread.
  const auto build = [&] { return reply_json(head_, choices, prepared_.fields.sampling.logprobs, usage()); };
  response.body = co_await context_.workers.run(build);
  if (!co_await exchange_.respond(std::move(response))) client_left_ = true;
}

asio::awaitable<void> Generation::answer_error() {
  if (streaming_) {
    frames_ += sse_event(to_json(*failure_));
    frames_ += sse_event(kSseDone);
    if (co_await flush()) co_await exchange_.end_stream();
    co_return;
  }
  HttpResponse response{.status = failure_->http_status, .body = to_json(*failure_), .headers = {}};
  if (failure_->retry_after_seconds) {
    response.headers.emplace_back("Retry-After", std::to_string(*failure_->retry_after_seconds));
  }
  co_await exchange_.respond(std::move(response));
}

ReplyUsage Generation::usage() const {
  ReplyUsage out;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    out.completion_tokens += slots_[i].completion_tokens;
    // A prompt counts once, whatever the number of its choices.
    if (i % prepared_.fields.choices != 0) continue;
    out.prompt_tokens += prepared_.prompts[i / prepared_.fields.choices].size();
    out.cached_tokens += slots_[i].cached_tokens;
  }
  return out;
}

GenerationSummary Generation::summary() const {
  GenerationSummary out{.usage = usage(),
                        .choices = slots_.size(),
                        .first_token = {},
                        .duration = ended_at_ - exchange_.received_at(),
                        .client_left = client_left_,
                        .finish_reason = slots_.empty() ? "" : slots_.front().finish_reason};
  if (first_token_at_) out.first_token = *first_token_at_ - exchange_.received_at();
  return out;
}

}  // namespace loci
