// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/telemetry/tier_metrics.h"

#include <array>
#include <string>
#include <utility>

namespace loci {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct NamedLink {
  const char* name;
  const MoverStats::Link* link;
};

MetricFamily family(const char* name, const char* help, MetricType type) {
  MetricFamily out;
  out.name = name;
  out.help = help;
  out.type = type;
  return out;
}

void add(MetricFamily& out, double value, const char* label = nullptr, const char* label_value = nullptr) {
  ClientMetric metric;
  (out.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  if (label != nullptr) metric.label.push_back({label, label_value});
  out.metric.push_back(std::move(metric));
}

void add_slots(const CoreStats& core, std::vector<MetricFamily>& out) {
  out.push_back(family("loci_tier_slots",
                       "Slots of blocks' parts in a tier; evictable ones hold what nobody uses now",
                       MetricType::Gauge));
  for (std::size_t i = 0; i < kTiers; ++i) {
    const std::string tier(tier_name(static_cast<Tier>(i)));
    for (const auto& [state, count] : {std::pair("total", core.tiers[i].slots),
                                       {"free", core.tiers[i].free},
                                       {"evictable", core.tiers[i].evictable}}) {
      add(out.back(), count, "tier", tier.c_str());
      out.back().metric.back().label.push_back({"state", state});
    }
  }
  out.push_back(
      family("loci_tier_evictions_total", "Blocks' parts evicted from a tier", MetricType::Counter));
  for (std::size_t i = 0; i < kTiers; ++i) {
    const std::string tier(tier_name(static_cast<Tier>(i)));
    add(out.back(), static_cast<double>(core.tiers[i].evictions_total), "tier", tier.c_str());
  }
}

void add_links(const MoverStats& stats, std::vector<MetricFamily>& out) {
  const std::array<NamedLink, 8> links = {{{"host_load", &stats.host_load},
                                           {"host_save", &stats.host_save},
                                           {"disk_load", &stats.disk_load},
                                           {"disk_save", &stats.disk_save},
                                           {"prefetch", &stats.prefetch},
                                           {"shared_load", &stats.shared_load},
                                           {"shared_save", &stats.shared_save},
                                           {"peer_serve", &stats.peer_serve}}};
  const auto each = [&](const char* name, const char* help, auto value) {
    out.push_back(family(name, help, MetricType::Counter));
    for (const NamedLink& named : links)
      add(out.back(), static_cast<double>(value(*named.link)), "link", named.name);
  };
  each("loci_tier_bytes_total", "Bytes of state moved between tiers",
       [](const auto& link) { return link.bytes_total; });
  each("loci_tier_seconds_total", "From the begin of each move to its end, summed; moves overlap",
       [](const auto& link) { return static_cast<double>(link.busy) * 1e-9; });
}

void add_disk(const DiskStoreStats& disk, std::vector<MetricFamily>& out) {
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    out.push_back(family(name, help, MetricType::Counter));
    add(out.back(), static_cast<double>(value));
  };
  counter("loci_disk_reads_total", "Reads of the disk tier", disk.reads_total);
  counter("loci_disk_read_bytes_total", "Bytes read from the disk tier", disk.read_bytes_total);
  counter("loci_disk_read_errors_total", "Reads that the disk refused or did not answer",
          disk.read_errors_total);
  counter("loci_disk_writes_total", "Writes to the disk tier", disk.writes_total);
  counter("loci_disk_write_bytes_total", "Bytes written to the disk tier", disk.write_bytes_total);
  counter("loci_disk_write_errors_total", "Writes that the disk refused or did not answer",
          disk.write_errors_total);
  counter("loci_disk_damaged_total", "Entries that did not verify and were dropped", disk.damaged_total);
  counter("loci_disk_foreign_total", "Entries of another model or version, found at start",
          disk.foreign_total);
  out.push_back(
      family("loci_disk_uncleared_records",
             "Records of deleted or replaced state that the disk has not cleared: it is tried again",
             MetricType::Gauge));
  add(out.back(), static_cast<double>(disk.uncleared_records));
}

// Of the store that servers share; a part is what a block left in a group of layers.
void add_shared(const SharedStoreStats& shared, std::vector<MetricFamily>& out) {
  out.push_back(family("loci_shared_up",
                       "Whether the shared store is asked: 0 after it failed, until it answers",
                       MetricType::Gauge));
  add(out.back(), shared.up ? 1.0 : 0.0);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    out.push_back(family(name, help, MetricType::Counter));
    add(out.back(), static_cast<double>(value));
  };
  counter("loci_shared_asks_total", "Requests for which the shared store was asked", shared.asks_total);
  counter("loci_shared_asks_failed_total", "Of them, those that it did not answer in time",
          shared.asks_failed_total);
  counter("loci_shared_failures_total", "Connections that failed or did not answer in time",
          shared.failures_total);
  counter("loci_shared_read_bytes_total", "Bytes read from the shared store", shared.bytes_read_total);
  counter("loci_shared_write_bytes_total", "Bytes written to the shared store", shared.bytes_written_total);
  counter("loci_shared_deletions_dropped_total",
          "Deletions of blocks that the shared store did not take: what they name stays there",
          shared.deletions_dropped_total);
  out.push_back(family("loci_shared_parts_total",
                       "Parts of blocks, by what became of them in the shared store", MetricType::Counter));
  for (const auto& [what, value] : {std::pair("asked", shared.parts_asked_total),
                                    {"found", shared.parts_found_total},
                                    {"read", shared.parts_read_total},
                                    {"gone", shared.parts_gone_total},
                                    {"damaged", shared.parts_damaged_total},
                                    {"written", shared.parts_written_total},
                                    {"present", shared.parts_present_total},
                                    {"refused", shared.parts_refused_total}})
    add(out.back(), static_cast<double>(value), "result", what);
}

