// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <numeric>

#include "loci/base/units.h"
#include "loci/sim/advice.h"

namespace loci::sim {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered run_json(const SizedRun& run) {
  Ordered json = {{"host_gb", run.host_gb}, {"disk_gb", run.disk_gb}, {"cost_hour", run.cost_hour}};
  json["ttft_s"] = run.ttft == kNever ? Ordered() : Ordered(static_cast<double>(run.ttft) / kNanosPerSecond);
  json["meets"] = run.meets;
  json["hit_rate"] = {{"of_turns", run.hits_of_turns},   {"of_returning_turns", run.hits_of_returning},
                      {"of_tokens_device", run.from[0]}, {"of_tokens_host", run.from[1]},
                      {"of_tokens_disk", run.from[2]},   {"of_tokens_peers", run.from[3]}};
  json["too_long"] = run.too_long;
  return json;
}

std::string seconds_text(Nanos time) {
  return time == kNever ? "never" : fmt::format("{:.3f}", static_cast<double>(time) / kNanosPerSecond);
}

std::string run_row(const char* name, const std::optional<SizedRun>& run) {
  if (!run) return {};
  const double all = std::accumulate(run->from.begin(), run->from.end(), 0.0);
  return fmt::format("{:<18}{:>10.6g}{:>10.6g}{:>12.4f}{:>10}{:>6}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n",
                     name, run->host_gb, run->disk_gb, run->cost_hour, seconds_text(run->ttft),
                     run->meets ? "yes" : "no", 100 * run->hits_of_returning, 100 * all, 100 * run->from[1],
                     100 * run->from[2]);
}

std::string verdict_text(const Advice& advice) {
  switch (advice.verdict) {
    case Verdict::kFound: return "the cheapest sizes on offer that meet it:";
    case Verdict::kFoundSoFar:
      return fmt::format("these sizes meet it; {} cheaper pairs were neither run nor ruled out in time:",
                         advice.open);
    case Verdict::kNoneOnOffer:
      return advice.all_on_device ? "no sizes on offer meet it; a device with memory for all state would:"
                                  : "no sizes on offer meet it; whether any memory would was not found out:";
    case Verdict::kComputing:
      return "no memory can: computing alone takes longer, even with all state in the device's memory:";
    case Verdict::kUnknown: break;
  }
  return "nothing was found out in time: take fewer requests (trace.requests)";
}

}  // namespace

Ordered advice_json(const Advice& advice, const Prices& prices, const TtftTarget& target) {
  Ordered json;
  json["verdict"] = verdict_name(advice.verdict);
  json["target"] = {{"ttft_s", static_cast<double>(target.most) / kNanosPerSecond},
                    {"percent", target.percent}};
  json["currency"] = prices.currency;
  json["pairs"] = {{"on_offer", advice.pairs}, {"open", advice.open}};
  json["runs"] = advice.runs;
  const auto add = [&](const char* name, const std::optional<SizedRun>& run) {
    json[name] = run ? run_json(*run) : Ordered();
  };
  add("cheapest", advice.cheapest);
  add("less_host", advice.less_host);
  add("less_disk", advice.less_disk);
  add("largest", advice.largest);
  // Of what costs nothing that is on offer, only the times and rates mean something.
  add("all_on_device", advice.all_on_device);
  return json;
}

std::string advice_text(const Advice& advice, const Prices& prices, const TtftTarget& target) {
  std::string text = fmt::format(
      "target: {:g} % of requests have their first token within {}; {} runs for {} pairs of "
      "sizes\n{}\n",
      target.percent, exact_duration(target.most), advice.runs, advice.pairs, verdict_text(advice));
  if (!advice.largest) return text;
  const std::string cost = prices.currency.empty() ? "an hour" : prices.currency + "/hour";
  text += fmt::format("\n{:<18}{:>10}{:>10}{:>12}{:>10}{:>6}{:>10}{:>10}{:>10}{:>10}\n", "", "host GB",
                      "disk GB", cost, fmt::format("p{:g}, s", target.percent), "met", "hits %", "cached %",
                      "host %", "disk %");
  text += run_row("cheapest", advice.cheapest);
  text += run_row("less host memory", advice.less_host);
  text += run_row("less disk", advice.less_disk);
  text += run_row("all on offer", advice.largest);
  if (advice.all_on_device) {
    text += fmt::format("{:<18}{:>42}{:>6}{:>10.1f}{:>10.1f}\n", "all on the device",
                        seconds_text(advice.all_on_device->ttft), advice.all_on_device->meets ? "yes" : "no",
                        100 * advice.all_on_device->hits_of_returning, 100 * advice.all_on_device->from[0]);
  }
  text +=
      "hits: turns that found at least half of their history, of those that have one; cached: prompt tokens "
      "that "
      "were found, of them in host memory and on the disk\n";
  if (advice.largest->too_long > 0)
    text += fmt::format("{} requests fit no memory or context and are left out\n",
                        format_count(advice.largest->too_long));
  return text;
}

}  // namespace loci::sim
