// SPDX-License-Identifier: Apache-2.0
// Threads: callers put events into one inbox; the core's thread takes them in order and steps the core.
// The end of a pass alone is stepped by the compute thread: the next pass then begins without a change of
// threads, while the core's thread, which alone calls listeners, delivers what the step has said. So the
// core belongs to one thread at a time, and between two passes to the compute thread. Where the backend takes
// a pass ahead the compute thread asks for it (a Tick) whenever it has begun one, so that the device has the
// next pass before the host sees what this one sampled. The compute thread steps first: between two events
// the core's thread lets it (pass_turn.h).
//
// core_mutex_ is an outer one: a step is carried out under it, in the order of the plans and before a pass
// that reads what moves bring. So the event log is written under it, the backend is told which slots begin to
// be filled, and movers, the peers' port, who is told where blocks are, and what told_mutex_ guards take
// mutexes of their own under it, each for as long as handing over takes. Everything else is called with no
// mutex held: listeners, passes, idle work.
#include "loci/engine/run/engine.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <iterator>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/mutex.h"
#include "loci/engine/log/event_log.h"
#include "loci/engine/run/compute_desk.h"
#include "loci/engine/run/constraint.h"
#include "loci/engine/run/inbox.h"
#include "loci/engine/run/pass_executor.h"
#include "loci/engine/run/pass_turn.h"
#include "loci/engine/run/replies.h"

namespace loci {
namespace {

// The core's thread steps for no longer than that, and one step more, before it delivers what its steps have
// said.
constexpr Nanos kPortionTime = kNanosPerMilli / 4;

void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

// Nothing that is sampled ends the reply before so many tokens: no forced one does, and those that were said
// count for the limit.
std::uint32_t least_new_tokens(const GenerationRequest& request) {
  const SamplingParams& sampling = request.sampling;
  if (!sampling.forced.empty())
    return static_cast<std::uint32_t>(sampling.forced.size()) + std::max(sampling.min_tokens, 1u);
  return sampling.min_tokens - std::min(sampling.min_tokens, request.said_tokens);
}

}  // namespace

class Engine::State {
 public:
  State(Core core, const CoreConfig& core_config, std::optional<EventLogWriter> log, Backend& backend,
        const Clock& clock, std::shared_ptr<BlockListener> listener, Nanos stall_limit)
      : config(core_config),
        hasher_(core_config.chain_secret, core_config.model_fingerprint),
        backend_(backend),
        clock_(clock),
        core_(std::move(core)),
        log_(std::move(log)),
        replies_(backend.info().samples),
        stats_(std::make_shared<const CoreStats>(core_.stats())),
        chains_(core_.public_chains()),
        listener_(std::move(listener)),
        stall_limit_(stall_limit) {
    if (listener_ == nullptr) return;
    listener_->costs(core_config.costs);
    const MutexLock lock(core_mutex_);
    core_.watch_places();
  }

  // Once, before anything else.
  Status begin(MoverOptions options, DiskRoom room, std::uint32_t capture_places, const HiddenShare& share) {
    if (capture_places > 0) {
      LOCI_ASSIGN_OR_RETURN(captures_,
                            HiddenCaptures::make(backend_, {.places = capture_places, .share = share}));
      options.captures = captures_.get();
    }
    if (!room.slots.empty()) inbox_.post(std::move(room));
    const bool disk = options.disk != nullptr;
    peers_ = options.peers;
    LOCI_ASSIGN_OR_RETURN(mover_, Mover::make(std::move(options), backend_, clock_, [this](MovesEnded ended) {
                            inbox_.post_ended(std::move(ended));
                          }));
    core_thread_ = std::thread([this] { run_core(); });
    compute_thread_ = std::thread([this] { run_compute(); });
    if (disk)
      mover_->recover([this](Recovered found) {
        check_keys(hasher_, found.entries);
        inbox_.post_recovered(std::move(found));
      });
    return {};
  }

  ~State() {
    // Without its last thread it has not begun, and nobody would drain it.
    if (compute_thread_.joinable()) drain();
    inbox_.stop();
    desk_.stop();
    if (core_thread_.joinable()) core_thread_.join();
    if (compute_thread_.joinable()) compute_thread_.join();
    mover_.reset();
  }

