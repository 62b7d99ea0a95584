// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/core_metrics.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace loci {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<std::string_view, kMoveResults> kResults = {
    "done", "damaged", "failed", "too_slow", "not_captured", "gone"};  // MoveResult

MetricFamily& family(std::vector<MetricFamily>& out, const char* name, const char* help, MetricType type) {
  MetricFamily one;
  one.name = name;
  one.help = help;
  one.type = type;
  out.push_back(std::move(one));
  return out.back();
}

using Labels = std::vector<ClientMetric::Label>;

void add(MetricFamily& out, std::uint64_t value, Labels labels = {}) {
  ClientMetric metric;
  (out.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
  metric.label = std::move(labels);
  out.metric.push_back(std::move(metric));
}

void add_sources(const CoreStats& stats, std::vector<MetricFamily>& out) {
  MetricFamily& context = family(out, "loci_context_tokens_total",
                                 "Tokens of prompts, by where their state came from", MetricType::Counter);
  std::uint64_t computed = 0;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    add(context, stats.tokens_from_total[tier],
        {{"source", std::string(tier_name(static_cast<Tier>(tier)))}});
  }
  for (const std::uint64_t tokens : stats.tokens_missed_total) computed += tokens;
  add(context, computed, {{"source", "computed"}});
  MetricFamily& missed = family(out, "loci_miss_tokens_total",
                                "Tokens of prompts that were computed, by the reason", MetricType::Counter);
  for (std::size_t i = 0; i < kMissReasons; ++i) {
    add(missed, stats.tokens_missed_total[i],
        {{"reason", std::string(miss_reason_name(static_cast<MissReason>(i)))}});
  }
}

void add_moves(const CoreStats& stats, std::vector<MetricFamily>& out) {
  MetricFamily& moves = family(out, "loci_moves_total", "Moves of a block between tiers, by how they ended",
                               MetricType::Counter);
  for (std::size_t link = 0; link < kCoreLinks; ++link) {
    const std::string name(core_link_name(static_cast<CoreLink>(link)));
    for (std::size_t result = 0; result < kResults.size(); ++result) {
      add(moves, stats.moves[link].ended[result],
          {{"link", name}, {"result", std::string(kResults[result])}});
    }
  }
  add(family(out, "loci_hidden_share_percent",
             "Of the blocks that fill, those that are saved as hidden states now", MetricType::Gauge),
      stats.hidden_percent);
  MetricFamily& hidden =
      family(out, "loci_hidden_blocks_total",
             "Blocks that went to the disk, or came from it, as hidden states", MetricType::Counter);
  add(hidden, stats.hidden_saved_total, {{"link", "disk_save"}});
  add(hidden, stats.hidden_loaded_total, {{"link", "disk_load"}});
  add(family(out, "loci_moves_in_flight", "Moves that were planned and have not ended", MetricType::Gauge),
      stats.moves_in_flight);
  add(family(out, "loci_saves_waiting", "Blocks that wait to be saved to a lower tier", MetricType::Gauge),
      stats.saves_waiting);
  add(family(out, "loci_partial_blocks_saved_total",
             "Ends of sequences that were saved, less than a block each", MetricType::Counter),
      stats.partial_saved_total);
  add(family(out, "loci_saves_dropped_total", "Saves given up because too many waited", MetricType::Counter),
      stats.saves_dropped_total);
  add(family(out, "loci_recovering",
             "1 from the start until all that the disk has from before is taken over, else 0",
             MetricType::Gauge),
      stats.recovers ? 1 : 0);
  add(family(out, "loci_recovered_entries_total", "Entries of the disk that were taken over after a start",
             MetricType::Counter),
      stats.recovered_total);
  add(family(out, "loci_orphaned_entries_total",
             "Entries of the disk that were not: what they follow is gone, or they are too old",
             MetricType::Counter),
      stats.orphans_total);
  add(family(out, "loci_deletions_waiting", "Deleted sequences whose state something still uses",
             MetricType::Gauge),
      stats.forgets_waiting);
  add(family(out, "loci_deletions_given_up_total",
             "Deleted sequences whose state was left to eviction because too many waited",
             MetricType::Counter),
      stats.forgets_given_up_total);
}

}  // namespace

std::vector<MetricFamily> core_metrics(const CoreStats& stats) {
  std::vector<MetricFamily> out;
  add_sources(stats, out);
  add_moves(stats, out);
  add(family(out, "loci_given_back_blocks_total",
             "Blocks of device memory that went back to the system because it was short of memory",
             MetricType::Counter),
      stats.given_back_total);
  return out;
}

}  // namespace loci
