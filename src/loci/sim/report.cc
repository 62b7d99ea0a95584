// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace loci::sim {
namespace {

using Ordered = nlohmann::ordered_json;

double seconds(Nanos time) { return static_cast<double>(time) * 1e-9; }

double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

Ordered summary(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const auto at = [&](std::size_t percent) {
    return values.empty() ? 0 : values[(values.size() * percent + 99) / 100 - 1];
  };
  return {{"mean", ratio(sum, static_cast<double>(values.size()))},
          {"p50", at(50)},
          {"p90", at(90)},
          {"p99", at(99)}};
}

constexpr std::size_t kListed = 10;

// The prompts that fit no memory or context: how many, and the first of them.
Ordered too_long_json(const WorldReport& report) {
  std::uint64_t prompts = 0, after = 0;
  Ordered first = Ordered::array();
  for (const RequestRecord& record : report.requests) {
    if (record.outcome != Outcome::kTooLong) continue;
    if (record.prompt_tokens == 0) {
      ++after;
    } else if (++prompts <= kListed) {
      first.push_back({{"conversation", record.conversation},
                       {"turn", record.turn},
                       {"prompt_tokens", record.prompt_tokens}});
    }
  }
  return {{"prompts", prompts}, {"turns_that_went_on_from_them", after}, {"first", std::move(first)}};
}

// Sums over the requests after the warm-up.
struct Sums {
  std::array<std::uint64_t, kOutcomes> outcomes{};
  std::uint64_t counted = 0, prompt = 0, history = 0, reused = 0, reply = 0, computed = 0;
  std::array<std::uint64_t, kTiers> from{};
  std::uint64_t hidden = 0;
  std::uint64_t returning = 0, hits = 0, host_hits = 0;
  Nanos first = kNever, last = 0;
  std::uint64_t done = 0, said = 0;  // requests, and tokens of replies, of the throughput
  std::vector<double> from_arrival, from_admission, waited, lasted, per_token, between_tokens, pauses;
};

void add(const RequestRecord& record, Sums& sums) {
  ++sums.counted;
  if (record.admitted == kNever) return;
  sums.prompt += record.prompt_tokens;
  sums.reply += record.reply_tokens;
  sums.said += record.reply_tokens;
  std::uint32_t cached = 0;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    sums.from[tier] += record.from[tier];
    cached += record.from[tier];
  }
  sums.hidden += record.hidden;
  // What was found could be found: others may have said it since the request arrived.
  const std::uint32_t history = std::max(record.history_tokens, cached / kBlockTokens * kBlockTokens);
  sums.history += history;
  sums.reused += std::min(cached, history);
  sums.computed += record.prompt_tokens - std::min(record.prompt_tokens, cached);
  sums.first = std::min(sums.first, record.arrived);
  if (record.moved > 0) sums.pauses.push_back(seconds(record.pause));
  if (record.turn > 0 || history > 0) {
    ++sums.returning;
    const bool hit = cached > 0 && std::uint64_t{cached} * 2 >= history;
    sums.hits += hit;
    sums.host_hits += hit && record.from[2] * 2 < cached;
  }
  sums.waited.push_back(seconds(record.admitted - record.arrived));
  if (record.first_token == kNever) return;
  sums.from_arrival.push_back(seconds(record.first_token - record.arrived));
  sums.from_admission.push_back(seconds(record.first_token - record.admitted));
  if (record.outcome != Outcome::kDone) return;
  sums.last = std::max(sums.last, record.ended);
  ++sums.done;
  sums.lasted.push_back(seconds(record.ended - record.arrived));
  sums.per_token.push_back(ratio(seconds(record.ended - record.arrived), record.reply_tokens));
  if (record.reply_tokens > 1)
    sums.between_tokens.push_back(seconds(record.ended - record.first_token) / (record.reply_tokens - 1));
}

// What was done from the first counted arrival to the end of the counted time, whenever it arrived. A run
// that ends by itself needs no such end: there all that counts is done in the end.
void count_throughput(const WorldReport& report, Sums& sums) {
  if (report.counted_until == kNever || sums.first == kNever) return;
  sums.last = report.counted_until;
  sums.done = sums.said = 0;
  for (const RequestRecord& record : report.requests) {
    if (record.outcome != Outcome::kDone || record.ended < sums.first || record.ended > sums.last) continue;
    ++sums.done;
    sums.said += record.reply_tokens;
  }
}

