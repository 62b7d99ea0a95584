// SPDX-License-Identifier: Apache-2.0
// Advises how much host memory and disk to buy. It runs a trace with pairs of sizes on offer until it knows
// the cheapest pair that meets a target for the time to the first token (tier_search.h chooses the pairs to
// run).
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

// `percent` of the requests have their first token within `most` after their arrival.
struct TtftTarget {
  Nanos most = 0;
  double percent = 90;
};
// "2s@p90", "350ms@p99.9". Errors: kInvalidArgument, which shows the form.
Result<TtftTarget> parse_ttft_target(std::string_view text);

// The time within which `percent` of the counted requests had their first token; kNever: fewer requests than
// that had one at all. Prompts that fit no memory and clients that left before do not count. nullopt: no
// request counts.
std::optional<Nanos> ttft_within(const WorldReport& report, std::uint64_t warm_up, double percent);

// The result of one run.
struct SizedRun {
  double host_gb = 0;  // of each machine, as the next one
  double disk_gb = 0;
  bool all_on_device = false;  // instead of host memory and disk
  double cost_hour = 0;        // of everything: all machines and their memory
  Nanos ttft = kNever;         // within which the target's percentage of requests had their first token
  bool meets = false;
  double hits_of_turns = 0;      // share of all turns that found at least half of their history
  double hits_of_returning = 0;  // the same share of the turns that have a history
  // The share of the prompts' tokens that was found in each tier; kShared: what came from peers.
  std::array<double, kTiers> from{};
  std::uint64_t too_long = 0;  // requests that fit no memory or context
};

enum class Verdict : std::uint8_t {
  kFound,       // `cheapest` is the answer
  kFoundSoFar,  // `cheapest` meets the target; the search ended before all cheaper pairs were ruled out
  // The largest pair misses the target. With all state in device memory it would be met, or that is not
  // known (Advice::all_on_device is absent).
  kNoneOnOffer,
  kComputing,  // even with all state in device memory the target is missed: computing alone takes too long
  kUnknown,    // the search ended before anything was known
};
const char* verdict_name(Verdict verdict);

struct Advice {
  Verdict verdict = Verdict::kUnknown;
  std::optional<SizedRun> cheapest;
  std::optional<SizedRun> less_host, less_disk;  // one size smaller than the cheapest; absent if there is
                                                 // none
  std::optional<SizedRun> largest;               // with the largest sizes on offer
  // Present only if the largest misses the target; absent too if that much memory is too much for a run
  // which misses with less.
  std::optional<SizedRun> all_on_device;
  std::size_t pairs = 0;  // on offer
  std::size_t open = 0;   // of these, not ruled out when the search ended
  std::size_t runs = 0;
};

// Called before each run with its sizes and `done` null, and after it with its result. `open` pairs may still
// be the answer.
using AdviceListener = std::function<void(const SizedRun& run, std::size_t open, const SizedRun* done)>;

// A scenario whose tiers are to be chosen. If `json` names no device memory, it gets nine tenths of what the
// model's weights leave free on a known machine. Errors: those of parse_scenario(); kInvalidArgument if host
// memory or disk is given, the device's memory is neither given nor known, or hidden states must be kept,
// which takes a disk.
Result<Scenario> parse_open_scenario(nlohmann::json& json, const std::string& file);
// The state of all prompts and replies of a trace in units of 10^9 bytes, in whole blocks, if nothing were
// shared.
double state_gb(const Trace& trace, const ModelShape& model);

// Errors: kInvalidArgument naming the file of the prices and the field, if they offer memory of a tier that
// the scenario's baseline lacks.
Status check_offer(const Prices& prices, const std::string& file, const Scenario& scenario);

struct AdviceInput {
  Trace trace;
  nlohmann::json scenario;  // as parse_open_scenario() left it
  std::string file;         // its name in errors
  Prices prices;
  TtftTarget target;
  // The most tokens for which a run models the device's memory, which takes this machine's.
  std::uint64_t device_tokens_max = std::uint64_t{1} << 29;
};
// `stop`, when set, ends the search and drops the run under way. Errors: those of parse_scenario() and
// run_world(); kInvalidArgument if no request of the trace counts.
Result<Advice> advise(const AdviceInput& input, const std::atomic<bool>& stop,
                      const AdviceListener& listener);

nlohmann::ordered_json advice_json(const Advice& advice, const Prices& prices, const TtftTarget& target);
std::string advice_text(const Advice& advice, const Prices& prices, const TtftTarget& target);

}  // namespace loci::sim
