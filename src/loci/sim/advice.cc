// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "loci/base/units.h"
#include "loci/sim/json_text.h"
#include "loci/sim/report.h"

namespace loci::sim {
namespace {

using Json = nlohmann::json;

constexpr double kGiga = 1e9;
constexpr double kShareOfDevice = 0.9;  // of what the weights leave, as a server takes on a GPU
constexpr const char* kTierFields[] = {"host_gb", "host_tokens", "disk_gb", "disk_tokens"};

std::uint64_t tokens_of(const Trace& trace) {
  std::uint64_t tokens = 0;
  for (const Conversation& conversation : trace.conversations) {
    for (const Turn& turn : conversation.turns) tokens += turn.reply_tokens + tokens_of(turn.pieces);
  }
  return tokens;
}

// Tokens for which blocks of their own hold all state of the trace: a request's last block may be filled in
// part.
std::uint64_t block_tokens_of(const Trace& trace) {
  return tokens_of(trace) + trace.requests() * kBlockTokens;
}

class Adviser {
 public:
  Adviser(const AdviceInput& input, const WorldOptions& world, const std::atomic<bool>& stop,
          const AdviceListener& listener)
      : in_(input),
        machines_(std::max(1u, world.cluster.instances)),
        costs_(input.prices.costs(machines_)),
        state_gb_(std::ceil(state_gb(input.trace, world.model))),
        all_tokens_(std::max<std::uint64_t>(block_tokens_of(input.trace), world.core.context_tokens)),
        stop_(stop),
        listener_(listener) {}

  Result<Advice> run() {
    const TierSizes largest{costs_.host.size() - 1, costs_.disk.size() - 1};
    Advice advice;
    advice.pairs = costs_.host.size() * costs_.disk.size();
    const TierSearch search =
        find_cheapest(costs_, [this](TierSizes sizes, std::size_t open) { return meets(sizes, open); });
    LOCI_RETURN_IF_ERROR(status_);
    advice.open = search.open;
    advice.largest = tried(largest);
    if (search.cheapest) {
      advice.verdict = search.open == 0 ? Verdict::kFound : Verdict::kFoundSoFar;
      const auto [host, disk] = *search.cheapest;
      advice.cheapest = tried(*search.cheapest);
      if (host > 0) advice.less_host = tried({host - 1, disk});
      if (disk > 0) advice.less_disk = tried({host, disk - 1});
    } else if (advice.largest) {
      advice.all_on_device = measure(all_on_device(), {.all_on_device = true}, 0);
      LOCI_RETURN_IF_ERROR(status_);
      const bool misses = advice.all_on_device && !advice.all_on_device->meets;
      const bool holds_all = all_tokens_ <= in_.device_tokens_max;
      advice.verdict = misses && holds_all ? Verdict::kComputing : Verdict::kNoneOnOffer;
      if (misses && !holds_all) advice.all_on_device.reset();
    }
    advice.runs = runs_;
    return advice;
  }

 private:
  std::optional<SizedRun> tried(TierSizes sizes) const {
    const auto at = tried_.find(sizes);
    return at == tried_.end() ? std::nullopt : std::optional(at->second);
  }

  std::optional<bool> meets(TierSizes sizes, std::size_t open) {
    SizedRun run{.host_gb = in_.prices.host_gb[sizes.host], .disk_gb = in_.prices.disk_gb[sizes.disk]};
    run.cost_hour = machines_ * in_.prices.machine_hour + costs_.of(sizes);
    const std::optional<SizedRun> done = measure(with_tiers(run), run, open);
    if (!done) return std::nullopt;
    tried_.emplace(sizes, *done);
    return done->meets;
  }

  // What a tier cannot fill makes no difference, and takes this machine's memory.
  Json with_tiers(const SizedRun& run) const {
    Json json = in_.scenario;
    json["memory"]["host_gb"] = std::min(run.host_gb, state_gb_);
    json["memory"]["disk_gb"] = std::min(run.disk_gb, state_gb_);
    return json;
  }
  Json all_on_device() const {
    Json json = in_.scenario;
    json["memory"].erase("device_gb");
    json["memory"]["device_tokens"] = std::min(all_tokens_, in_.device_tokens_max);
    json["memory"]["device_keeps"] = true;
    return json;
  }

  // Nothing where it was stopped, or failed.
  std::optional<SizedRun> measure(const Json& json, SizedRun run, std::size_t open) {
    if (stop_) return std::nullopt;
    listener_(run, open, nullptr);
    status_ = simulate(json, run);
    if (!status_.ok() || stop_) return std::nullopt;
    ++runs_;
    listener_(run, open, &run);
    return run;
  }

  Status simulate(const Json& json, SizedRun& run) const {
    LOCI_ASSIGN_OR_RETURN(Scenario scenario, parse_scenario(json, in_.file));
    scenario.world.stop = &stop_;
    LOCI_ASSIGN_OR_RETURN(const WorldReport report, run_world(in_.trace, scenario.world));
    if (report.stopped) return {};
    const nlohmann::ordered_json figures = report_json(in_.trace, scenario.world, report);
    const std::optional<Nanos> ttft = ttft_within(report, scenario.world.warm_up, in_.target.percent);
    run.too_long = figures["outcomes"][outcome_name(Outcome::kTooLong)].get<std::uint64_t>();
    if (!ttft) {
      return invalid_argument(fmt::format("{}: expected requests whose time to the first token counts, found "
                                          "none: {} fit no memory or context, the first {} are the warm-up",
                                          in_.file, run.too_long, scenario.world.warm_up),
                              "trace");
    }
    run.ttft = *ttft;
    run.meets = *ttft <= in_.target.most;
    run.hits_of_turns = figures["hit_rate"]["of_turns"].get<double>();
    run.hits_of_returning = figures["hit_rate"]["of_returning_turns"].get<double>();
    const double prompt = std::max(1.0, figures["tokens"]["prompt"].get<double>());
    run.from = {figures["tokens"]["from_device"].get<double>() / prompt,
                figures["tokens"]["from_host"].get<double>() / prompt,
                figures["tokens"]["from_disk"].get<double>() / prompt,
                figures["tokens"]["from_peers"].get<double>() / prompt};
    return {};
  }