Ordered tokens_json(const Sums& sums) {
  const double prompt = static_cast<double>(sums.prompt);
  return {{"prompt", sums.prompt},
          {"history", sums.history},
          {"computed", sums.computed},
          {"reply", sums.reply},
          {"from_device", sums.from[0]},
          {"from_host", sums.from[1]},
          {"from_disk", sums.from[2]},
          {"from_disk_hidden", sums.hidden},
          {"from_peers", sums.from[3]},
          {"share_reusable", ratio(static_cast<double>(sums.history), prompt)},
          {"share_cached",
           ratio(static_cast<double>(sums.from[0] + sums.from[1] + sums.from[2] + sums.from[3]), prompt)},
          {"share_of_history_reused",
           ratio(static_cast<double>(sums.reused), static_cast<double>(sums.history))}};
}

Ordered cluster_json(const WorldOptions& options, const ClusterReport& report, Sums& sums) {
  Ordered json;
  json["instances"] = options.cluster.instances;
  json["fronts"] = options.cluster.fronts;
  Ordered& chosen = json["chosen"];
  for (std::size_t i = 0; i < kRoutedWhys; ++i)
    chosen[std::string(routed_why_name(static_cast<RoutedWhy>(i)))] = report.chosen[i];
  json["requests_moved"] = report.moved;
  json["requests_lost"] = report.lost;
  json["connections_refused"] = report.refused;
  if (options.cluster.prefills > 0)
    json["prefills"] = {{"members", options.cluster.prefills},
                        {"done", report.prefilled},
                        {"failed", report.prefills_failed},
                        {"read_early", report.read_early}};
  json["reply_tokens_again"] = report.tokens_again;
  json["prompt_tokens_again"] = report.prompts_again;
  json["pause_of_moved_s"] = summary(sums.pauses);
  json["feeds"] = {
      {"changes", report.feed_changes}, {"gaps", report.feed_gaps}, {"broken", report.feeds_broken}};
  json["peers"] = {{"asks", report.peer_asks},
                   {"blocks", report.peer_blocks},
                   {"blocks_gone", report.peer_blocks_gone},
                   {"bytes_given", report.peer_bytes_given},
                   {"bytes_got", report.peer_bytes_got},
                   {"bytes_lost", report.peer_bytes_lost}};
  return json;
}

}  // namespace

Ordered report_json(const Trace& trace, const WorldOptions& options, const WorldReport& report) {
  Sums sums;
  std::array<std::uint64_t, kOutcomes> outcomes{};
  for (std::size_t i = 0; i < report.requests.size(); ++i) {
    ++outcomes[static_cast<std::size_t>(report.requests[i].outcome)];
    if (i >= options.warm_up && report.requests[i].arrived <= report.counted_until)
      add(report.requests[i], sums);
  }
  count_throughput(report, sums);
  Ordered json;
  json["workload"] = {{"name", trace.name}, {"requests", trace.requests()}, {"notes", trace.notes}};
  Ordered& ends = json["outcomes"];
  for (std::size_t i = 0; i < kOutcomes; ++i) ends[outcome_name(static_cast<Outcome>(i))] = outcomes[i];
  if (outcomes[static_cast<std::size_t>(Outcome::kTooLong)] > 0) json["too_long"] = too_long_json(report);
  json["stopped"] = report.stopped;
  json["counted_requests"] = sums.counted;
  json["tokens"] = tokens_json(sums);
  const double hits = static_cast<double>(sums.hits);
  json["hit_rate"] = {{"of_turns", ratio(hits, static_cast<double>(sums.counted))},
                      {"of_returning_turns", ratio(hits, static_cast<double>(sums.returning))},
                      {"of_hits_without_disk", ratio(static_cast<double>(sums.host_hits), hits)}};
  json["ttft_from_arrival_s"] = summary(sums.from_arrival);
  json["ttft_from_admission_s"] = summary(sums.from_admission);
  json["queued_s"] = summary(sums.waited);
  json["latency_s"] = summary(sums.lasted);
  json["latency_per_token_s"] = summary(sums.per_token);
  json["between_tokens_s"] = summary(sums.between_tokens);
  const double lasted = sums.first == kNever ? 0 : seconds(std::max<Nanos>(0, sums.last - sums.first));
  const Nanos hidden = report.projecting_time + report.capture_wait;
  const Nanos busy = report.prompt_time + report.decode_time + hidden + report.load_wait;
  json["throughput"] = {{"requests_per_s", ratio(static_cast<double>(sums.done), lasted)},
                        {"reply_tokens_per_s", ratio(static_cast<double>(sums.said), lasted)},
                        {"prompt_tokens_per_busy_s", ratio(static_cast<double>(sums.prompt),
                                                           seconds(report.prompt_time + report.load_wait))}};
  json["busy_s"] = {
      {"prompts", seconds(report.prompt_time)},        {"decodes", seconds(report.decode_time)},
      {"projecting", seconds(report.projecting_time)}, {"waits_for_captures", seconds(report.capture_wait)},
      {"waits_for_loads", seconds(report.load_wait)},  {"total", seconds(busy)}};
  json["duration_s"] = seconds(report.duration);
  json["passes"] = report.passes;
  json["suspensions"] = report.suspensions;
  json["poisoned_spans"] = report.poisoned_spans;
  if (options.faults.restarts > 0) {
    json["deaths"] = report.restarts;
    json["disks_lost"] = report.disks_lost;
  }
  if (const CoreHidden& forms = options.core.hidden; forms.disk_blocks > 0) {
    json["hidden"] = {{"share_percent", forms.share.percent},
                      {"from_tokens", forms.share.from_block * kBlockTokens},
                      {"blocks_saved", report.hidden_saved},
                      {"blocks_not_captured", report.hidden_not_captured},
                      {"blocks_loaded", report.hidden_loaded}};
  }
  if (options.cluster.instances > 0) json["cluster"] = cluster_json(options, report.cluster, sums);
  Ordered& moved = json["bytes_moved"];
  for (std::size_t link = 0; link < kCoreLinks; ++link)
    moved[std::string(core_link_name(static_cast<CoreLink>(link)))] = report.bytes_moved[link];
  json["digest"] = fmt::format("{:016x}", report.digest);
  return json;
}

