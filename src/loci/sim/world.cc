// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/world.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/engine/log/event_log.h"
#include "loci/policy/truncation.h"
#include "loci/sim/disk_records.h"
#include "loci/sim/ledger.h"
#include "loci/sim/links.h"
#include "loci/sim/running_pass.h"
#include "loci/sim/seen_prefixes.h"
#include "loci/sim/talk.h"

namespace loci::sim {
namespace {

constexpr std::uint32_t kDropPercent = 50;  // of the context (AttentionStore §4.1)
constexpr Nanos kDeviceCopy = 1'000;

class World {
 public:
  World(const Trace& trace, const WorldOptions& options, Core core, std::optional<EventLogWriter> log)
      : trace_(trace),
        options_(options),
        core_(std::move(core)),
        log_(std::move(log)),
        pass_model_(options.model, options.machine),
        links_(options.machine),
        faults_(options.faults),
        turns_(trace.requests()),
        conversations_(trace.conversations.size()) {}

  Result<WorldReport> run() {
    report_.requests.reserve(turns_);
    for (std::uint32_t c = 0; c < conversations_.size(); ++c) schedule_turn(c, 0);
    for (std::uint8_t way = 0; way < Links::kWays; ++way)
      schedule(Kind::kSpell, faults_.first_turn(static_cast<Links::Way>(way)), way);
    schedule(Kind::kRestart, faults_.until_restart(), 0);
    step(Recovered{.last = true});
    while (status_.ok() && !report_.stopped) {
      const std::optional<Nanos> moved = links_.next();
      if (events_.empty() && !moved) break;
      if (moved && (events_.empty() || *moved <= std::get<0>(events_.top()))) {
        now_ = *moved;
        end_transfers();
      } else {
        const Pending next = events_.top();
        events_.pop();
        now_ = std::get<0>(next);
        take(next);
      }
      if (options_.stop != nullptr && options_.stop->load()) report_.stopped = true;
    }
    LOCI_RETURN_IF_ERROR(status_);
    report_.duration = now_;
    report_.stats = core_.stats();
    report_.recovered += report_.stats.recovered_total;
    if (!report_.stopped) ledger_.check_end(report_.stats);
    return std::move(report_);
  }

 private:
  enum class Kind : std::uint8_t { kCopied, kPassEnd, kPatience, kTick, kCancel, kDue, kSpell, kRestart };
  using Pending = std::tuple<Nanos, Kind, std::uint64_t>;  // when, what, of which

  void schedule_turn(std::uint32_t c, Nanos from) {
    Talk& talk = conversations_[c];
    const std::vector<Turn>& turns = trace_.conversations[c].turns;
    if (talk.next_turn < turns.size()) {
      const Turn& turn = turns[talk.next_turn];
      events_.emplace(std::max(turn.at, from + turn.after), Kind::kDue, c);
    } else {
      talk.tokens = {};
    }
  }

  // Whether some requests have not arrived, or not ended.
  bool is_open() const { return report_.requests.size() < turns_ || !live_.empty(); }

  // Faults come as long as there are requests for them.
  void schedule(Kind kind, Nanos after, std::uint64_t which) {
    if (after != kNever && is_open()) events_.emplace(now_ + after, kind, which);
  }

  void take(const Pending& event) {
    const std::uint64_t which = std::get<2>(event);
    switch (std::get<1>(event)) {
      case Kind::kDue: arrive(static_cast<std::uint32_t>(which)); break;
      case Kind::kCancel: step(Cancel{RequestId(which)}); break;
      case Kind::kPassEnd: end_pass(which); break;
      case Kind::kPatience: lose_patience(which); break;
      case Kind::kTick:
        if (which == ticks_) step(Tick{});
        break;
      case Kind::kCopied: {
        MovesEnded ended;
        ended.moves.push_back({OperationId(which), MoveResult::kDone, kDeviceCopy});
        ledger_.ended(CoreLink::kHostLoad, 0, MoveResult::kDone);
        step(ended);
        break;
      }
      case Kind::kSpell: {
        const auto way = static_cast<Links::Way>(which);
        schedule(Kind::kSpell, faults_.turn(way), which);
        links_.set_speed(now_, way, faults_.speed(way));
        break;
      }
      case Kind::kRestart: restart(); break;
    }
  }

