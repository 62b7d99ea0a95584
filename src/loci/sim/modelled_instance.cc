// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_instance.h"

#include <algorithm>
#include <array>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/sim/aside_id.h"

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
      faults_(faults_of(options.faults, number)),
      disk_(static_cast<std::uint32_t>(options.core.groups.size())),
      hidden_(options.core) {}

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
    case Happens::kLayer: bring_layers(one.which); break;
    case Happens::kPassEnd: end_pass(one.which); break;
    case Happens::kPatience: lose_patience(one.which); break;
    case Happens::kTick:
      if (one.which == ticks_) step(Tick{});
      break;
    case Happens::kCopied: {
      const auto ended = at_once_.extract(one.which);
      LOCI_CHECK(!ended.empty(), "a move that takes no link ends once");
      count_end(one.which, ended.mapped());
      end_move(one.which, ended.mapped());
      step(MovesEnded{{{OperationId(one.which), ended.mapped(), kDeviceCopy}}});
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
    case Happens::kPrefill:
    case Happens::kFeed:
    case Happens::kMembers: LOCI_CHECK(false, "an instance knows what happens to it");
  }
}

// --- steps ---

void ModelledInstance::arrive(Arrival arrival, const PromptNames& names) {
  const bool is_told = feed_ != nullptr && arrival.dropped.empty();
  if (is_told) arrival.keys = arrival_keys(options_.core, hasher_, *core_.public_chains(), arrival);
  const std::vector<ChainKey> keys = arrival.keys.blocks;
  const RequestId id = arrival.request;
  const std::size_t tokens = arrival.prompt.size();
  if (!options_.device_keeps) drop_kept();
  ledger_.arrived();
  const bool is_elsewhere = is_aside(id);  // its client is
  if (is_elsewhere) asides_.add(id, clients_.record(request_of(id)).prompt_tokens, nullptr);
  step(std::move(arrival));
  const bool is_refused = is_elsewhere ? !asides_.contains(id) : !clients_.is_live(id);
  if (!is_told || is_refused) return;
  feed_->prompt(names, keys, tokens);
  published_ = true;
}

void ModelledInstance::read_early(Arrival arrival, std::shared_ptr<EarlyReadPace> pace) {
  ledger_.arrived();
  asides_.add(arrival.request, static_cast<std::uint32_t>(arrival.prompt.size()), std::move(pace));
  step(std::move(arrival));
}

// What nobody needs leaves the device's memory, a few blocks in each step.
void ModelledInstance::drop_kept() {
  step(MemoryRoom{.slots = std::vector<std::uint32_t>(options_.core.groups.size(), 0)});
  for (std::uint64_t before = 0, given = core_.stats().given_back_total; given != before;) {
    before = given;
    step(Tick{});
    given = core_.stats().given_back_total;
  }
  step(MemoryRoom{});
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
  if (options_.check) {
    ledger_.check(core_.stats());
    hidden_.check(core_.stats().hidden_loaded_total);
  }
  std::move(plan.asks.begin(), plan.asks.end(), std::back_inserter(outbox_.asks));
  std::move(plan.peer_answers.begin(), plan.peer_answers.end(), std::back_inserter(outbox_.answers));
  std::move(plan.peer_gone.begin(), plan.peer_gone.end(), std::back_inserter(outbox_.gone));
  ++ticks_;
  // Without requests nothing is waited for but the ends of moves; old state would be looked for for ever.
  if (plan.wake_at != kNever && clients_.is_open())
    agenda_.add({std::max(plan.wake_at, now()), Happens::kTick, number_, ticks_});
}

