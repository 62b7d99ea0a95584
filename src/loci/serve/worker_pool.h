// SPDX-License-Identifier: Apache-2.0
// A few threads for what is too long for the network thread and is no model computation: parsing large
// bodies, templates, tokenising, large replies. Few, because they share the cores with the compute
// threads. Bounded by the connections: each waits for one job at a time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <type_traits>
#include <utility>

namespace loci {

// Thread-safe. The destructor waits for the jobs that run.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads) : pool_(threads) {}
  ~WorkerPool() {
    pool_.stop();
    pool_.join();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `job` on a worker; the awaiting coroutine goes on where it was. An exception of the job is
  // thrown to it.
  template <class Job>
  boost::asio::awaitable<std::invoke_result_t<Job&>> run(Job job) {
    using Value = std::invoke_result_t<Job&>;
    std::optional<Value> value =
        co_await boost::asio::co_spawn(pool_, call<Value, Job>(std::move(job)), boost::asio::use_awaitable);
    co_return std::move(*value);
  }

  // For timers and jobs that nobody awaits.
  boost::asio::any_io_executor executor() { return pool_.get_executor(); }

 private:
  template <class Value, class Job>
  static boost::asio::awaitable<std::optional<Value>> call(Job job) {
    co_return std::optional<Value>(job());
  }

  boost::asio::thread_pool pool_;
};

}  // namespace loci