  void post(InboxItem item) { inbox_.post(std::move(item)); }

  RequestId submit(GenerationRequest request, GenerationListener listener) {
    const RequestId id(next_request_.fetch_add(1, std::memory_order_relaxed));
    const std::uint32_t said = request.said_tokens;
    LOCI_CHECK(said < request.prompt.size() && (said == 0 || said < request.max_new_tokens),
               "a reply's beginning stands behind its prompt, and is not all of it");
    const std::span<const TokenId> sequence(request.prompt);
    Submission submission;
    submission.said_tokens = said;
    submission.tells_computed = request.tells_computed;
    submission.repeats_prompt = request.repeats_prompt;
    submission.sampler = std::make_shared<Sampler>(request.sampling, sequence.first(sequence.size() - said),
                                                   request.stop_tokens, backend_.info().vocabulary,
                                                   std::move(request.grammar));
    if (said > 0) submission.sampler->resume_after(sequence.last(said));
    submission.listener = std::move(listener);
    submission.arrival = Arrival{
        .request = id,
        .tenant = std::move(request.tenant),
        .prompt = std::move(request.prompt),
        .max_new_tokens = request.max_new_tokens - said,
        .min_new_tokens = least_new_tokens(request),
        .stop_tokens = std::move(request.stop_tokens),
        .deadline = request.time_limit ? clock_.now() + *request.time_limit : kNever,
        .weight = request.weight,
        .queued_max = request.queued_max,
        .scope = request.scope,
        .dropped = std::move(request.dropped),
        .follows = config.passes_ahead > 0 && samples_on_device(*submission.sampler),
        .salt = std::move(request.salt),
    };
    // Here rather than in the core, where everybody would wait for it.
    Arrival& arrival = submission.arrival;
    prepare_arrival(config, hasher_, *public_chains(), arrival);
    const bool is_told = listener_ != nullptr && arrival.scope == SharingScope::kTenant &&
                         arrival.dropped.empty() && config.reuse && request.text != nullptr;
    if (is_told && !arrival.keys.blocks.empty()) {
      submission.text = std::move(request.text);
      submission.keys = arrival.keys.blocks;
      submission.keys.resize(std::min(submission.keys.size(), (arrival.prompt.size() - said) / kBlockTokens));
    }
    post(std::move(submission));
    return id;
  }

  void forget(Forget what) {
    what.keys = forget_keys(hasher_, *public_chains(), what);
    post(std::move(what));
  }

  void when_idle(Nanos quiet, IdleWork work) { desk_.when_idle(quiet, std::move(work)); }

  bool wait_drained(Nanos time_limit) EXCLUDES(drained_mutex_) {
    MutexLock lock(drained_mutex_);
    return drained_changed_.wait_for(lock, std::chrono::nanoseconds(time_limit),
                                     [this]() REQUIRES(drained_mutex_) { return drained_; });
  }

  Nanos now() const { return clock_.now(); }

  // As of the last step: nobody who asks waits for one that runs.
  CoreStats stats() const EXCLUDES(told_mutex_) {
    std::shared_ptr<const CoreStats> told;
    {
      const MutexLock lock(told_mutex_);
      told = stats_;
    }
    return *told;
  }
  Status health() const EXCLUDES(told_mutex_) {
    const MutexLock lock(told_mutex_);
    return health_.ok() ? stall() : health_;
  }
  // Not ok: the device stands still.
  Status stall() const {
    const Nanos since = pass_since_.load();
    if (since == kNever || stall_limit_ == kNever || clock_.now() - since <= stall_limit_) return {};
    return Status(StatusCode::kDeadlineExceeded,
                  fmt::format("a pass has not ended for more than {} ms", stall_limit_ / kNanosPerMilli));
  }

  MoverStats mover_stats() const { return mover_->stats(); }
  CaptureStats capture_stats() const { return captures_ == nullptr ? CaptureStats{} : captures_->stats(); }
  DiskStoreStats disk_stats() const { return mover_->disk_stats(); }
  SharedStoreStats shared_stats() const { return mover_->shared_stats(); }

