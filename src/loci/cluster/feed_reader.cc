// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <utility>

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr Nanos kFeedWait = 5 * kNanosPerSecond;         // of a question, for something to change
constexpr Nanos kFeedAnswerLimit = 3 * kNanosPerSecond;  // beyond it
// Between two questions for changes, of all instances together; each asks no more often than in its turn.
constexpr Nanos kQuestionPeriod = 2 * kNanosPerMilli;
constexpr Nanos kPagePeriod = FeedReader::kSnapshotsMax * 2 * kNanosPerMilli;  // of one instance
constexpr Nanos kSnapshotLimit = 30 * kNanosPerSecond;

Nanos steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

FeedReader::FeedReader(asio::io_context& io, TlsContext tls, Instances& instances,
                       std::shared_ptr<spdlog::logger> log)
    : io_(io), calls_(io, std::move(tls), "none"), instances_(instances), log_(std::move(log)) {}

void FeedReader::follow(std::shared_ptr<Instance> instance) {
  if (instance->member.peer_port == 0 || !followed_.insert(instance->number).second) return;
  asio::co_spawn(io_, read(shared_from_this(), std::move(instance)), asio::detached);
}

void FeedReader::stop() {
  is_stopping_ = true;
  calls_.stop();
  for (const std::uint32_t number : followed_) calls_.drop(number);
}

asio::awaitable<void> FeedReader::read(std::shared_ptr<FeedReader> self, std::shared_ptr<Instance> instance) {
  FeedPauses pauses;
  bool is_first = true;
  while (self->is_read(*instance)) {
    Status status;
    try {
      status = co_await self->read_on(*instance, pauses);
    } catch (const std::exception& error) {
      status = internal_error(error.what());
    }
    if (!self->is_read(*instance)) break;
    ++self->stats_.failures_total;
    if (instance->costs || is_first) {
      self->log_->warn(
          "which state {} at {} has could not be read, and is guessed from what it was sent: {}{}{}",
          instance->member.id, instance->member.address(), status.field(), status.field().empty() ? "" : ": ",
          status.message());
    }
    is_first = false;
    self->calls_.drop(instance->number);
    self->instances_.unpublish(*instance);
    co_await self->wait(pauses.next(steady_now()));
  }
  self->followed_.erase(instance->number);
  self->calls_.drop(instance->number);
}

asio::awaitable<void> FeedReader::wait(Nanos time) {
  asio::steady_timer timer(io_, std::chrono::nanoseconds(time));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<Result<std::string>> FeedReader::ask(const Instance& instance, std::string_view path,
                                                     std::string body, Nanos limit) {
  Result<std::unique_ptr<PeerCalls::Line>> line =
      co_await calls_.connect(instance.number, instance.member.host, instance.member.peer_port);
  if (!line.ok()) co_return line.status();
  const Status called = co_await (*line)->call(path, body, limit);
  if (!called.ok()) co_return called;
  Result<std::string> reply = co_await (*line)->read_whole();
  if (reply.ok()) calls_.keep(instance.number, std::move(*line));
  co_return reply;
}

asio::awaitable<Status> FeedReader::read_on(Instance& instance, FeedPauses& pauses) {
  FeedQuestion question;
  bool is_first = true;  // it knows nothing, and the answer is a gap
  while (true) {
    co_await wait(kQuestionPeriod * static_cast<Nanos>(followed_.size()));
    if (!is_read(instance)) co_return Status();
    std::string body = write_feed_question(question);
    const Result<std::string> reply =
        co_await ask(instance, kFeedPath, std::move(body), question.wait + kFeedAnswerLimit);
    if (!reply.ok()) co_return reply.status();
    if (!is_read(instance)) co_return Status();
    const Result<FeedChanges> changes = read_feed_changes(*reply, question);
    if (!changes.ok()) co_return changes.status();
    if (changes->is_gap) {
      const Status status = co_await read_snapshot(instance, question);
      if (!status.ok() || !is_read(instance)) co_return status;
    } else {
      stats_.changes_total += changes->changes.size();
      for (const FeedEntry& change : changes->changes) instances_.publish(instance, change);
      question.after = changes->last;
      question.wait = kFeedWait;
    }
    instance.costs = changes->costs;
    if (changes->is_gap && !is_first) co_await wait(pauses.next(steady_now()));
    is_first = false;
  }
}

asio::awaitable<Status> FeedReader::read_snapshot(Instance& instance, FeedQuestion& question) {
  while (snapshots_now_ >= kSnapshotsMax) {
    co_await wait(kQuestionPeriod * static_cast<Nanos>(followed_.size()));
    if (!is_read(instance)) co_return Status();
  }
  ++snapshots_now_;
  ++stats_.snapshots_total;
  const std::shared_ptr<void> ended(nullptr, [this](void*) { --snapshots_now_; });
  co_return co_await read_pages(instance, question);
}

asio::awaitable<Status> FeedReader::read_pages(Instance& instance, FeedQuestion& question) {
  const Nanos ends_at = steady_now() + kSnapshotLimit;
  HeldPrompts held = instances_.nothing_held();
  FeedPageQuestion from;
  for (int pages = 0;; ++pages) {
    if (pages == kPagesMax) co_return data_loss(fmt::format("more than {} pages", kPagesMax), "next");
    if (steady_now() > ends_at) co_return Status(StatusCode::kDeadlineExceeded, "its pages came too slowly");
    co_await wait(kPagePeriod);
    if (!is_read(instance)) co_return Status();
    std::string body = write_feed_page_question(from);
    const Result<std::string> reply =
        co_await ask(instance, kFeedPagePath, std::move(body), kFeedAnswerLimit);
    if (!reply.ok()) co_return reply.status();
    if (!is_read(instance)) co_return Status();
    const Result<FeedPage> page = read_feed_page(*reply, from);
    if (!page.ok()) co_return page.status();
    if (pages == 0) question = {.epoch = page->epoch, .after = page->last};
    for (const FeedEntry& entry : page->entries) held.set(entry.name(), entry.tier());
    if (page->next == 0) break;
    from = {.epoch = page->epoch, .place = page->next};
  }
  instances_.publish_all(instance, std::move(held));
  co_return Status();
}

}  // namespace loci
