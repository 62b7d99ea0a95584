// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/feed_reader.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr Nanos kWait = 5 * kNanosPerSecond;         // of a question, for something to change
constexpr Nanos kAnswerLimit = 3 * kNanosPerSecond;  // beyond it

}  // namespace

FeedReader::FeedReader(asio::io_context& io, TlsContext tls, Instances& instances,
                       std::shared_ptr<spdlog::logger> log)
    : io_(io), calls_(io, std::move(tls), "none"), instances_(instances), log_(std::move(log)) {}

void FeedReader::follow(std::shared_ptr<Instance> instance) {
  if (instance->member.peer_port == 0 || !followed_.insert(instance->number).second) return;
  asio::co_spawn(io_, read(shared_from_this(), std::move(instance)), asio::detached);
}

asio::awaitable<void> FeedReader::read(std::shared_ptr<FeedReader> self, std::shared_ptr<Instance> instance) {
  asio::steady_timer timer(self->io_);
  Nanos pause = kPauseMin;
  bool is_first = true;
  while (self->is_instance(*instance)) {
    const Status status = co_await self->read_on(*instance);
    const bool was_known = instance->costs.has_value();
    if (!self->is_instance(*instance)) break;
    ++self->stats_.failures_total;
    if (was_known || is_first) {
      self->log_->warn("what {} at {} holds is not known, and is guessed: {}{}{}", instance->member.id,
                       instance->member.address(), status.field(), status.field().empty() ? "" : ": ",
                       status.message());
    }
    is_first = false;
    if (was_known) pause = kPauseMin;
    self->instances_.unpublish(*instance);
    timer.expires_after(std::chrono::nanoseconds(pause));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    pause = std::min(2 * pause, kPauseMax);
  }
  self->followed_.erase(instance->number);
  self->calls_.drop(instance->number);
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

asio::awaitable<Status> FeedReader::read_on(Instance& instance) {
  FeedQuestion question;
  asio::steady_timer timer(io_);
  while (true) {
    std::string body = write_feed_question(question);
    const Result<std::string> reply =
        co_await ask(instance, kFeedPath, std::move(body), question.wait + kAnswerLimit);
    if (!reply.ok()) co_return reply.status();
    if (!is_instance(instance)) co_return Status();
    const Result<FeedChanges> changes = read_feed_changes(*reply, question);
    if (!changes.ok()) {
      calls_.drop(instance.number);
      co_return changes.status();
    }
    if (changes->is_gap) {
      const Status status = co_await read_pages(instance, question);
      if (!status.ok() || !is_instance(instance)) co_return status;
    } else {
      stats_.changes_total += changes->changes.size();
      for (const FeedEntry& change : changes->changes) instances_.publish(instance, change);
      question.after = changes->last;
      question.wait = kWait;
    }
    instance.costs = changes->costs;
    timer.expires_after(std::chrono::milliseconds(followed_.size()));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<Status> FeedReader::read_pages(Instance& instance, FeedQuestion& question) {
  ++stats_.snapshots_total;
  instances_.begin_snapshot(instance);
  FeedPageQuestion from;
  do {
    std::string body = write_feed_page_question(from);
    const Result<std::string> reply = co_await ask(instance, kFeedPagePath, std::move(body), kAnswerLimit);
    if (!reply.ok()) co_return reply.status();
    if (!is_instance(instance)) co_return Status();
    const Result<FeedPage> page = read_feed_page(*reply, from);
    if (!page.ok()) {
      calls_.drop(instance.number);
      co_return page.status();
    }
    if (from.epoch == 0) question = {.epoch = page->epoch, .after = page->last};
    for (const FeedEntry& entry : page->entries) instances_.publish(instance, entry);
    from = {.epoch = page->epoch, .place = page->next};
  } while (from.place != 0);
  co_return Status();
}

}  // namespace loci