  const CoreConfig config;

 private:
  void drain() EXCLUDES(drained_mutex_) {
    post(Drain{.deadline = clock_.now()});
    MutexLock lock(drained_mutex_);
    drained_changed_.wait(lock, [this]() REQUIRES(drained_mutex_) { return drained_; });
  }

  std::shared_ptr<const PublicChains> public_chains() const EXCLUDES(told_mutex_) {
    const MutexLock lock(told_mutex_);
    return chains_;
  }

  bool samples_on_device(const Sampler& sampler) const {
    return backend_.info().samples && sampler.on_device();
  }

  // --- the core's thread ---

  void run_core() {
    name_this_thread("loci-core");
    std::vector<InboxItem> items;
    for (Nanos wake_at = kNever; inbox_.take(items, time_until(wake_at)); items.clear()) {
      std::span<InboxItem> left(items);
      do left = left.subspan(handle_portion(left, wake_at));
      while (!left.empty());
    }
  }

  // Handles the first items, if there are any, and delivers what came of them. How many they were.
  std::size_t handle_portion(std::span<InboxItem> items, Nanos& wake_at) EXCLUDES(core_mutex_) {
    std::size_t handled = 0;
    bool planned = false;
    pass_turn_.let_go_first();
    {
      const MutexLock lock(core_mutex_);
      const Nanos begun = clock_.now();
      if (items.empty() && wake_at_ <= begun) step(Tick{});
      while (handled < items.size()) {
        std::visit([this](auto& i) REQUIRES(core_mutex_) { handle(i); }, items[handled++]);
        if (pass_turn_.is_claimed() || clock_.now() - begun >= kPortionTime) break;
      }
      wake_at = wake_at_;
      planned = !planned_.empty();
    }
    watch_pass();
    if (planned) desk_.note_planned();
    deliver_all();
    return handled;
  }

  // Until the core wants to be woken, or the pass under way, if none ends before, is one that stands still.
  Nanos time_until(Nanos wake_at) const {
    const Nanos since = pass_since_.load();
    if (since != kNever && stall_limit_ < kNever - since && !is_stalled_)
      wake_at = std::min(wake_at, since + stall_limit_ + 1);
    return wake_at == kNever ? kNever : wake_at - clock_.now();
  }

  // Says in the log what health() says to whoever asks.
  void watch_pass() EXCLUDES(told_mutex_) {
    const Status now = stall();
    if (now.ok() == !is_stalled_) return;
    is_stalled_ = !now.ok();
    if (is_stalled_)
      spdlog::error("the device stands still: {}; unless it goes on, restart the server", now.message());
    else if (health().ok())
      spdlog::warn("the device goes on");
  }

  void handle(Submission& submission) REQUIRES(core_mutex_) {
    replies_.begin(submission);
    const RequestId id = submission.arrival.request;
    const std::size_t tokens = submission.arrival.prompt.size() - submission.said_tokens;
    step(std::move(submission.arrival));
    if (submission.text != nullptr && replies_.contains(id))
      listener_->prompt(*submission.text, submission.keys, tokens);
  }
  void handle(Cancel& cancel) REQUIRES(core_mutex_) { step(cancel); }
  void handle(Pause& pause) REQUIRES(core_mutex_) { step(pause); }
  void handle(Drain& drain) REQUIRES(core_mutex_) { step(drain); }
  void handle(Withdraw& withdraw) REQUIRES(core_mutex_) { step(withdraw); }
  void handle(Recovered& recovered) REQUIRES(core_mutex_) { step(std::move(recovered)); }
  void handle(DiskRoom& room) REQUIRES(core_mutex_) { step(std::move(room)); }
  void handle(MemoryRoom& room) REQUIRES(core_mutex_) { step(std::move(room)); }
  void handle(Forget& forget) REQUIRES(core_mutex_) { step(std::move(forget)); }
  void handle(CostsMeasured& measured) REQUIRES(core_mutex_) {
    if (listener_ != nullptr) listener_->costs(measured.costs);
    step(std::move(measured));
  }
  void handle(SharedAnswer& answer) REQUIRES(core_mutex_) { step(std::move(answer)); }
  void handle(PeerQuestion& question) REQUIRES(core_mutex_) { step(std::move(question)); }
  void handle(PeerRead& read) REQUIRES(core_mutex_) { step(std::move(read)); }
  void handle(PeerLeft& left) REQUIRES(core_mutex_) { step(left); }
  void handle(MovesEnded& ended) REQUIRES(core_mutex_) {
    LOCI_CHECK(ended.moves.size() <= moves_in_flight_, "a move ends once");
    moves_in_flight_ -= ended.moves.size();
    step(std::move(ended));
  }

