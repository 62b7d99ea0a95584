// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_instance.h"

#include <algorithm>
#include <array>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci::sim {
namespace {

constexpr Nanos kDeviceCopy = 1'000;

CoreLink link_of(const Move& move) {
  if (move.to == Tier::kShared) return CoreLink::kPeerServe;
  if (move.from == Tier::kShared) return CoreLink::kSharedLoad;
  if (move.to == Tier::kDevice) return move.from == Tier::kDisk ? CoreLink::kDiskLoad : CoreLink::kHostLoad;
  if (move.to == Tier::kDisk) return CoreLink::kDiskSave;
  return move.from == Tier::kDisk ? CoreLink::kPrefetch : CoreLink::kHostSave;
}

std::uint64_t place(std::uint32_t group, SlotId slot) { return std::uint64_t{group} << 32 | slot.value; }

bool is_copy(const Move& move) { return move.from == Tier::kDevice && move.to == Tier::kDevice; }

// Each instance has faults of its own.
FaultOptions faults_of(FaultOptions options, std::uint32_t number) {
  if (number > 0) options.seed = mix64(options.seed ^ mix64(number));
  return options;
}

}  // namespace

ModelledInstance::ModelledInstance(const WorldOptions& options, std::uint32_t number, Core core,
                                   std::optional<EventLogWriter> log, Agenda& agenda, Clients& clients,
                                   WorldReport& report)
    : options_(options),
      number_(number),
      core_(std::move(core)),
      log_(std::move(log)),
      hasher_(options.core.chain_secret, options.core.model_fingerprint),
      agenda_(agenda),
      clients_(clients),
      report_(report),
      pass_model_(options.model, options.machine),
      links_(options.machine, options.faults.disk_limit),
      faults_(faults_of(options.faults, number)) {}

void ModelledInstance::open_feed() {
  const ClusterOptions& cluster = options_.cluster;
  if (cluster.instances == 0 || cluster.policy != RoutingPolicy::kFirstToken) return;
  std::uint64_t block_bytes = 0;
  for (const CoreGroup& group : options_.core.groups) block_bytes += group.block_bytes;
  feed_ = std::make_unique<BlockFeed>(
      BlockFeedOptions{.epoch = process_, .block_bytes = block_bytes, .chunks = cluster.published});
  feed_->costs(options_.core.costs);
  core_.watch_places();
}

void ModelledInstance::begin() {
  for (std::uint8_t way = 0; way < Links::kWays; ++way) {
    if (way == Links::kNetwork && options_.cluster.instances == 0) continue;
    schedule(Happens::kSpell, faults_.first_turn(static_cast<Links::Way>(way)), way);
  }
  schedule(Happens::kDisk, options_.faults.disk_slow_at, 0);
  schedule(Happens::kRestart, faults_.until_restart(), 0);
  open_feed();
  step(Recovered{.entries = {}, .now = 0, .last = true});
}

// Faults come as long as there are requests for them.
void ModelledInstance::schedule(Happens what, Nanos after, std::uint64_t which) {
  if (after != kNever && clients_.is_open()) agenda_.add({now() + after, what, number_, which});
}

void ModelledInstance::take(const Happening& one) {
  switch (one.what) {
    case Happens::kCancel: step(Cancel{RequestId(one.which)}); break;
    case Happens::kPassEnd: end_pass(one.which); break;
    case Happens::kPatience: lose_patience(one.which); break;
    case Happens::kTick:
      if (one.which == ticks_) step(Tick{});
      break;
    case Happens::kCopied: {
      MovesEnded ended;
      ended.moves.push_back({OperationId(one.which), MoveResult::kDone, kDeviceCopy});
      ledger_.ended(CoreLink::kHostLoad, 0, MoveResult::kDone);
      step(ended);
      break;
    }
    case Happens::kSpell: {
      const auto way = static_cast<Links::Way>(one.which);
      schedule(Happens::kSpell, faults_.turn(way), one.which);
      links_.set_speed(now(), way, faults_.speed(way, now()));
      break;
    }
    case Happens::kDisk:
      for (const Links::Way way : {Links::kDiskRead, Links::kDiskWrite})
        links_.set_speed(now(), way, faults_.speed(way, now()));
      break;
    case Happens::kDue:
    case Happens::kRestart:
    case Happens::kReturn:
    case Happens::kPeers:
    case Happens::kFeed:
    case Happens::kMembers: LOCI_CHECK(false, "an instance knows what happens to it");
  }
}

