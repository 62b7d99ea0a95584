// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/log_passes.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "loci/engine/log/event_log.h"

namespace loci::sim {
namespace {

class PassReader {
 public:
  explicit PassReader(const PassModel& model) : model_(model) {}

  void see(const LoggedStep& step, const Plan& plan) {
    if (const auto* done = std::get_if<PassDone>(&step.event)) end(*done, step.now);
    if (const auto* ended = std::get_if<MovesEnded>(&step.event)) {
      for (const MoveOutcome& move : ended->moves) loading_.erase(move.move);
    }
    for (const Move& move : plan.moves) {
      if (move.to == Tier::kDevice) loading_.insert(move.id);
    }
    if (plan.pass) begin(plan, step.now);
  }

  LogPasses take() {
    const auto middle = beside_.begin() + static_cast<std::ptrdiff_t>(beside_.size() / 2);
    std::nth_element(beside_.begin(), middle, beside_.end());
    if (!beside_.empty()) passes_.beside_model = *middle;
    return passes_;
  }

 private:
  struct Flight {
    OperationId pass;
    Nanos began = 0, modelled = 0;
    bool prompts = false, waits = false;
  };

  void begin(const Plan& plan, Nanos now) {
    Flight flight{.pass = plan.pass->id, .began = now, .waits = !loading_.empty()};
    std::vector<SpanShape> shapes;
    for (std::size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.pass->spans[i];
      const auto count = static_cast<std::uint32_t>(span.tokens.size());
      // (A prompt of which one token is left costs what a decode does.)
      shapes.push_back({span.position, count, count == 1, plan.spans[i].sample});
      flight.prompts = flight.prompts || count > 1;
    }
    flight.modelled = model_.time(shapes).total();
    flights_.push_back(flight);
  }

  // (Of passes in flight the oldest ends first; one behind another began when that one ended.)
  void end(const PassDone& done, Nanos now) {
    if (flights_.empty() || flights_.front().pass != done.pass) return;
    const Flight flight = flights_.front();
    flights_.pop_front();
    const Nanos began = std::max(flight.began, std::exchange(last_end_, now));
    if (done.projected.slices > 0) {
      const auto slices = static_cast<Nanos>(done.projected.slices);
      add(passes_.projecting, done.projected.took,
          model_.projecting(kBlockTokens) * slices / static_cast<Nanos>(model_.shape().layers));
      return;
    }
    if (flight.waits) return;
    add(flight.prompts ? passes_.prompts : passes_.decodes, now - began, flight.modelled);
    if (!flight.prompts) beside_.push_back(now - began - flight.modelled);
  }

  static void add(LogPasses::Kind& kind, Nanos took, Nanos modelled) {
    ++kind.passes;
    kind.took += took;
    kind.modelled += modelled;
  }

  const PassModel& model_;
  LogPasses passes_;
  std::set<OperationId> loading_;
  std::deque<Flight> flights_;
  std::vector<Nanos> beside_;
  Nanos last_end_ = 0;
};

}  // namespace

Result<LogPasses> passes_of_log(const std::string& path, const PassModel& model) {
  PassReader reader(model);
  const Result<ReplayReport> replayed =
      replay(path, [&](const LoggedStep& step, const Plan& plan) { reader.see(step, plan); });
  if (!replayed.ok()) {
    const Status& status = replayed.status();
    return status.message().starts_with(path) ? status : status.with_context(path);
  }
  return reader.take();
}

}  // namespace loci::sim