// Of the state that other servers of the cluster have.
void add_peers(const PeerStats& peers, std::vector<MetricFamily>& out) {
  out.push_back(family("loci_peers", "Servers of the cluster that give the same state", MetricType::Gauge));
  add(out.back(), peers.up, "state", "up");
  add(out.back(), peers.known - peers.up, "state", "left_alone");
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    out.push_back(family(name, help, MetricType::Counter));
    add(out.back(), static_cast<double>(value));
  };
  counter("loci_peer_asks_total", "Questions which blocks a peer has", peers.asks_total);
  counter("loci_peer_failures_total", "Connections to peers that failed or did not answer in time",
          peers.failures_total);
  counter("loci_peer_read_bytes_total", "Bytes read from peers", peers.bytes_read_total);
  out.push_back(family("loci_peer_parts_total", "Parts of blocks, by what became of them at peers",
                       MetricType::Counter));
  for (const auto& [what, value] : {std::pair("found", peers.parts_found_total),
                                    {"read", peers.parts_read_total},
                                    {"gone", peers.parts_gone_total},
                                    {"damaged", peers.parts_damaged_total},
                                    {"failed", peers.parts_failed_total}})
    add(out.back(), static_cast<double>(value), "result", what);
}

// Of what fronts are told of prompts' state.
void add_feed(const FeedStats& feed, std::vector<MetricFamily>& out) {
  out.push_back(family("loci_feed_chunks", "Chunks of prompts' text whose state fronts are told of",
                       MetricType::Gauge));
  add(out.back(), static_cast<double>(feed.chunks));
  out.push_back(family("loci_feed_changes_total", "Changes of their tiers", MetricType::Counter));
  add(out.back(), static_cast<double>(feed.changes_total));
  out.push_back(family("loci_feed_gaps_total", "Questions for changes that were not known any more",
                       MetricType::Counter));
  add(out.back(), static_cast<double>(feed.gaps_total));
}

}  // namespace

std::vector<MetricFamily> tier_metrics(const TierSnapshot& snapshot) {
  std::vector<MetricFamily> out;
  std::uint64_t device = 0, host = 0, disk = 0;
  for (const CoreGroup& group : snapshot.groups) {
    device += group.block_count * group.block_bytes;
    host += group.host_blocks * group.block_bytes;
    disk += group.disk_blocks * group.block_bytes;
  }
  out.push_back(family("loci_tier_size_bytes", "State that a tier has room for", MetricType::Gauge));
  add(out.back(), static_cast<double>(device), "tier", "device");
  add(out.back(), static_cast<double>(host), "tier", "host");
  add(out.back(), static_cast<double>(disk), "tier", "disk");
  add_slots(snapshot.core, out);
  add_links(snapshot.mover, out);
  add_disk(snapshot.disk, out);
  if (snapshot.hidden.disk_blocks > 0) {
    out.push_back(family("loci_hidden_captures_lost_total",
                         "Blocks whose hidden states were not kept until they could be saved, by why",
                         MetricType::Counter));
    add(out.back(), static_cast<double>(snapshot.captures.displaced_total), "reason", "displaced");
    add(out.back(), static_cast<double>(snapshot.captures.unplaced_total), "reason", "no_place");
  }
  if (snapshot.groups.front().shared_blocks > 0 && snapshot.shared.is_there) add_shared(snapshot.shared, out);
  if (snapshot.shared.peers) add_peers(*snapshot.shared.peers, out);
  if (snapshot.feed) add_feed(*snapshot.feed, out);
  return out;
}

}  // namespace loci