// --- steps ---

void ModelledInstance::arrive(Arrival arrival, const PromptNames& names) {
  const bool is_told = feed_ != nullptr && arrival.dropped.empty();
  if (is_told) arrival.keys = prompt_keys(hasher_, arrival);
  const std::vector<ChainKey> keys = arrival.keys;
  const RequestId id = arrival.request;
  const std::size_t tokens = arrival.prompt.size();
  ledger_.arrived();
  step(std::move(arrival));
  if (!is_told || !clients_.is_live(id)) return;  // refused
  feed_->prompt(names, keys, tokens);
  published_ = true;
}

void ModelledInstance::step(const Event& event) {
  if (log_) status_ = log_->append_event(now(), event);
  Plan plan = core_.step(now(), event);
  if (log_ && status_.ok()) status_ = log_->append_plan(plan);
  if (options_.check) core_.check_invariants();
  if (restarts()) {
    for (const RecordChange& change : plan.record_changes) disk_.see(change, now());
  }
  if (feed_ != nullptr) {
    const std::vector<BlockPlace> moved = core_.take_moved();
    feed_->moved(moved);
    published_ = published_ || !moved.empty();
  }
  start_moves(plan);
  // Before the pass, which samples the token behind those that are there.
  for (const Output& output : plan.outputs) see(output);
  if (plan.pass) start_pass(plan);
  if (options_.check) ledger_.check(core_.stats());
  std::move(plan.asks.begin(), plan.asks.end(), std::back_inserter(outbox_.asks));
  std::move(plan.peer_answers.begin(), plan.peer_answers.end(), std::back_inserter(outbox_.answers));
  std::move(plan.peer_gone.begin(), plan.peer_gone.end(), std::back_inserter(outbox_.gone));
  ++ticks_;
  // Without requests nothing is waited for but the ends of moves; old state would be looked for for ever.
  if (plan.wake_at != kNever && clients_.is_open())
    agenda_.add({std::max(plan.wake_at, now()), Happens::kTick, number_, ticks_});
}

void ModelledInstance::see(const Output& output) {
  if (const auto* started = std::get_if<Started>(&output)) {
    ledger_.started(clients_.record(started->request).prompt_tokens, started->cached_tokens);
    clients_.see(*started);
  } else if (const auto* sampled = std::get_if<TokenSampled>(&output)) {
    ledger_.sampled();
    ++report_.sampled;
    clients_.see(*sampled);
  } else if (const auto* finished = std::get_if<Finished>(&output)) {
    ledger_.ended();
    see(*finished);
  } else if (const auto* rejected = std::get_if<Rejected>(&output)) {
    ledger_.rejected();
    const bool fits = rejected->status.code() != StatusCode::kInvalidArgument;
    clients_.end(rejected->request, fits ? Outcome::kRejected : Outcome::kTooLong);
  }
}

void ModelledInstance::see(const Finished& finished) {
  switch (finished.reason) {
    case FinishReason::kCancelled: clients_.end(finished.request, Outcome::kCancelled); break;
    case FinishReason::kDeadline: clients_.end(finished.request, Outcome::kDeadline); break;
    case FinishReason::kFailed:
    case FinishReason::kGrammar: clients_.end(finished.request, Outcome::kFailed); break;
    case FinishReason::kStop:
    case FinishReason::kLength: clients_.end(finished.request, Outcome::kDone); break;
  }
}

// --- moves ---

std::uint64_t ModelledInstance::bytes_of(const Move& move) const {
  std::uint64_t bytes = 0;
  for (const MovePart& part : move.parts) bytes += options_.core.groups[part.group].block_bytes;
  return bytes;
}