  void deliver_all() EXCLUDES(core_mutex_, drained_mutex_) {
    std::vector<Delivery> deliveries;
    std::vector<SpentText> spent;  // let go of without the mutex
    bool drained = false;
    {
      const MutexLock lock(core_mutex_);
      deliveries = replies_.take();
      spent = std::exchange(spent_, {});
      drained = core_drained_;
    }
    for (const Delivery& delivery : deliveries) (*delivery.listener)(delivery.event);
    if (!drained) return;
    {
      const MutexLock lock(drained_mutex_);
      drained_ = true;
    }
    drained_changed_.notify_all();
  }

  // --- whoever holds core_mutex_ ---

  void step(Event event) REQUIRES(core_mutex_) {
    const Nanos now = clock_.now();
    if (log_) keep_log(log_->append_event(now, event));
    Plan plan = core_.step(now, std::move(event));
    if (log_) keep_log(log_->append_plan(plan));
    wake_at_ = plan.wake_at;
    carry_out(plan);
    tell_moved();
    core_drained_ = plan.drained && moves_in_flight_ == 0;
    if (plan.pass) {
      // From here on, since idle work, which stops for it, or its beginning may hang too.
      if (pass_since_.load() == kNever) pass_since_.store(clock_.now());
      planned_.push_back(replies_.make_job(plan));
    }
    replies_.tell(plan.outputs);
    std::ranges::move(plan.spent, std::back_inserter(spent_));
    constraints_.prepare(replies_.take_begun());
    auto stats = std::make_shared<CoreStats>(core_.stats());
    replies_.correct(*stats);
    std::shared_ptr<const CoreStats> told = std::move(stats);
    std::shared_ptr<const PublicChains> chains = core_.public_chains();
    const MutexLock lock(told_mutex_);
    stats_.swap(told);
    chains_.swap(chains);
  }

  // The core knows no time of day: what goes to the disk is dated here.
  void carry_out(Plan& plan) REQUIRES(core_mutex_) {
    for (const FreedSlot& freed : plan.give_back) backend_.give_back(freed.group, freed.slot);
    for (SharedAsk& ask : plan.asks)
      mover_->ask(std::move(ask), [this](SharedAnswer answer) { post(std::move(answer)); });
    if (!plan.shared_forgets.empty()) mover_->forget_shared(plan.shared_forgets);
    for (PeerAnswer& answer : plan.peer_answers) peers_->answered(std::move(answer));
    for (const PeerGone& gone : plan.peer_gone) peers_->gone(gone);
    if (plan.hidden_share && captures_ != nullptr) captures_->follow(*plan.hidden_share);
    if (plan.moves.empty() && plan.record_changes.empty()) return;
    const std::int64_t today_ms = seconds_since_1970() * 1000;
    for (Move& move : plan.moves) move.entry.used_at = today_ms;
    for (RecordChange& change : plan.record_changes) change.entry.used_at = today_ms;
    moves_in_flight_ += plan.moves.size();
    mover_->start(std::move(plan.moves), std::move(plan.record_changes));
  }

  void tell_moved() REQUIRES(core_mutex_) {
    if (listener_ == nullptr) return;
    const std::vector<BlockPlace> moved = core_.take_moved();
    if (!moved.empty()) listener_->moved(moved);
  }

  // A log that can't be written ends; the server goes on.
  void keep_log(const Status& status) REQUIRES(core_mutex_) {
    if (status.ok()) return;
    spdlog::error("the event log ends here: {}", status.message());
    log_.reset();
  }

