// SPDX-License-Identifier: Apache-2.0
// Decode steps as graphs: one for each bucket of batch sizes, captured at its first use and launched again
// with new descriptors. Everything that differs between steps is in device memory, at fixed addresses. Rows
// between the batch's size and the bucket's do nothing and write nowhere.
//
// Thread-compatible; used by the thread that begins passes.
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
  // For batches of at most `rows_max` rows; 0: no graphs.
  explicit DecodeGraphs(std::uint32_t rows_max);

  // The smallest bucket that has room for `rows`; 0: none.
  std::uint32_t bucket_for(std::uint32_t rows) const;

  // Launches the bucket's graph. The first call for a bucket only calls `issue`; the second one captures what
  // `issue` queues. A graph is captured again when `generation` changes, which counts changes of the
  // addresses that it uses. If the device refuses the capture or the graph, `issue` is called instead from
  // then on, and the reason is returned once.
  Status launch(std::uint32_t bucket, std::uint32_t generation, Stream& stream,
                const std::function<void()>& issue);

 private:
  struct Captured {
    Graph graph;
    std::uint32_t generation = 0;
    bool issued = false;  // `issue` was called once without capture
    bool plain = false;   // never captured: the device refused
  };
  std::vector<std::uint32_t> buckets_;
  std::vector<Captured> captured_;  // by the index of the bucket
};

}  // namespace loci::cuda