// The loads of one plan over one link travel together, as far as the plan says so; all else goes block by
// block.
void ModelledInstance::start_moves(const Plan& plan) {
  std::array<Transfer, kTiers> loads;
  std::array<OperationId, kTiers> together{};
  for (const Move& move : plan.moves) {
    const std::uint64_t bytes = bytes_of(move);
    const CoreLink link = link_of(move);
    ledger_.began(link, is_copy(move) ? 0 : bytes);
    if (is_copy(move)) {
      agenda_.add({now() + kDeviceCopy, Happens::kCopied, number_, move.id.value});
      continue;
    }
    report_.bytes_moved[static_cast<std::size_t>(link)] += bytes;
    if (move.to == Tier::kDisk && restarts()) {
      disk_.begin(move);
      writes_.emplace(move.id.value, move);
    }
    if (move.peer) gives_.emplace(move.id.value, *move.peer);
    if (move.to != Tier::kDevice) {
      links_.add(now(), {move.from, move.to, bytes, {move.id.value}});
      continue;
    }
    // A transfer goes by the number of its first move; from peers each block comes by itself.
    std::uint64_t transfer = move.id.value;
    if (move.from == Tier::kShared) {
      outbox_.loads.push_back(move);
    } else {
      const auto tier = static_cast<std::size_t>(move.from);
      Transfer& load = loads[tier];
      if (std::exchange(together[tier], move.together) != move.together && !load.moves.empty())
        links_.add(now(), std::exchange(load, {}));
      load.from = move.from;
      load.bytes += bytes;
      load.moves.push_back(move.id.value);
      transfer = load.moves.front();
    }
    for (const MovePart& part : move.parts) arriving_[place(part.group, part.to)] = transfer;
    targets_[move.id.value] = move.parts;
  }
  for (Transfer& load : loads) {
    if (!load.moves.empty()) links_.add(now(), std::move(load));
  }
}

void ModelledInstance::end_transfers() {
  MovesEnded ended;
  for (Transfer& transfer : links_.end(now())) {
    const MoveResult result = faults_.result_of(transfer);
    const bool is_given = transfer.to == Tier::kShared;
    if (is_given && transfer.from == Tier::kDisk && result == MoveResult::kDone) {
      transfer.from = Tier::kHost;  // it has been read, and goes out now
      links_.add(now(), std::move(transfer));
      continue;
    }
    std::uint64_t bytes = transfer.bytes;
    for (const std::uint64_t move : transfer.moves) {
      ended.moves.push_back({OperationId(move), result, transfer.ended - transfer.began});
      const CoreLink link = link_of(Move{.id = {}, .from = transfer.from, .to = transfer.to, .parts = {}});
      ledger_.ended(link, std::exchange(bytes, 0), result);
      end_move(move, result);
    }
    if (result != MoveResult::kDone) report_.failed_moves += transfer.moves.size();
    if (is_given) {
      const auto give = gives_.extract(transfer.moves.front());
      outbox_.given.push_back({give.mapped(), transfer.bytes, result == MoveResult::kDone, transfer.began});
    }
    if (transfer.to != Tier::kDevice) continue;
    result == MoveResult::kDone ? arrived(transfer) : failed(transfer);
  }
  if (!ended.moves.empty()) step(ended);
}

void ModelledInstance::end_peer_load(OperationId move, MoveResult result, Nanos began) {
  const auto parts = targets_.find(move.value);
  LOCI_CHECK(parts != targets_.end(), "what a peer gives was asked for, and ends once");
  std::uint64_t bytes = 0;
  for (const MovePart& part : parts->second) bytes += options_.core.groups[part.group].block_bytes;
  ledger_.ended(CoreLink::kSharedLoad, bytes, result);
  end_move(move.value, result);
  const Transfer transfer{Tier::kShared, Tier::kDevice, bytes, {move.value}, began, now()};
  result == MoveResult::kDone ? arrived(transfer) : failed(transfer);
  if (result != MoveResult::kDone) ++report_.failed_moves;
  step(MovesEnded{{{move, result, now() - began}}});
}

void ModelledInstance::end_move(std::uint64_t move, MoveResult result) {
  if (const auto write = writes_.find(move); write != writes_.end()) {
    if (result == MoveResult::kDone) disk_.end(write->second, now());
    writes_.erase(write);
  }
  const auto found = targets_.find(move);
  if (found == targets_.end()) return;
  for (const MovePart& part : found->second) arriving_.erase(place(part.group, part.to));
  targets_.erase(found);
}

void ModelledInstance::arrived(const Transfer& transfer) {
  if (pass_ && pass_->arrived(transfer)) plan_end();
}