void ModelledInstance::see(const Output& output) {
  const RequestId id = std::visit([](const auto& one) { return one.request; }, output);
  if (is_aside(id)) return asides_.see(output, ledger_);
  if (const auto* started = std::get_if<Started>(&output)) {
    clients_.see(*started);
  } else if (const auto* restored = std::get_if<Restored>(&output)) {
    ledger_.restored(clients_.record(restored->request).prompt_tokens, restored->sources.cached());
    clients_.see(*restored);
  } else if (const auto* sampled = std::get_if<TokenSampled>(&output)) {
    ledger_.sampled();
    ++report_.sampled;
    clients_.see(*sampled);
  } else if (const auto* finished = std::get_if<Finished>(&output)) {
    ledger_.ended();
    see(*finished);
  } else if (const auto* rejected = std::get_if<Rejected>(&output)) {
    ledger_.rejected(*rejected);
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
  if (move.form == StateForm::kHidden) return options_.core.hidden.block_bytes;  // of one group
  std::uint64_t bytes = 0;
  for (const MovePart& part : move.parts) bytes += options_.core.groups[part.group].block_bytes;
  if (move.peer) {
    const PeerRounds& rounds = move.peer->rounds;
    return bytes * rounds.end / rounds.of - bytes * rounds.begin / rounds.of;
  }
  return bytes;
}

// It takes no link.
void ModelledInstance::end_at_once(const Move& move, MoveResult result) {
  at_once_.emplace(move.id.value, result);
  agenda_.add({now() + kDeviceCopy, Happens::kCopied, number_, move.id.value});
}

// Hidden states are written from the block's capture, whose rows have left the device in their passes;
// directly they are on the disk since then.
void ModelledInstance::start_save(const Move& move, std::uint64_t bytes) {
  const bool hidden = move.form == StateForm::kHidden && move.to == Tier::kDisk;
  if (hidden && !hidden_.take_capture(move)) return end_at_once(move, MoveResult::kNotCaptured);
  report_.bytes_moved[static_cast<std::size_t>(link_of(move))] += bytes;
  if (move.to == Tier::kDisk && restarts()) {
    disk_.begin(move);
    writes_.emplace(move.id.value, move);
  }
  if (move.peer) gives_.emplace(move.id.value, *move.peer);
  if (hidden && options_.machine.hidden_saving == HiddenSaving::kDirect)
    return end_at_once(move, MoveResult::kDone);
  links_.add(now(), {move.from, move.to, bytes, {move.id.value}});
}

// The loads of one plan over one link travel together, as far as the plan says so; all else goes block by
// block.
void ModelledInstance::start_moves(const Plan& plan) {
  std::array<Transfer, kTiers> loads;
  std::array<OperationId, kTiers> together{};
  if (plan.hidden_share) hidden_.follow(*plan.hidden_share);
  for (const Move& move : plan.moves) {
    const std::uint64_t bytes = bytes_of(move);
    const Ledger::Load load{link_of(move), move.form, is_copy(move) ? 0 : bytes};
    ledger_.began(load);
    moving_.emplace(move.id.value, load);
    if (move.from == Tier::kDisk && restarts())
      LOCI_CHECK(disk_.has(move), "what is read from the disk is there, in its form");
    if (move.to != Tier::kDevice) {
      start_save(move, bytes);
      continue;
    }
    for (const MovePart& part : move.parts) hidden_.begin_load(part.to);
    if (is_copy(move)) {
      end_at_once(move, MoveResult::kDone);
      continue;
    }
    report_.bytes_moved[static_cast<std::size_t>(load.link)] += bytes;
    // A transfer goes by the number of its first move; from peers each block comes by itself.
    std::uint64_t transfer = move.id.value;
    if (move.from == Tier::kShared) {
      outbox_.loads.push_back(move);
    } else {
      const auto tier = static_cast<std::size_t>(move.from);
      Transfer& joint = loads[tier];
      if (std::exchange(together[tier], move.together) != move.together && !joint.moves.empty())
        links_.add(now(), std::exchange(joint, {}));
      joint.from = move.from;
      joint.bytes += bytes;
      joint.moves.push_back(move.id.value);
      transfer = joint.moves.front();
    }
    for (const MovePart& part : move.parts) arriving_[place(part.group, part.to)] = transfer;
    targets_[move.id.value] = move.parts;
  }
  for (Transfer& load : loads) {
    if (!load.moves.empty()) links_.add(now(), std::move(load));
  }
  watch_layers();
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
    if (watched_ == transfer.moves.front() && result == MoveResult::kDone)
      project_now(options_.core.layers - watched_layers_, watched_blocks_);
    for (const std::uint64_t move : transfer.moves) {
      ended.moves.push_back({OperationId(move), result, transfer.ended - transfer.began});
      count_end(move, result);
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
  watch_layers();
}

// The load that moves now, if some of it is to be projected as it comes.
void ModelledInstance::watch_layers() {
  const Transfer* moving = projects_on_arrival() ? links_.moving(Links::kDiskRead) : nullptr;
  if (moving == nullptr || moving->moves.front() == watched_ || moving->to != Tier::kDevice) return;
  watched_ = moving->moves.front();
  watched_layers_ = 0;
  watched_blocks_ = 0;
  for (const std::uint64_t move : moving->moves)
    watched_blocks_ += moving_.at(move).form == StateForm::kHidden;
  if (watched_blocks_ > 0) bring_layers(watched_);
}

void ModelledInstance::bring_layers(std::uint64_t transfer) {
  const Transfer* moving = links_.moving(Links::kDiskRead);
  if (moving == nullptr || moving->moves.front() != transfer) return;  // it has ended
  const Links::Layers layers = links_.layers(Links::kDiskRead, options_.core.layers, now());
  project_now(layers.brought - watched_layers_, watched_blocks_);
  watched_layers_ = layers.brought;
  if (layers.next != kNever) agenda_.add({layers.next, Happens::kLayer, number_, transfer});
}

// Before all else that the processor does.
void ModelledInstance::project_now(std::uint32_t layers, std::uint64_t blocks) {
  const Nanos work =
      pass_model_.projecting(blocks * kBlockTokens) * static_cast<Nanos>(layers) / options_.core.layers;
  if (work == 0) return;
  projector_free_ = std::max(projector_free_, now()) + work;
  if (is_counted()) report_.projecting_time += work;
  if (!pass_) return;
  pass_->delay(work);
  if (!pass_->waits()) plan_end();
}

void ModelledInstance::end_peer_load(OperationId move, MoveResult result, Nanos began, std::uint32_t rounds,
                                     Nanos first_round) {
  const auto parts = targets_.find(move.value);
  LOCI_CHECK(parts != targets_.end(), "what a peer gives was asked for, and ends once");
  const std::uint64_t bytes = moving_.at(move.value).bytes;
  count_end(move.value, result);
  end_move(move.value, result);
  Transfer transfer{Tier::kShared, Tier::kDevice, bytes, {move.value}, began, began, now()};
  transfer.rounds = rounds;
  transfer.first_round = first_round;
  result == MoveResult::kDone ? arrived(transfer) : failed(transfer);
  if (result != MoveResult::kDone) ++report_.failed_moves;
  step(MovesEnded{{{move, result, now() - began}}});
}

void ModelledInstance::count_end(std::uint64_t move, MoveResult result) {
  const auto ended = moving_.extract(move);
  LOCI_CHECK(!ended.empty(), "a move ends once");
  const Ledger::Load& load = ended.mapped();
  ledger_.ended(load, result);
  if (load.form != StateForm::kHidden) return;
  const bool done = result == MoveResult::kDone;
  if (load.link == CoreLink::kDiskSave) {
    report_.hidden_saved += done;
    report_.hidden_not_captured += result == MoveResult::kNotCaptured;
    return;
  }
  report_.hidden_loaded += done;
  for (const MovePart& part : targets_.at(move)) {
    if (!done) continue;
    if (projects_on_arrival())
      hidden_.come_projected();
    else if (hidden_.come(part.to))
      pass_->project();  // layer by layer, as it has come
  }
}

void ModelledInstance::end_move(std::uint64_t move, MoveResult result) {
  if (const auto write = writes_.find(move); write != writes_.end()) {
    if (result == MoveResult::kDone) disk_.end(write->second, now());
    writes_.erase(write);
  }
  const auto found = targets_.find(move);
  if (found == targets_.end()) return;
  for (const MovePart& part : found->second) {
    arriving_.erase(place(part.group, part.to));
    if (result != MoveResult::kDone) hidden_.unclaim(part.to);
  }
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
  pass_is_counted_ = is_counted();
  pass_ends_ = kNever;
  ++report_.passes;
  PassDone done{plan.pass->id, {}};
  std::uint64_t rows = 0;
  shapes_.clear();
  computing_.clear();
  for (std::size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.pass->spans[i];
    const RequestId request = plan.spans[i].request;
    const auto after = span.position + static_cast<std::uint32_t>(span.tokens.size());
    if (is_aside(request) && !plan.spans[i].sample) computing_.push_back({i, request, after});
    const RequestRecord& record = clients_.record(request_of(request));
    shapes_.push_back({span.position, static_cast<std::uint32_t>(span.tokens.size()),
                       span.position >= record.prompt_tokens, plan.spans[i].sample});
    if (!shapes_.back().decode) report_.prompt_work += pass_model_.work(shapes_.back());
    rows += span.tokens.size();
    SpanOutcome& outcome = done.spans.emplace_back();
    if (plan.spans[i].sample) outcome.sample = is_aside(request) ? TokenId(0) : clients_.next_token(request);
  }
  ledger_.pass(rows);
  const RunningPass::Hidden hidden{pass_model_.projecting(kBlockTokens),
                                   pass_model_.capturing(hidden_.begin(*plan.pass))};
  pass_.emplace(std::move(done), pass_model_.time(shapes_), hidden, now(), options_.core.layers);
  for (std::size_t i = 0; i < plan.spans.size() && !arriving_.empty(); ++i) await(plan.pass->spans[i], i);
  if (hidden_.is_on()) read(*plan.pass);
  if (projector_free_ > now()) pass_->delay(projector_free_ - now());
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

// What it reads of hidden states it projects, and what it writes replaces them. (There is one group.)
void ModelledInstance::read(const Pass& pass) {
  const auto project = [this](SlotId slot) {
    if (hidden_.project(slot)) pass_->project();
  };
  for (const BlockCopy& copy : pass.copies) {
    project(copy.from);
    hidden_.replace(copy.to);
  }
  for (const Span& span : pass.spans) {
    const BlockTable& table = span.tables.front();
    const std::uint32_t whole = std::max(span.position, table.write_from) / kBlockTokens;
    for (std::uint32_t block = 0; block < table.blocks.size(); ++block) {
      const SlotId slot = table.blocks[block];
      if (block >= whole) {
        hidden_.replace(slot);
      } else if (arriving_.contains(place(0, slot))) {
        hidden_.claim(slot);
      } else {
        project(slot);
      }
    }
  }
}

void ModelledInstance::plan_end() {
  const Nanos ends = pass_->ends(now());
  if (std::exchange(pass_ends_, ends) != ends)
    agenda_.add({ends, Happens::kPassEnd, number_, pass_->done().pass.value});
}

void ModelledInstance::lose_patience(std::uint64_t id) {
  if (!pass_ || pass_->done().pass.value != id || !pass_->waits()) return;
  pass_->give_up();
  hidden_.unclaim_all();
  plan_end();
}

void ModelledInstance::end_pass(std::uint64_t id) {
  LOCI_CHECK(pass_ && pass_->done().pass.value == id, "the pass that ends runs");
  if (now() < pass_ends_) return;  // something else came between
  RunningPass pass = std::move(*pass_);
  pass_.reset();
  hidden_.end(pass.done(), pass.projected_blocks());
  report_.poisoned_spans += pass.failed_spans();
  if (pass_is_counted_) {
    report_.prompt_time += pass.time().prompts;
    report_.decode_time += pass.time().decodes;
    report_.projecting_time += pass.projecting();
    report_.capture_wait += pass.lasts() - pass.time().total() - pass.projecting() - pass.delay();
    report_.load_wait += now() - pass.began() - pass.lasts();
  }
  for (const Computing& one : computing_) {
    if (pass.done().spans[one.span].ok) asides_.computed(one.request, one.tokens);
  }
  step(std::move(pass).take_done());
}

// --- processes ---

void ModelledInstance::add_counts() {
  const CoreStats stats = core_.stats();
  report_.suspensions += stats.suspensions_total;
  report_.recovered += stats.recovered_total;
}

void ModelledInstance::die() {
  ledger_.check(core_.stats());
  hidden_.check(core_.stats().hidden_loaded_total);
  ledger_.restart();
  hidden_ = ModelledHidden(options_.core);
  watched_ = 0;
  projector_free_ = 0;
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
  moving_.clear();
  at_once_.clear();
  outbox_ = {};
  asides_.clear();
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
    disk_ = DiskRecords(static_cast<std::uint32_t>(options_.core.groups.size()));
    ++report_.disks_lost;
  }
  open_feed();
  schedule(Happens::kRestart, faults_.until_restart(), 0);
  step(disk_.entries(now()));
}

}  // namespace loci::sim
