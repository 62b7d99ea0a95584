// SPDX-License-Identifier: Apache-2.0
// Runs a core over a log.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loci/engine/log/event_log.h"
#include "loci/engine/log/event_log_codec.h"

namespace loci {
namespace {

// Knows what the core asks of its events, so that a log that breaks it is refused, not run.
class EventGate {
 public:
  EventGate(const CoreConfig& config, LoggedSecret secret) : config_(config), secret_(secret) {}

  Status admit(Nanos now, const Event& event) {
    if (now < now_) {
      return data_loss(
          fmt::format("expected a time of at least {} ns, that of the step before, found {} ns", now_, now));
    }
    now_ = now;
    if (const auto* arrival = std::get_if<Arrival>(&event)) {
      if (!live_.insert(arrival->request).second) return data_loss("a request arrives that is there already");
    } else if (const auto* done = std::get_if<PassDone>(&event)) {
      LOCI_RETURN_IF_ERROR(check(*done));
      passes_.pop_front();
    } else if (const auto* ended = std::get_if<MovesEnded>(&event)) {
      for (const MoveOutcome& move : ended->moves) {
        if (moves_.erase(move.move) == 0) return data_loss("a move ends that is not in flight");
        if (move.took < 0) return data_loss("a move takes less than no time");
      }
    } else if (const auto* recovered = std::get_if<Recovered>(&event)) {
      LOCI_RETURN_IF_ERROR(check(*recovered));
    } else if (secret_ == LoggedSecret::kLeftOut &&
               (std::holds_alternative<PeerQuestion>(event) || std::holds_alternative<PeerRead>(event))) {
      return unkeyed("a peer asked for blocks by keys");
    }
    return {};
  }

  void see(const Plan& plan) {
    for (const Output& output : plan.outputs) {
      if (const auto* finished = std::get_if<Finished>(&output)) live_.erase(finished->request);
      if (const auto* rejected = std::get_if<Rejected>(&output)) live_.erase(rejected->request);
    }
    for (const Move& move : plan.moves) moves_.insert(move.id);
    if (!plan.pass) return;
    passes_.emplace_back(plan.pass->id, plan.spans);
  }

 private:
  Status check(const PassDone& done) const {
    if (passes_.empty() || passes_.front().first != done.pass)
      return data_loss("a pass ends that is not the first in flight");
    const std::vector<SpanPlan>& spans = passes_.front().second;
    if (done.spans.size() != spans.size()) {
      return data_loss(fmt::format("the pass has {} spans, {} end", spans.size(), done.spans.size()));
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (done.spans[i].ok && spans[i].sample && !done.spans[i].sample &&
          done.spans[i].end == GrammarEnd::kGoesOn) {
        return data_loss(fmt::format("span {} lacks the sample that was asked for", i));
      }
    }
    return {};
  }

  static Status unkeyed(std::string_view what) {
    return {
        StatusCode::kUnimplemented,
        fmt::format("{}, which only the chain secret can check, and the log leaves it out; write one with "
                    "the option event_log_secret on",
                    what)};
  }

  // The disk names each of its slots once, and nothing after the last batch.
  Status check(const Recovered& recovered) {
    if (secret_ == LoggedSecret::kLeftOut && !recovered.entries.empty()) {
      return unkeyed("the disk held entries from before");
    }
    if (recovered_all_) return data_loss("the disk's entries go on behind their end");
    recovered_all_ = recovered.last;
    for (const RecoveredEntry& found : recovered.entries) {
      const std::size_t groups = config_.groups.size() + (config_.hidden.disk_blocks > 0 ? 1 : 0);
      if (!found.hole && found.group >= groups)
        return data_loss(fmt::format("an entry of group {} of {}", found.group, groups));
      const std::uint32_t slots = found.hole ? config_.hole_records
                                  : found.group == config_.groups.size()
                                      ? config_.hidden.disk_blocks
                                      : config_.groups[found.group].disk_blocks;
      if (found.slot.value >= slots)
        return data_loss(fmt::format("an entry in slot {} of {}", found.slot.value, slots));
      const std::uint32_t group = found.hole ? UINT32_MAX : found.group;
      if (!recovered_.emplace(group, found.slot).second)
        return data_loss(fmt::format("two entries in slot {}", found.slot.value));
    }
    return {};
  }

  const CoreConfig config_;
  const LoggedSecret secret_;
  Nanos now_ = 0;
  std::set<RequestId> live_;
  std::set<OperationId> moves_;  // in flight
  std::set<std::pair<std::uint32_t, SlotId>> recovered_;
  bool recovered_all_ = false;
  std::deque<std::pair<OperationId, std::vector<SpanPlan>>> passes_;  // in flight
};

}  // namespace

Result<ReplayReport> replay(const std::string& path, const ReplayListener& listener) {
  LOCI_ASSIGN_OR_RETURN(EventLogReader reader, EventLogReader::open(path));
  auto core = Core::make(reader.config());
  if (!core.ok()) return core.status().with_context(fmt::format("{}: the logged configuration", path));
  EventGate gate(reader.config(), reader.secret());
  ReplayReport report;
  while (true) {
    LOCI_ASSIGN_OR_RETURN(std::optional<LoggedStep> step, reader.next());
    if (!step) break;
    ++report.steps;
    const std::string where = fmt::format("step {}", report.steps);
    if (Status status = gate.admit(step->now, step->event); !status.ok()) return status.with_context(where);
    const Plan plan = core->step(step->now, step->event);
    gate.see(plan);
    report.compared += step->plan_digest ? 1 : 0;
    if (const std::uint64_t digest = plan_digest(plan); step->plan_digest && digest != *step->plan_digest) {
      return internal_error(fmt::format("{}: the replayed plan differs (digest {:016x}, logged {:016x})",
                                        where, digest, *step->plan_digest));
    }
    if (listener) listener(*step, plan);
  }
  report.truncated = reader.truncated();
  return report;
}

}  // namespace loci