// What the pass reads does not come.
void ModelledInstance::failed(const Transfer& transfer) {
  if (pass_ && pass_->failed(transfer)) plan_end();
}

// --- passes ---

void ModelledInstance::start_pass(const Plan& plan) {
  LOCI_CHECK(!pass_, "one pass at a time");
  pass_is_counted_ = report_.requests.size() >= options_.warm_up && now() <= report_.counted_until;
  ++report_.passes;
  PassDone done{plan.pass->id, {}};
  std::uint64_t rows = 0;
  shapes_.clear();
  for (std::size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.pass->spans[i];
    const RequestRecord& record = clients_.record(plan.spans[i].request);
    shapes_.push_back({span.position, static_cast<std::uint32_t>(span.tokens.size()),
                       span.position >= record.prompt_tokens, plan.spans[i].sample});
    if (!shapes_.back().decode) report_.prompt_work += pass_model_.work(shapes_.back());
    rows += span.tokens.size();
    SpanOutcome& outcome = done.spans.emplace_back();
    if (plan.spans[i].sample) outcome.sample = clients_.next_token(plan.spans[i].request);
  }
  ledger_.pass(rows);
  pass_.emplace(std::move(done), pass_model_.time(shapes_), now(), options_.core.layers);
  for (std::size_t i = 0; i < plan.spans.size() && !arriving_.empty(); ++i) await(plan.pass->spans[i], i);
  if (!pass_->waits()) return plan_end();
  if (plan.pass->patience != kWaitsForEver)
    agenda_.add({now() + plan.pass->patience, Happens::kPatience, number_, plan.pass->id.value});
}

void ModelledInstance::await(const Span& span, std::size_t number) {
  for (std::uint32_t group = 0; group < span.tables.size(); ++group) {
    for (const SlotId slot : span.tables[group].blocks) {
      const auto found = arriving_.find(place(group, slot));
      if (found != arriving_.end()) pass_->read(number, found->second);
    }
  }
}

void ModelledInstance::plan_end() {
  agenda_.add({pass_->ends(now()), Happens::kPassEnd, number_, pass_->done().pass.value});
}

void ModelledInstance::lose_patience(std::uint64_t id) {
  if (!pass_ || pass_->done().pass.value != id || !pass_->waits()) return;
  pass_->give_up();
  plan_end();
}

void ModelledInstance::end_pass(std::uint64_t id) {
  LOCI_CHECK(pass_ && pass_->done().pass.value == id, "the pass that ends runs");
  const RunningPass pass = std::move(*pass_);
  pass_.reset();
  report_.poisoned_spans += pass.failed_spans();
  if (pass_is_counted_) {
    report_.prompt_time += pass.time().prompts;
    report_.decode_time += pass.time().decodes;
    report_.load_wait += now() - pass.began() - pass.time().total();
  }
  step(pass.done());
}

// --- processes ---

void ModelledInstance::add_counts() {
  const CoreStats stats = core_.stats();
  report_.suspensions += stats.suspensions_total;
  report_.recovered += stats.recovered_total;
}

void ModelledInstance::die() {
  ledger_.check(core_.stats());
  ledger_.restart();
  ++report_.restarts;
  add_counts();
  for (const Transfer& transfer : links_.drop(now())) {
    for (const std::uint64_t move : transfer.moves) {
      const auto write = writes_.find(move);
      if (write != writes_.end() && faults_.is_written()) disk_.end(write->second, now());
    }
  }
  writes_.clear();
  gives_.clear();
  arriving_.clear();
  targets_.clear();
  outbox_ = {};
  if (pass_) report_.poisoned_spans += pass_->failed_spans();
  pass_.reset();
  feed_.reset();
  published_ = false;
  agenda_.drop_process(number_);
  ++ticks_;
  lives_ = false;
  core_ = Core::make(options_.core).value();
}

void ModelledInstance::come_back(DiskAfterDeath disk) {
  lives_ = true;
  ++process_;
  if (disk == DiskAfterDeath::kLost) {
    disk_ = {};
    ++report_.disks_lost;
  }
  open_feed();
  schedule(Happens::kRestart, faults_.until_restart(), 0);
  step(disk_.entries(now()));
}

}  // namespace loci::sim