void add_scenario(Ordered& report, const Scenario& scenario) {
  const CoreGroup& group = scenario.world.core.groups.front();
  const auto tier = [&](std::uint32_t blocks) -> Ordered {
    const std::uint64_t count = blocks;
    return {{"tokens", count * kBlockTokens}, {"bytes", count * group.block_bytes}};
  };
  if (!scenario.name.empty()) report["name"] = scenario.name;
  report["memory"] = {{"device", tier(group.block_count)},
                      {"host", tier(group.host_blocks)},
                      {"disk", tier(group.disk_blocks)}};
}

void add_log_passes(Ordered& report, const LogPasses& passes) {
  const auto kind = [](const LogPasses::Kind& of) -> Ordered {
    return {{"passes", of.passes}, {"took_s", seconds(of.took)}, {"modelled_s", seconds(of.modelled)}};
  };
  report["log"] = {{"decodes", kind(passes.decodes)},
                   {"prompts", kind(passes.prompts)},
                   {"projecting", kind(passes.projecting)},
                   {"beside_model_ms", 1e3 * seconds(passes.beside_model)}};
}

namespace {

std::string memory_text(const Ordered& memory) {
  std::string text;
  for (const auto& [tier, size] : memory.items()) {
    if (size["tokens"] == 0) continue;
    text += fmt::format("{}{} {} tokens ({:.1f} GB)", text.empty() ? "memory for state: " : ", ", tier,
                        size["tokens"].get<std::uint64_t>(), size["bytes"].get<double>() / 1e9);
  }
  return text + "\n";
}

std::string log_text(const Ordered& log) {
  const auto took = [&](const char* kind) { return log[kind]["took_s"].get<double>(); };
  const auto modelled = [&](const char* kind) { return log[kind]["modelled_s"].get<double>(); };
  std::string text = fmt::format(
      "the log's passes: with prompts {:.1f} s, by the model {:.1f}; of decodes alone {:.1f} s, by the model "
      "{:.1f}; a pass of decodes took {:+.2f} ms beside the model\n",
      took("prompts"), modelled("prompts"), took("decodes"), modelled("decodes"),
      log["beside_model_ms"].get<double>());
  if (took("projecting") > 0)
    text += fmt::format("the log's projecting: {:.1f} s, by the model {:.1f}\n", took("projecting"),
                        modelled("projecting"));
  return text;
}

std::string too_long_text(const Ordered& too_long) {
  const auto count = [&](const char* name) { return too_long[name].get<std::uint64_t>(); };
  std::string text = fmt::format("{} prompts fit no memory or context", count("prompts"));
  if (count("turns_that_went_on_from_them") > 0)
    text += fmt::format(", so {} turns that went on from them were not asked",
                        count("turns_that_went_on_from_them"));
  text += ":\n";
  for (const auto& one : too_long["first"]) {
    text += fmt::format("  conversation {}, turn {}: {} tokens\n", one["conversation"].get<std::uint64_t>(),
                        one["turn"].get<std::uint64_t>(), one["prompt_tokens"].get<std::uint64_t>());
  }
  if (count("prompts") > too_long["first"].size())
    text += fmt::format("  and {} more\n", count("prompts") - too_long["first"].size());
  return text;
}

std::string cluster_text(const Ordered& cluster) {
  const auto count = [&](const char* name) { return cluster[name].get<std::uint64_t>(); };
  std::string text = fmt::format("{} instances; requests by why theirs was chosen:", count("instances"));
  for (const auto& [why, chosen] : cluster["chosen"].items())
    text += fmt::format(" {} {}", why, chosen.get<std::uint64_t>());
  text += fmt::format("; {} blocks came from peers\n", cluster["peers"]["blocks"].get<std::uint64_t>());
  if (cluster.contains("prefills")) {
    const Ordered& prefills = cluster["prefills"];
    text += fmt::format(
        "{} prompts were computed by prefill members, {} were not; {} tokens were read meanwhile\n",
        prefills["done"].get<std::uint64_t>(), prefills["failed"].get<std::uint64_t>(),
        prefills["read_early"].get<std::uint64_t>());
  }
  if (count("requests_moved") + count("requests_lost") == 0) return text;
  return text +
         fmt::format(
             "{} times a request's instance died and another one went on, whose client waited {:.3f} s "
             "at the median; {} requests were lost\n",
             count("requests_moved"), cluster["pause_of_moved_s"]["p50"].get<double>(),
             count("requests_lost"));
}

}  // namespace