  // --- requests ---

  // The cuts of a history that is too long; absent: it cannot go on.
  std::optional<std::vector<TokenRange>> cuts(std::size_t history, std::uint32_t reply) const {
    const std::uint32_t context = options_.core.context_tokens;
    if (options_.overflow == Overflow::kStop) {
      if (history >= context) return std::nullopt;
      return std::vector<TokenRange>{};
    }
    const Result<Truncation> rule =
        Truncation::make({context, kDropPercent}, {0, std::min(reply, context / 2)});
    if (!rule.ok()) return std::nullopt;
    return rule->cuts(static_cast<std::uint32_t>(history));
  }

  void give_up(std::uint32_t c) {
    Talk& talk = conversations_[c];
    for (; talk.next_turn < trace_.conversations[c].turns.size(); ++talk.next_turn) {
      RequestRecord& record = report_.requests.emplace_back();
      record.conversation = c;
      record.turn = static_cast<std::uint32_t>(talk.next_turn);
      record.arrived = record.ended = now_;
      record.outcome = Outcome::kTooLong;
    }
    talk.tokens = {};
  }

  void arrive(std::uint32_t c) {
    Talk& talk = conversations_[c];
    const Turn& turn = trace_.conversations[c].turns[talk.next_turn];
    const std::size_t before = talk.begin(turn);
    const auto dropped = cuts(talk.tokens.size(), turn.reply_tokens);
    if (!dropped) return give_up(c);
    Arrival arrival;
    arrival.prompt = talk.tokens;
    std::uint32_t gone = 0;
    for (const TokenRange& range : *dropped) gone += range.end - range.begin;
    if (options_.overflow == Overflow::kCut && !dropped->empty()) {
      const auto first = arrival.prompt.begin() + dropped->front().begin;
      arrival.prompt.erase(first, first + gone);
    } else {
      arrival.dropped = *dropped;
    }
    RequestRecord record;
    record.conversation = c;
    record.turn = static_cast<std::uint32_t>(talk.next_turn++);
    record.arrived = now_;
    record.prompt_tokens = static_cast<std::uint32_t>(talk.tokens.size()) - gone;
    const auto fresh = static_cast<std::uint32_t>(talk.tokens.size() - before);
    record.history_tokens =
        turn.appends ? record.prompt_tokens - std::min(record.prompt_tokens, fresh) : seen_.find(talk.tokens);
    const std::uint32_t room =
        options_.core.context_tokens - std::min(options_.core.context_tokens, record.prompt_tokens);
    arrival.max_new_tokens = std::max(1u, std::min(turn.reply_tokens, room));
    arrival.request = RequestId(report_.requests.size() + 1);
    if (options_.stateless)
      arrival.prompt.front() = TokenId(kWords + static_cast<std::uint32_t>(arrival.request.value));
    arrival.group = "all";
    if (options_.deadline != kNever) arrival.deadline = now_ + options_.deadline;
    if (turn.cancel_after >= 0)
      events_.emplace(now_ + turn.cancel_after, Kind::kCancel, arrival.request.value);
    if (options_.record_uses) SeenPrefixes::record(talk.tokens, talk.tokens.size(), report_.uses);
    report_.requests.push_back(record);
    live_.insert(arrival.request.value);
    ledger_.arrived();
    step(arrival);
  }

  RequestRecord& record_of(RequestId id) { return report_.requests[id.value - 1]; }

  // --- steps ---

  void step(const Event& event) {
    if (log_) status_ = log_->append_event(now_, event);
    Plan plan = core_.step(now_, event);
    if (log_ && status_.ok()) status_ = log_->append_plan(plan);
    if (options_.check) core_.check_invariants();
    if (restarts()) {
      for (const DiskNote& note : plan.notes) disk_.see(note, now_);
    }
    start_moves(plan);
    // Before the pass, which samples the token behind those that are there.
    for (const Output& output : plan.outputs) {
      std::visit([this](const auto& out) { see(out); }, output);
    }
    if (plan.pass) start_pass(plan);
    if (options_.check) ledger_.check(core_.stats());
    ++ticks_;
    // Without requests nothing is waited for but the ends of moves; old state would be looked for for ever.
    if (plan.wake_at != kNever && is_open())
      events_.emplace(std::max(plan.wake_at, now_), Kind::kTick, ticks_);
  }

