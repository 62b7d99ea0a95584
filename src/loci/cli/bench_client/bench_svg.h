// SPDX-License-Identifier: Apache-2.0
// A run of `loci bench` as a picture, of one server or of two: how the times to the first token and between
// tokens are distributed, first turns beside later ones; below, their median and 90th percentile over turns,
// or in an open loop over the time at which turns were due. Pure.
#pragma once

#include <string>

#include "loci/cli/bench_client/bench_run.h"

namespace loci {

// An SVG document; `title`: what was asked, for people.
std::string bench_svg(const BenchResult& result, const BenchOptions& options, const std::string& title);

}  // namespace loci
