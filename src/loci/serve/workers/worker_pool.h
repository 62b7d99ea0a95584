// SPDX-License-Identifier: Apache-2.0
// A few threads for what is too long for the network thread and is no model computation: parsing large
// bodies, templates, tokenising, large replies. Few, because they share the cores with the compute
// threads. Bounded by the connections: each waits for one job at a time. Fair among tenants, in time
// (fair_jobs.h).
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "loci/base/mutex.h"
#include "loci/serve/workers/fair_jobs.h"

namespace loci {

// Thread-safe. The destructor waits for the jobs that run; the contexts of the coroutines that await them
// outlive it, as a worker may still be waking one whose coroutine has gone on.
class WorkerPool {
 public:
  // With two threads or more no tenant has all of them at once.
  explicit WorkerPool(unsigned threads) : jobs_(std::max(threads, 2u) - 1), pool_(threads) {}
  ~WorkerPool() {
    pool_.stop();
    pool_.join();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job` on a worker, in its tenant's turn; the awaiting coroutine goes on where it was. An exception
  // of the job is thrown to it.
  template <class Job>
  boost::asio::awaitable<std::invoke_result_t<Job&>> run(std::string_view tenant, Job job) {
    std::optional<std::invoke_result_t<Job&>> value;
    std::exception_ptr failed;
    const auto work = [&] {
      try {
        value.emplace(job());
      } catch (...) {
        failed = std::current_exception();
      }
    };
    const auto initiate = [this, tenant, &work](auto handler) {
      auto executor = boost::asio::get_associated_executor(handler);
      auto shared = std::make_shared<decltype(handler)>(std::move(handler));
      auto guard = boost::asio::make_work_guard(executor);
      add(tenant, [&work, shared, guard, executor] {
        work();
        boost::asio::post(executor, [shared] { std::move (*shared)(); });
      });
    };
    co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(
        initiate, boost::asio::use_awaitable);
    if (failed) std::rethrow_exception(failed);
    co_return std::move(*value);
  }

  // For timers and jobs that nobody awaits.
  boost::asio::any_io_executor executor() { return pool_.get_executor(); }

 private:
  void add(std::string_view tenant, FairJobs::Job job);
  // One job, if one may run now.
  void work();

  Mutex mutex_;  // held for some microseconds at most
  FairJobs jobs_ GUARDED_BY(mutex_);
  boost::asio::thread_pool pool_;
};

}  // namespace loci