  // --- the compute thread ---

  void run_compute() {
    name_this_thread("loci-compute");
    PassExecutor executor(backend_, constraints_, captures_.get());
    while (true) {
      if (begin_planned(executor) && executor.in_flight() <= config.passes_ahead) {
        ask_for_more();
        continue;
      }
      if (executor.in_flight() == 0) {
        if (!desk_.wait([this](const IdleWork& work) { return work_idly(work); })) return;
        continue;
      }
      executor.wait();
      begin_planned(executor);  // what was planned meanwhile need not wait for the host
      end_pass(executor.end(), executor.in_flight());
      inbox_.note_step();
    }
  }

  // True: some have begun.
  bool begin_planned(PassExecutor& executor) EXCLUDES(core_mutex_) {
    std::deque<PassJob> jobs;
    {
      pass_turn_.claim();
      const MutexLock lock(core_mutex_);
      pass_turn_.taken();
      std::swap(jobs, planned_);
    }
    for (PassJob& job : jobs) executor.begin(std::move(job));
    return !jobs.empty();
  }

  void ask_for_more() EXCLUDES(core_mutex_) {
    pass_turn_.claim();
    const MutexLock lock(core_mutex_);
    pass_turn_.taken();
    step(Tick{});
  }

  // `in_flight`: how many have begun and not ended.
  void end_pass(PassEnd end, std::size_t in_flight) EXCLUDES(core_mutex_) {
    pass_turn_.claim();
    const MutexLock lock(core_mutex_);
    pass_turn_.taken();
    pass_since_.store(in_flight == 0 && planned_.empty() ? kNever : clock_.now());
    if (!end.health.ok() && replies_.lost().ok()) lose_device(std::move(end.health));
    replies_.end_pass(std::move(end.sampled));
    step(std::move(end.event));
  }

  // For good: everything ends, and nothing is taken any more.
  void lose_device(Status why) REQUIRES(core_mutex_) {
    spdlog::error("the device is lost, and every request with it; restart the server: {}", why.message());
    {
      const MutexLock lock(told_mutex_);
      health_ = why;
    }
    replies_.lose_device(std::move(why));
    step(Drain{.deadline = clock_.now()});
  }

  // True: it is done, or there is nothing to do it on.
  bool work_idly(const IdleWork& work) EXCLUDES(core_mutex_) {
    {
      const MutexLock lock(core_mutex_);
      if (!replies_.lost().ok()) return true;
      if (moves_in_flight_ > 0 || !replies_.empty()) return false;
    }
    return work([this] { return desk_.is_called() || !inbox_.empty(); });
  }

  const ChainKeyHasher hasher_;
  Backend& backend_;
  const Clock& clock_;
  std::atomic<std::uint64_t> next_request_{1};

  Mutex core_mutex_{LockOrder::kOuter};
  Core core_ GUARDED_BY(core_mutex_);
  std::optional<EventLogWriter> log_ GUARDED_BY(core_mutex_);
  Replies replies_ GUARDED_BY(core_mutex_);
  std::deque<PassJob> planned_ GUARDED_BY(core_mutex_);  // to be begun, in order
  Nanos wake_at_ GUARDED_BY(core_mutex_) = kNever;
  std::vector<SpentText> spent_ GUARDED_BY(core_mutex_);  // of plans, until the core's thread lets go of it
  std::size_t moves_in_flight_ GUARDED_BY(core_mutex_) = 0;
  bool core_drained_ GUARDED_BY(core_mutex_) = false;

  mutable Mutex told_mutex_;  // held for no longer than it takes to copy what it guards
  std::shared_ptr<const CoreStats> stats_ GUARDED_BY(told_mutex_);      // after the last step
  std::shared_ptr<const PublicChains> chains_ GUARDED_BY(told_mutex_);  // too
  Status health_ GUARDED_BY(told_mutex_);                               // not ok: the device is lost

  Mutex drained_mutex_;
  Condition drained_changed_;
  bool drained_ GUARDED_BY(drained_mutex_) = false;

