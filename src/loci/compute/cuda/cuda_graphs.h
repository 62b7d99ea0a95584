// SPDX-License-Identifier: Apache-2.0
// Decode steps as graphs: one for each bucket of batch sizes, captured at its first use and launched again
// with new descriptors. All that differs between steps is in device memory, at addresses that stay; rows
// between the batch and the bucket do nothing and write nowhere.
//
// Thread-compatible; by the thread that begins passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, ..., and `rows_max` itself.
std::vector<std::uint32_t> graph_buckets(std::uint32_t rows_max);

class DecodeGraphs {
 public:
  // Batches of at most `rows_max`; 0: no graphs.
  explicit DecodeGraphs(std::uint32_t rows_max);

  // The least bucket that has room; 0: none.
  std::uint32_t bucket_for(std::uint32_t rows) const;

  // Launches the bucket's graph, or captures it from what `issue` queues; the first time calls `issue` alone.
  // `generation` is of all that the graph's addresses point to: another one, and it is captured anew. Where
  // the device refuses the capture or the graph, `issue` is called instead, from then on; why is returned
  // once.
  Status launch(std::uint32_t bucket, std::uint32_t generation, Stream& stream,
                const std::function<void()>& issue);

 private:
  struct Captured {
    Graph graph;
    std::uint32_t generation = 0;
    bool issued = false;  // plainly
    bool plain = false;   // for good
  };
  std::vector<std::uint32_t> buckets_;
  std::vector<Captured> captured_;  // by the index of the bucket
};

}  // namespace loci::cuda
