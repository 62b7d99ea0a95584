// SPDX-License-Identifier: Apache-2.0
// A few threads for what is too long for the network thread and is no model computation: parsing large
// bodies, templates, tokenising, large replies. Few, because they share the cores with the compute
// threads. Bounded by the connections: each waits for one job at a time. Fair among tenants, in time
// (fair_jobs.h).
//
// A pool whose jobs wait for somebody else, as those of the conversation store do, may have bounds
// (WorkerWaits): if that other one stands still, who waits is refused, so that not every connection comes to
// wait here.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/workers/fair_jobs.h"

namespace loci {

// What a job waits at most until it begins, and how many of one tenant's wait while no job has ended for
// `still_after`. A job that has begun is waited for until it ends.
struct WorkerWaits {
  Nanos wait_max = 15 * kNanosPerSecond;
  std::size_t waiting_max = 128;
  Nanos still_after = 2 * kNanosPerSecond;
  Status refused{StatusCode::kUnavailable, "what is asked for does not answer; try again later"};
};

// What happens to a job that comes while too many of its tenant's wait and none gets on.
enum class AtStandstill : std::uint8_t {
  kRefuse,
  kWait,  // as what is lost with it was computed; no longer than `wait_max`
};

// Lets a coroutine that waits for its job's beginning go on without it, because nobody wants the result any
// more: it is given a refusal. On the coroutine's thread.
class WorkerLeave {
 public:
  void leave() {
    has_left_ = true;
    if (leave_) std::exchange(leave_, nullptr)();
  }
  bool has_left() const { return has_left_; }

 private:
  friend class WorkerPool;
  std::function<void()> leave_;
  bool has_left_ = false;
};

// Thread-safe. The destructor waits for the jobs that run; the contexts of the coroutines that await them
// outlive it, as a worker may still be waking one whose coroutine has gone on.
class WorkerPool {
 public:
  // With two threads or more no tenant has all of them at once.
  explicit WorkerPool(unsigned threads) : jobs_(std::max(threads, 2u) - 1), pool_(threads) {}
  // With bounds on waiting, for jobs that return what can be made of a Status or an ApiError: who is refused
  // is given that instead.
  WorkerPool(unsigned threads, WorkerWaits waits) : WorkerPool(threads) { waits_ = std::move(waits); }
  ~WorkerPool() {
    pool_.stop();
    pool_.join();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job` on a worker, in its tenant's turn; the awaiting coroutine goes on where it was. An exception
  // of the job is thrown to it. `leave`, which may be null, is for jobs that can be refused.
  template <class Job>
  boost::asio::awaitable<std::invoke_result_t<Job&>> run(std::string_view tenant, Job job,
                                                         AtStandstill at_standstill = AtStandstill::kRefuse,
                                                         std::shared_ptr<WorkerLeave> leave = nullptr) {
    using Value = std::invoke_result_t<Job&>;
    std::optional<Value> value;
    std::exception_ptr failed;
    const auto work = [&] {
      try {
        value.emplace(job());
      } catch (...) {
        failed = std::current_exception();
      }
    };
    const auto initiate = [this, tenant, &work, &leave](auto handler) {
      auto executor = boost::asio::get_associated_executor(handler);
      auto waiting = std::make_shared<Waiting<decltype(handler)>>(std::move(handler), executor);
      if (waits_) wait_for_begin(waiting);
      if (leave) leave_by(*leave, waiting, executor);
      add(tenant, [&work, waiting = std::move(waiting), executor]() mutable {
        if (waiting->is_taken.exchange(true)) return;
        work();
        boost::asio::post(executor, [waiting = std::move(waiting)] { waiting->go_on(); });
      });
    };
    const bool is_wanted = !leave || !leave->has_left();
    if (is_wanted && (at_standstill == AtStandstill::kWait || !stands_still(tenant)))
      co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(
          initiate, boost::asio::use_awaitable);
    if (failed) std::rethrow_exception(failed);
    if (!value) value.emplace(refusal<Value>());
    co_return std::move(*value);
  }

  // For timers and jobs that nobody awaits.
  boost::asio::any_io_executor executor() { return pool_.get_executor(); }

 private:
  // A coroutine that waits for its job. Owned by the job, so that it ends with the pool.
  template <class Handler>
  struct Waiting {
    Waiting(Handler its, const boost::asio::any_io_executor& executor)
        : handler(std::move(its)), guard(executor), timer(executor) {}
    void go_on() {
      timer.cancel();
      std::move(handler)();
    }
    Handler handler;
    boost::asio::executor_work_guard<boost::asio::any_io_executor> guard;
    boost::asio::steady_timer timer;
    std::atomic<bool> is_taken = false;  // by a worker that runs the job, or by the timer
  };
  // Called before the job is added, where the coroutine is; the timer's end comes there too.
  template <class Coroutine>
  void wait_for_begin(const std::shared_ptr<Coroutine>& waiting) {
    waiting->timer.expires_after(std::chrono::nanoseconds(waits_->wait_max));
    waiting->timer.async_wait([weak = std::weak_ptr(waiting)](const boost::system::error_code& error) {
      const auto late = weak.lock();
      if (!error && late && !late->is_taken.exchange(true)) late->go_on();
    });
  }
  template <class Coroutine>
  static void leave_by(WorkerLeave& leave, const std::shared_ptr<Coroutine>& waiting,
                       boost::asio::any_io_executor executor) {
    leave.leave_ = [weak = std::weak_ptr(waiting), executor = std::move(executor)] {
      const auto left = weak.lock();
      if (left && !left->is_taken.exchange(true)) boost::asio::post(executor, [left] { left->go_on(); });
    };
  }
  template <class Value>
  Value refusal() const {
    const Status refused = waits_ ? waits_->refused : WorkerWaits().refused;
    if constexpr (std::is_constructible_v<Value, Status>)
      return Value(refused);
    else if constexpr (std::is_constructible_v<Value, ApiError>)
      return Value(api_error(refused));
    else
      LOCI_CHECK(false, "a pool with bounds runs jobs that can be refused");
  }
  // True: too many of the tenant's wait, so no thread is idle for it, and none gets on.
  bool stands_still(std::string_view tenant);

  void add(std::string_view tenant, FairJobs::Job job);
  // One job, if one may run now.
  void work();

  std::optional<WorkerWaits> waits_;
  Mutex mutex_;  // held for some microseconds at most
  FairJobs jobs_ GUARDED_BY(mutex_);
  std::size_t running_ GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point got_on_at_ GUARDED_BY(mutex_);  // the first job came, or one ended
  boost::asio::thread_pool pool_;
};

}  // namespace loci