  void mix(std::uint64_t a, std::uint64_t b) { report_.digest = mix64(report_.digest ^ mix64(a ^ mix64(b))); }

  void see(const Started& started) {
    RequestRecord& record = record_of(started.request);
    record.admitted = now_;
    record.from = {started.sources.device, started.sources.host, started.sources.disk};
    ledger_.started(record.prompt_tokens, started.cached_tokens);
    mix(started.request.value, started.cached_tokens);
  }
  void see(const TokenSampled& sampled) {
    RequestRecord& record = record_of(sampled.request);
    if (record.first_token == kNever) record.first_token = now_;
    ++record.reply_tokens;
    conversations_[record.conversation].tokens.push_back(sampled.token);
    ledger_.sampled();
    mix(sampled.request.value, static_cast<std::uint64_t>(now_));
  }
  void see(const Finished& finished) {
    ledger_.ended();
    switch (finished.reason) {
      case FinishReason::kCancelled: end(finished.request, Outcome::kCancelled); break;
      case FinishReason::kDeadline: end(finished.request, Outcome::kDeadline); break;
      case FinishReason::kFailed:
      case FinishReason::kGrammar: end(finished.request, Outcome::kFailed); break;
      case FinishReason::kStop:
      case FinishReason::kLength: end(finished.request, Outcome::kDone); break;
    }
  }
  void see(const Rejected& rejected) {
    ledger_.rejected();
    const bool fits = rejected.status.code() != StatusCode::kInvalidArgument;
    end(rejected.request, fits ? Outcome::kRejected : Outcome::kTooLong);
  }
  void end(RequestId id, Outcome outcome) {
    RequestRecord& record = record_of(id);
    LOCI_CHECK(record.outcome == Outcome::kWaits, "a request ends once");
    live_.erase(id.value);
    record.outcome = outcome;
    record.ended = now_;
    mix(id.value, static_cast<std::uint64_t>(outcome));
    const std::uint32_t c = record.conversation;
    if (outcome == Outcome::kTooLong) return give_up(c);
    const std::vector<TokenId>& tokens = conversations_[c].tokens;
    if (options_.record_uses) {
      const std::size_t prompt = tokens.size() - record.reply_tokens;
      if (record.reply_tokens > 0) SeenPrefixes::record(tokens, prompt, report_.uses);
    }
    if (!trace_.conversations[c].turns[record.turn].appends) seen_.add(conversations_[c].tokens);
    schedule_turn(c, now_);
  }

  // --- moves ---

  static CoreLink link_of(Tier from, Tier to) {
    if (to == Tier::kDevice) return from == Tier::kDisk ? CoreLink::kDiskLoad : CoreLink::kHostLoad;
    if (to == Tier::kDisk) return CoreLink::kDiskSave;
    return from == Tier::kDisk ? CoreLink::kPrefetch : CoreLink::kHostSave;
  }
  static std::uint64_t place(std::uint32_t group, SlotId slot) {
    return std::uint64_t{group} << 32 | slot.value;
  }

  // The loads of one plan over one link travel together; all else goes block by block.
  void start_moves(const Plan& plan) {
    std::array<Transfer, kTiers> loads;
    for (const Move& move : plan.moves) {
      std::uint64_t bytes = 0;
      for (const MovePart& part : move.parts) bytes += options_.core.groups[part.group].block_bytes;
      const bool copy = move.from == Tier::kDevice && move.to == Tier::kDevice;
      const CoreLink link = link_of(move.from, move.to);
      ledger_.began(link, copy ? 0 : bytes);
      if (copy) {
        events_.emplace(now_ + kDeviceCopy, Kind::kCopied, move.id.value);
        continue;
      }
      report_.bytes_moved[static_cast<std::size_t>(link)] += bytes;
      if (move.to == Tier::kDisk && restarts()) {
        disk_.begin(move);
        writes_.emplace(move.id.value, move);
      }
      if (move.to != Tier::kDevice) {
        links_.add(now_, {move.from, move.to, bytes, {move.id.value}});
        continue;
      }
      Transfer& load = loads[static_cast<std::size_t>(move.from)];
      load.from = move.from;
      load.bytes += bytes;
      load.moves.push_back(move.id.value);
      // A transfer goes by the number of its first move.
      for (const MovePart& part : move.parts) arriving_[place(part.group, part.to)] = load.moves.front();
      targets_[move.id.value] = move.parts;
    }
    for (Transfer& load : loads) {
      if (!load.moves.empty()) links_.add(now_, std::move(load));
    }
  }

