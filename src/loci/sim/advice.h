// SPDX-License-Identifier: Apache-2.0
// How much host memory and disk to buy: runs a trace with pairs of sizes on offer until the cheapest pair is
// known that meets a target for the time to the first token (tier_search.h chooses which pairs are run).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/sim/prices.h"
#include "loci/sim/scenario.h"
#include "loci/sim/trace.h"
#include "loci/sim/world.h"

namespace loci::sim {

// So many percent of the requests have their first token within `most` of their arrival.
struct TtftTarget {
  Nanos most = 0;
  double percent = 90;
};
// "2s@p90", "350ms@p99.9". Errors: kInvalidArgument, which says how it is written.
Result<TtftTarget> parse_ttft_target(std::string_view text);

// The time that `percent` of the counted requests stayed within; kNever: more than the others had no first
// token. Left out are prompts that fit no memory and clients that left before. nullopt: no request counts.
std::optional<Nanos> ttft_within(const WorldReport& report, std::uint64_t warm_up, double percent);

// What one run gave.
struct SizedRun {
  double host_gb = 0;
  double disk_gb = 0;
  double cost_hour = 0;  // with the machine
  Nanos ttft = kNever;   // within which the target's percentage of requests stayed
  bool meets = false;
  double hits_of_turns = 0;           // that found at least half of their history, of all turns
  double hits_of_returning = 0;       // of those that have a history
  std::array<double, kTiers> from{};  // of the prompts' tokens, found in each tier
  std::uint64_t too_long = 0;         // requests that fit no memory or context
};

enum class Verdict : std::uint8_t {
  kFound,        // `cheapest` is the answer
  kFoundSoFar,   // it meets the target; the search was ended before all cheaper pairs were ruled out
  kNoneOnOffer,  // the largest pair misses; with all state in device memory the target would be met
  kComputing,    // with all state in device memory it is missed too: computing alone takes longer
  kUnknown,      // the search was ended before anything was known
};
const char* verdict_name(Verdict verdict);

struct Advice {
  Verdict verdict = Verdict::kUnknown;
  std::optional<SizedRun> cheapest;
  std::optional<SizedRun> less_host, less_disk;  // one step below it; none where there is no smaller size
  std::optional<SizedRun> largest;               // of the sizes on offer
  std::optional<SizedRun> all_on_device;         // only where the largest misses
  std::size_t pairs = 0;                         // on offer
  std::size_t open = 0;                          // of them, not ruled out when the search was ended
  std::size_t runs = 0;
};

// Before a run `done` is null, after it what it gave. `open` pairs might still be the answer.
using AdviceListener =
    std::function<void(double host_gb, double disk_gb, std::size_t open, const SizedRun* done)>;

// A scenario whose tiers are to be chosen. `json` gets the device's memory where it names none: nine tenths
// of what the model's weights leave of a known machine's. Errors: those of parse_scenario(); kInvalidArgument
// where host memory or disk is given, or the device's memory is neither given nor known.
Result<Scenario> parse_open_scenario(nlohmann::json& json, const std::string& file);
// 10^9 bytes of state that all prompts and replies of a trace come to, if nothing were shared.
double state_gb(const Trace& trace, const ModelShape& model);

struct AdviceInput {
  Trace trace;
  nlohmann::json scenario;  // as parse_open_scenario() left it
  std::string file;         // for its errors
  Prices prices;
  TtftTarget target;
};
// `stop`, when set, ends the search and the run that is under way, whose result is dropped. Errors: those of
// parse_scenario() and run_world(); kInvalidArgument where no request of the trace counts.
Result<Advice> advise(const AdviceInput& input, const std::atomic<bool>& stop,
                      const AdviceListener& listener);

nlohmann::ordered_json advice_json(const Advice& advice, const Prices& prices, const TtftTarget& target);
std::string advice_text(const Advice& advice, const Prices& prices, const TtftTarget& target);

}  // namespace loci::sim