std::string file_text(const Ordered& report) {
  return report.dump(1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

std::string report_text(const Ordered& report) {
  std::string text;
  if (report.contains("name")) text += report["name"].get<std::string>() + "\n";
  for (const auto& note : report["workload"]["notes"]) text += "workload: " + note.get<std::string>() + "\n";
  if (report.contains("memory")) text += memory_text(report["memory"]);
  const auto number = [&](const char* a, const char* b) { return report[a][b].get<double>(); };
  text += fmt::format("{} of {} requests done, {} counted; virtual time {:.1f} s\n",
                      report["outcomes"]["done"].get<std::uint64_t>(),
                      report["workload"]["requests"].get<std::uint64_t>(),
                      report["counted_requests"].get<std::uint64_t>(), report["duration_s"].get<double>());
  text += fmt::format(
      "prompt tokens: {:.1f} % reusable, {:.1f} % cached; {:.1f} % of turns found their history "
      "({:.1f} % of returning ones)\n",
      100 * number("tokens", "share_reusable"), 100 * number("tokens", "share_cached"),
      100 * number("hit_rate", "of_turns"), 100 * number("hit_rate", "of_returning_turns"));
  for (const char* what : {"ttft_from_arrival_s", "ttft_from_admission_s", "latency_per_token_s"}) {
    text += fmt::format("{}: mean {:.4f}, p50 {:.4f}, p90 {:.4f}, p99 {:.4f}\n", what, number(what, "mean"),
                        number(what, "p50"), number(what, "p90"), number(what, "p99"));
  }
  text += fmt::format(
      "throughput: {:.3f} requests/s, {:.1f} reply tokens/s; busy {:.1f} s, of it prompts {:.1f}, "
      "decodes {:.1f}, waits for loads {:.1f}\n",
      number("throughput", "requests_per_s"), number("throughput", "reply_tokens_per_s"),
      number("busy_s", "total"), number("busy_s", "prompts"), number("busy_s", "decodes"),
      number("busy_s", "waits_for_loads"));
  if (report.contains("deaths"))
    text += fmt::format("{} processes ended, {} of them with their disk\n",
                        report["deaths"].get<std::uint64_t>(), report["disks_lost"].get<std::uint64_t>());
  if (report.contains("hidden")) {
    const Ordered& hidden = report["hidden"];
    const auto count = [&](const char* name) { return hidden[name].get<std::uint64_t>(); };
    text += fmt::format(
        "hidden states: {} % of the blocks behind {} tokens wanted; {} saved, {} not captured, {} loaded; "
        "projecting took {:.1f} s\n",
        count("share_percent"), count("from_tokens"), count("blocks_saved"), count("blocks_not_captured"),
        count("blocks_loaded"), number("busy_s", "projecting"));
  }
  if (report.contains("log")) text += log_text(report["log"]);
  if (report.contains("cluster")) text += cluster_text(report["cluster"]);
  for (const auto& [name, count] : report["outcomes"].items()) {
    if (name != "done" && count.get<std::uint64_t>() > 0)
      text += fmt::format("{}: {}\n", name, count.get<std::uint64_t>());
  }
  if (report.contains("too_long")) text += too_long_text(report["too_long"]);
  return text + "digest " + report["digest"].get<std::string>() + "\n";
}

}  // namespace loci::sim
