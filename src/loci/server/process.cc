// SPDX-License-Identifier: Apache-2.0
#include "loci/server/process.h"

#include <pthread.h>
#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace loci {
namespace {

sigset_t operator_signals() {
  sigset_t set{};
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  // `nohup` has it ignored; a blocked signal would be taken all the same.
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

volatile std::sig_atomic_t late_exit_code = 0;

void exit_late(int /*signal*/) { std::_Exit(late_exit_code); }

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(LogFormat format, const std::string& level) {
  spdlog::init_thread_pool(8192, 1);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto log = std::make_shared<spdlog::async_logger>("loci", std::move(sink), spdlog::thread_pool(),
                                                    spdlog::async_overflow_policy::overrun_oldest);
  log->set_formatter(log_formatter(format));
  log->set_level(spdlog::level::from_str(level));
  log->flush_on(spdlog::level::info);
  return log;
}

void end_log(int exit_code) {
  // shutdown() joins the log's thread, which may never come back from a write. A signal ends the wait,
  // because the system may have no other thread for it.
  late_exit_code = exit_code;
  struct sigaction late{};
  late.sa_handler = exit_late;
  sigaction(SIGALRM, &late, nullptr);
  sigset_t alarms{};
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(static_cast<unsigned>(kLogPatience.count()));
  spdlog::shutdown();
  alarm(0);
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void block_operator_signals() {
  const sigset_t set = operator_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

OperatorSignals::OperatorSignals(spdlog::logger& log) : log_(log), set_(operator_signals()) {}

bool OperatorSignals::stop_within(std::chrono::milliseconds time) const {
  const timespec wait{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
  const int signal = sigtimedwait(&set_, nullptr, &wait);
  if (signal == SIGUSR1) set_level(static_cast<int>(log_.level()) - 1);
  if (signal == SIGUSR2) set_level(static_cast<int>(log_.level()) + 1);
  // A terminal that closes sends more than one, and whoever ends a session a SIGTERM beside them: that is one
  // wish, and none to stop at once.
  if (signal == SIGHUP) return !std::exchange(is_stopping_, true);
  if (signal != SIGINT && signal != SIGTERM) return false;
  const bool is_first = !std::exchange(was_told_, true);
  const bool was_stopping = std::exchange(is_stopping_, true);
  return !is_first || !was_stopping;
}

void OperatorSignals::set_level(int level) const {
  const int bounded = std::clamp(level, int{SPDLOG_LEVEL_TRACE}, int{SPDLOG_LEVEL_OFF});
  log_.set_level(static_cast<spdlog::level::level_enum>(bounded));
  const spdlog::string_view_t name = spdlog::level::to_string_view(log_.level());
  // Said at a level that is shown.
  if (log_.level() != spdlog::level::off)
    log(log_, log_.level(), LogLine("log level").text("level", std::string_view(name.data(), name.size())));
}

}  // namespace loci
