// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_keeper.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace loci {
namespace {

// Kept alive by the job or timer that is to call it next.
class StoreKeeper : public std::enable_shared_from_this<StoreKeeper> {
 public:
  StoreKeeper(WorkerPool& store_thread, ConversationStore& store, const StoreKeeping& keeping,
              ServeMetrics& metrics, std::shared_ptr<spdlog::logger> log)
      : store_(store),
        keeping_(keeping),
        metrics_(metrics),
        log_(std::move(log)),
        timer_(store_thread.executor()) {}

  void post() {
    boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->work(); });
  }

 private:
  void work() {
    const Result<std::uint64_t> gone = store_.expire(seconds_since_1970(), keeping_.limits);
    if (!gone.ok()) {
      log_->error("expiry of conversations: {}", gone.status().message());
    } else if (*gone > 0) {
      gone_ += *gone;
      metrics_.store_expired(*gone);
      post();  // whoever waits for the store comes first
      return;
    }
    if (gone_ > 0) log_->info("{} conversations and responses have expired", gone_);
    gone_ = 0;
    if (const Result<std::uint64_t> bytes = store_.size_bytes(); bytes.ok()) metrics_.store_size(*bytes);
    timer_.expires_after(std::chrono::nanoseconds(keeping_.period));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->work();
    });
  }

  ConversationStore& store_;
  StoreKeeping keeping_;
  ServeMetrics& metrics_;
  std::shared_ptr<spdlog::logger> log_;
  boost::asio::steady_timer timer_;
  std::uint64_t gone_ = 0;  // since the last pause
};

}  // namespace

void keep_store(WorkerPool& store_thread, ConversationStore& store, const StoreKeeping& keeping,
                ServeMetrics& metrics, std::shared_ptr<spdlog::logger> log) {
  std::make_shared<StoreKeeper>(store_thread, store, keeping, metrics, std::move(log))->post();
}

}  // namespace loci