  PassTurn pass_turn_;
  Inbox inbox_;
  ComputeDesk desk_;
  const std::shared_ptr<BlockListener> listener_;  // null: nobody is told where blocks are
  const Nanos stall_limit_;
  // Since when the first pass that is planned and has not ended could have had the device; kNever: there is
  // none. Written under core_mutex_.
  std::atomic<Nanos> pass_since_{kNever};
  bool is_stalled_ = false;                   // only for the core's thread: what it has logged
  std::shared_ptr<PeerOutlet> peers_;         // null: nobody asks for peers
  std::unique_ptr<HiddenCaptures> captures_;  // null: nothing is saved as hidden states
  std::unique_ptr<Mover> mover_;
  ConstraintWorker constraints_;
  std::thread core_thread_;
  std::thread compute_thread_;
};

Result<std::unique_ptr<Engine>> Engine::start(EngineOptions options, Backend& backend,
                                              const Clock& clock) try {
  LOCI_ASSIGN_OR_RETURN(Core core, Core::make(options.core));
  if (options.core.passes_ahead > backend.info().passes_ahead) {
    return invalid_argument(fmt::format("expected at most the backend's {}, found {}",
                                        backend.info().passes_ahead, options.core.passes_ahead),
                            "passes_ahead");
  }
  std::optional<EventLogWriter> log;
  if (!options.event_log_path.empty()) {
    LOCI_ASSIGN_OR_RETURN(
        log, EventLogWriter::create(options.event_log_path, options.core, options.event_log_secret));
  }
  auto state = std::make_unique<State>(std::move(core), options.core, std::move(log), backend, clock,
                                       std::move(options.listener), options.stall_limit);
  LOCI_RETURN_IF_ERROR(state->begin(std::move(options.mover), std::move(options.disk_room),
                                    options.capture_places, options.core.hidden.share));
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
} catch (const std::system_error& error) {
  return resource_exhausted(
      fmt::format("expected a few more threads, but the system has none: {}", error.what()));
} catch (const std::bad_alloc&) {
  return resource_exhausted(
      "the machine has no memory for the list of all blocks of state: give smaller pools");
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

RequestId Engine::submit(GenerationRequest request, GenerationListener listener) {
  return state_->submit(std::move(request), std::move(listener));
}
void Engine::cancel(RequestId request) { state_->post(Cancel{.request = request}); }
void Engine::pause(RequestId request, bool paused) {
  state_->post(Pause{.request = request, .paused = paused});
}
void Engine::withdraw(RequestId prefix) { state_->post(Withdraw{.prefix = prefix}); }
void Engine::forget(Forget what) { state_->forget(std::move(what)); }
void Engine::set_disk_room(DiskRoom room) { state_->post(std::move(room)); }
void Engine::set_memory_room(MemoryRoom room) { state_->post(std::move(room)); }
void Engine::when_idle(Nanos quiet, IdleWork work) { state_->when_idle(quiet, std::move(work)); }
void Engine::set_costs(CostCurves costs) { state_->post(CostsMeasured{.costs = std::move(costs)}); }
void Engine::ask_for_peer(PeerQuestion question) { state_->post(std::move(question)); }
void Engine::read_for_peer(PeerRead read, Nanos time_limit) {
  read.deadline = state_->now() + time_limit;
  state_->post(std::move(read));
}
void Engine::leave_peer(PeerReadId read) { state_->post(PeerLeft{read}); }
void Engine::drain(Nanos grace) {
  state_->post(Drain{.deadline = grace >= kNever - state_->now() ? kNever : state_->now() + grace});
}
bool Engine::wait_drained(Nanos time_limit) { return state_->wait_drained(time_limit); }
Status Engine::health() const { return state_->health(); }
CoreStats Engine::stats() const { return state_->stats(); }
CaptureStats Engine::capture_stats() const { return state_->capture_stats(); }
MoverStats Engine::mover_stats() const { return state_->mover_stats(); }
DiskStoreStats Engine::disk_stats() const { return state_->disk_stats(); }
SharedStoreStats Engine::shared_stats() const { return state_->shared_stats(); }
const CoreConfig& Engine::config() const { return state_->config; }

}  // namespace loci