  void end_transfers() {
    MovesEnded ended;
    for (const Transfer& transfer : links_.end(now_)) {
      const MoveResult result = faults_.result_of(transfer);
      std::uint64_t bytes = transfer.bytes;
      for (const std::uint64_t move : transfer.moves) {
        ended.moves.push_back({OperationId(move), result, transfer.ended - transfer.began});
        ledger_.ended(link_of(transfer.from, transfer.to), std::exchange(bytes, 0), result);
        end_move(move, result);
      }
      if (result != MoveResult::kDone) report_.failed_moves += transfer.moves.size();
      if (transfer.to != Tier::kDevice) continue;
      result == MoveResult::kDone ? arrived(transfer) : failed(transfer);
    }
    if (!ended.moves.empty()) step(ended);
  }

  void end_move(std::uint64_t move, MoveResult result) {
    if (const auto write = writes_.find(move); write != writes_.end()) {
      if (result == MoveResult::kDone) disk_.end(write->second, now_);
      writes_.erase(write);
    }
    const auto found = targets_.find(move);
    if (found == targets_.end()) return;
    for (const MovePart& part : found->second) arriving_.erase(place(part.group, part.to));
    targets_.erase(found);
  }

  void arrived(const Transfer& transfer) {
    if (pass_ && pass_->arrived(transfer)) plan_end();
  }

  // --- passes ---

  void start_pass(const Plan& plan) {
    LOCI_CHECK(!pass_, "one pass at a time");
    pass_is_counted_ = report_.requests.size() >= options_.warm_up;
    ++report_.passes;
    PassDone done{plan.pass->id, {}};
    std::uint64_t rows = 0;
    shapes_.clear();
    for (std::size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.pass->spans[i];
      const RequestRecord& record = record_of(plan.spans[i].request);
      shapes_.push_back({span.position, static_cast<std::uint32_t>(span.tokens.size()),
                         span.position >= record.prompt_tokens, plan.spans[i].sample});
      rows += span.tokens.size();
      SpanOutcome& outcome = done.spans.emplace_back();
      if (plan.spans[i].sample) outcome.sample = next_token(record, plan.spans[i].request);
    }
    ledger_.pass(rows);
    pass_.emplace(std::move(done), pass_model_.time(shapes_), now_, options_.core.layers);
    for (std::size_t i = 0; i < plan.spans.size() && !arriving_.empty(); ++i) await(plan.pass->spans[i], i);
    if (!pass_->waits()) return plan_end();
    if (plan.pass->patience != kWaitsForEver)
      events_.emplace(now_ + plan.pass->patience, Kind::kPatience, plan.pass->id.value);
  }

  TokenId next_token(const RequestRecord& record, RequestId request) {
    const Turn& turn = trace_.conversations[record.conversation].turns[record.turn];
    return conversations_[record.conversation].next_token(turn, record.reply_tokens, request.value);
  }

  void await(const Span& span, std::size_t number) {
    for (std::uint32_t group = 0; group < span.tables.size(); ++group) {
      for (const SlotId slot : span.tables[group].blocks) {
        const auto found = arriving_.find(place(group, slot));
        if (found != arriving_.end()) pass_->read(number, found->second);
      }
    }
  }

  void plan_end() { events_.emplace(pass_->ends(now_), Kind::kPassEnd, pass_->done().pass.value); }

  void lose_patience(std::uint64_t id) {
    if (!pass_ || pass_->done().pass.value != id || !pass_->waits()) return;
    pass_->give_up();
    plan_end();
  }