  const AdviceInput& in_;
  const std::uint32_t machines_;
  const TierCosts costs_;
  const double state_gb_;
  const std::uint64_t all_tokens_;  // that a device's memory must have room for to hold all state
  const std::atomic<bool>& stop_;
  const AdviceListener& listener_;
  std::map<TierSizes, SizedRun> tried_;
  std::size_t runs_ = 0;
  Status status_;
};

}  // namespace

Result<TtftTarget> parse_ttft_target(std::string_view text) {
  const Status wrong = invalid_argument(
      fmt::format("expected a time and a percentage above 0 and below 100, as in 2s@p90, found '{}'", text),
      "ttft");
  const std::size_t at = text.find("@p");
  if (at == text.npos) return wrong;
  const Result<std::int64_t> time = parse_duration(text.substr(0, at), "ttft");
  if (!time.ok() || *time <= 0) return wrong;
  TtftTarget target{.most = *time};
  const char* end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data() + at + 2, end, target.percent, std::chars_format::fixed);
  if (error != std::errc{} || rest != end || !(target.percent > 0 && target.percent < 100)) return wrong;
  return target;
}

std::optional<Nanos> ttft_within(const WorldReport& report, std::uint64_t warm_up, double percent) {
  std::vector<Nanos> times;
  for (std::size_t i = warm_up; i < report.requests.size(); ++i) {
    const RequestRecord& record = report.requests[i];
    if (record.arrived > report.counted_until) continue;
    const bool began = record.first_token != kNever;
    if (!began && (record.outcome == Outcome::kTooLong || record.outcome == Outcome::kCancelled)) continue;
    times.push_back(began ? record.first_token - record.arrived : kNever);
  }
  if (times.empty()) return std::nullopt;
  std::sort(times.begin(), times.end());
  const auto rank = static_cast<std::size_t>(std::ceil(static_cast<double>(times.size()) * percent / 100));
  return times[std::clamp<std::size_t>(rank, 1, times.size()) - 1];
}

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"found", "found_so_far", "none_on_offer", "computing_takes_longer",
                                    "unknown"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Result<Scenario> parse_open_scenario(Json& json, const std::string& file) {
  if (!json.is_object()) return parse_scenario(json, file);  // which says so
  if (!json.contains("memory")) json["memory"] = Json::object();
  Json& memory = json["memory"];
  for (const char* field : kTierFields) {
    if (memory.is_object() && memory.contains(field)) {
      return invalid_argument(
          fmt::format("{}: memory.{}: expected nothing, since this size is what is asked, found {}", file,
                      field, shown(memory[field])),
          fmt::format("memory.{}", field));
    }
  }
  if (json.contains("engine") && json["engine"].is_object() &&
      json["engine"].value("hidden", Json()) == "on") {
    return invalid_argument(
        fmt::format("{}: engine.hidden: expected off or auto, since sizes without a disk are run too, found "
                    "\"on\"",
                    file),
        "engine.hidden");
  }
  LOCI_ASSIGN_OR_RETURN(Scenario scenario, parse_scenario(json, file));
  if (memory.contains("device_gb") || memory.contains("device_tokens")) return scenario;
  const double bytes = scenario.world.machine.memory_bytes;
  const double weights = scenario.world.model.weight_bytes;
  if (bytes <= weights) {
    return invalid_argument(
        fmt::format(
            "{}: memory.device_gb: expected the device's memory for state, found nothing, and {}", file,
            bytes > 0
                ? fmt::format("the model's weights of {:.1f} GB leave nothing of the machine's {:.1f} GB",
                              weights / kGiga, bytes / kGiga)
                : "the machine's profile does not tell it"),
        "memory.device_gb");
  }
  memory["device_gb"] = kShareOfDevice * (bytes - weights) / kGiga;
  return parse_scenario(json, file);
}

Status check_offer(const Prices& prices, const std::string& file, const Scenario& scenario) {
  if (!scenario.baseline) return {};
  const auto& [name, set] = *scenario.baseline;
  const auto check = [&](bool has_tier, const char* field, const std::vector<double>& sizes) -> Status {
    if (has_tier || sizes.back() == 0) return {};
    return invalid_argument(
        fmt::format("{}: {}: expected [0], since {} has no such tier, found sizes up to {:g}", file, field,
                    name, sizes.back()),
        field);
  };
  LOCI_RETURN_IF_ERROR(check(set.host_tier, "host_gb", prices.host_gb));
  return check(set.disk_tier, "disk_gb", prices.disk_gb);
}

double state_gb(const Trace& trace, const ModelShape& model) {
  return static_cast<double>(block_tokens_of(trace)) * static_cast<double>(model.token_bytes()) / kGiga;
}

Result<Advice> advise(const AdviceInput& input, const std::atomic<bool>& stop,
                      const AdviceListener& listener) {
  LOCI_ASSIGN_OR_RETURN(const Scenario scenario, parse_scenario(input.scenario, input.file));
  return Adviser(input, scenario.world, stop, listener).run();
}

}  // namespace loci::sim
