// SPDX-License-Identifier: Apache-2.0
// ServeGen's clients: a line is a client with its rates over time and the distributions of its lengths. They
// are no requests: these are drawn (docs/traces.md says what each field becomes).
//
// A client's gaps are drawn in units of their mean, with the shape that the current step has, and the step's
// rate says how long such a unit lasts. A gap that reaches beyond its step goes on in the next one:
//
//   rate    |  2 a second       |  none  |  4 a second
//   drawn   |  0.7   1.5        |        |  0.8 left of 1.5 ...
//   time    |  0.35  ...0.65    |        |  0.2 after the step's begin
//
// So the mean number of requests is that of the rates, however uneven the gaps are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

enum class GapFamily : std::uint8_t { kGamma, kWeibull };

struct ServegenStep {
  double start = 0;  // seconds
  double rate = 0;   // requests a second
  GapFamily family = GapFamily::kGamma;
  double shape = 1;
};

// How often lengths are as long or shorter; ascending, the last one is the sum of all weights.
struct ServegenLengths {
  std::vector<std::uint32_t> tokens;
  std::vector<double> upto;
};

struct ServegenWindow {
  double start = 0;
  ServegenLengths prompts, replies;  // empty: it has no requests
};

struct ServegenClient {
  std::string model;
  std::vector<ServegenStep> steps;      // ascending; the last one is as long as the one before it
  std::vector<ServegenWindow> windows;  // ascending
};

// Errors: kInvalidArgument "FILE:LINE: FIELD: expected ..., found ...".
Result<std::vector<ServegenClient>> parse_servegen(const std::string& text, const std::string& name);

struct ServegenDraw {
  std::uint64_t requests = 0;  // so many, the first ones; 0: all, if they are not more than a trace may have
  double from_s = 0;           // from this time of the data on, which is the trace's begin
  std::string model;           // of this model's clients alone; empty: of all
  std::uint64_t seed = 1;
};
// Errors: kInvalidArgument naming the trace's field (`trace.requests`, ...) and what was expected and found.
Result<Trace> draw_servegen(const std::vector<ServegenClient>& clients, const std::string& name,
                            const ServegenDraw& draw);

}  // namespace loci::sim