  // What the pass reads does not come.
  void failed(const Transfer& transfer) {
    if (pass_ && pass_->failed(transfer)) plan_end();
  }

  void end_pass(std::uint64_t id) {
    LOCI_CHECK(pass_ && pass_->done().pass.value == id, "the pass that ends runs");
    const RunningPass pass = std::move(*pass_);
    pass_.reset();
    report_.poisoned_spans += pass.failed_spans();
    if (pass_is_counted_) {
      report_.prompt_time += pass.time().prompts;
      report_.decode_time += pass.time().decodes;
      report_.load_wait += now_ - pass.began() - pass.time().total();
    }
    step(pass.done());
  }

  // --- restarts ---

  bool restarts() const { return options_.faults.restarts > 0; }

  // The process ends where it stands, with its requests; the next one has what is on the disk.
  void restart() {
    const CoreStats stats = core_.stats();
    ledger_.check(stats);
    ledger_.restart();
    ++report_.restarts;
    report_.recovered += stats.recovered_total;
    for (const Transfer& transfer : links_.drop(now_)) {
      for (const std::uint64_t move : transfer.moves) {
        const auto write = writes_.find(move);
        if (write != writes_.end() && faults_.is_written()) disk_.end(write->second, now_);
      }
    }
    writes_.clear();
    arriving_.clear();
    targets_.clear();
    if (pass_) report_.poisoned_spans += pass_->failed_spans();
    pass_.reset();
    forget_process();
    core_ = Core::make(options_.core).value();
    const std::set<std::uint64_t> live = std::exchange(live_, {});
    for (const std::uint64_t id : live) end(RequestId(id), Outcome::kFailed);
    schedule(Kind::kRestart, faults_.until_restart(), 0);
    step(disk_.entries(now_));
  }

  // What it waited for does not come; what the clients and the links do goes on.
  void forget_process() {
    std::vector<Pending> kept;
    for (; !events_.empty(); events_.pop()) {
      const Kind kind = std::get<1>(events_.top());
      if (kind == Kind::kDue || kind == Kind::kSpell) kept.push_back(events_.top());
    }
    for (const Pending& event : kept) events_.push(event);
    ++ticks_;
  }

  const Trace& trace_;
  const WorldOptions& options_;
  Core core_;
  std::optional<EventLogWriter> log_;
  PassModel pass_model_;
  Links links_;
  Faults faults_;
  DiskRecords disk_;  // where there are restarts
  Ledger ledger_;
  const std::uint64_t turns_;  // of the trace
  std::set<std::uint64_t> live_;
  Status status_;
  Nanos now_ = 0;
  std::uint64_t ticks_ = 0;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> events_;
  std::vector<Talk> conversations_;
  std::optional<RunningPass> pass_;
  bool pass_is_counted_ = false;  // the warm-up had arrived when it began
  std::vector<SpanShape> shapes_;
  std::unordered_map<std::uint64_t, std::uint64_t> arriving_;  // slots that loads write: their transfer
  std::unordered_map<std::uint64_t, std::vector<MovePart>> targets_;  // of loads, by move
  std::unordered_map<std::uint64_t, Move> writes_;  // to the disk, by move, where there are restarts
  SeenPrefixes seen_;
  WorldReport report_;
};

}  // namespace

const char* outcome_name(Outcome outcome) {
  constexpr const char* kNames[kOutcomes] = {"waits",  "done",     "cancelled", "deadline",
                                             "failed", "rejected", "too_long"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Result<WorldReport> run_world(const Trace& trace, const WorldOptions& options) {
  if (options.faults.restarts > 0 && !options.event_log.empty())
    return invalid_argument("expected no restarts, since a log is of one process", "event_log");
  LOCI_ASSIGN_OR_RETURN(Core core, Core::make(options.core));
  std::optional<EventLogWriter> log;
  if (!options.event_log.empty()) {
    LOCI_ASSIGN_OR_RETURN(log, EventLogWriter::create(options.event_log, options.core, LoggedSecret::kKept));
  }
  return World(trace, options, std::move(core), std::move(log)).run();
}

}  // namespace loci::sim
