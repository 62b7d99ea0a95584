// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/cuda_graphs.h"

#include <algorithm>
#include <utility>

namespace loci::cuda {

std::vector<std::uint32_t> graph_buckets(std::uint32_t rows_max) {
  std::vector<std::uint32_t> buckets;
  for (const std::uint32_t bucket : {1u, 2u, 4u, 8u}) {
    if (bucket < rows_max) buckets.push_back(bucket);
  }
  // Steps of a half and a whole: at most a third of the rows is padding.
  for (std::uint32_t power = 16; power < rows_max; power *= 2) {
    buckets.push_back(power);
    if (power + power / 2 < rows_max) buckets.push_back(power + power / 2);
  }
  if (rows_max > 0) buckets.push_back(rows_max);
  return buckets;
}

DecodeGraphs::DecodeGraphs(std::uint32_t rows_max)
    : buckets_(graph_buckets(rows_max)), captured_(buckets_.size()) {}

std::uint32_t DecodeGraphs::bucket_for(std::uint32_t rows) const {
  const auto found = std::lower_bound(buckets_.begin(), buckets_.end(), rows);
  return found == buckets_.end() ? 0 : *found;
}

Status DecodeGraphs::launch(std::uint32_t bucket, std::uint32_t generation, Stream& stream,
                            const std::function<void()>& issue) {
  const auto found = std::lower_bound(buckets_.begin(), buckets_.end(), bucket);
  Captured& captured = captured_[static_cast<std::size_t>(found - buckets_.begin())];
  if (captured.plain || !std::exchange(captured.issued, true)) {
    issue();
    return {};
  }
  if (!captured.graph.present() || captured.generation != generation) {
    captured.graph = Graph();
    captured.generation = generation;
    if (stream.begin_capture()) {
      issue();
      captured.graph = stream.end_capture();
    }
  }
  // A graph that lacks a kernel is never launched: what ran before `issue` is called again would have run
  // twice.
  Status refused = stream.take_failure();
  if (refused.ok() && captured.graph.present()) {
    stream.launch(captured.graph);
    refused = stream.take_failure();
  }
  if (refused.ok()) return {};
  captured.plain = true;
  captured.graph = Graph();
  issue();
  return refused;
}

}  // namespace loci::cuda
