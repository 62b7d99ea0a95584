// SPDX-License-Identifier: Apache-2.0
// Decides which of a request's missing state is loaded and which is computed: one plan, by which computing
// and all links end together.
//
// An example: blocks 0 to 5 are on the disk, and six new tokens follow. The disk brings a block in 2 ms;
// computing one takes 2 ms at the begin, more further on, as later tokens attend to more.
//
//     block     0  1  2  3  4  5  new       compute  |0-|1-|new|
//     source    c  c  L  L  L  L  c         disk     |2-|3-|4-|5-|
//
//     The leading blocks are computed while those behind them are loaded: no later block is cheaper to
//     compute, and what is computed first reads nothing that is still on its way (Pensieve §4.3.4 computes
//     leading tokens for the same reasons). The new tokens are computed in the same passes. Layers come in
//     order, and a pass waits for one only when it gets there, so only the last layer is computed behind the
//     last load.
//
// The model. The blocks of each tier are computed up to some block, and loaded from there on. With
//     compute = what is computed in any case + the chosen blocks + what loading takes from the processor
//     link    = what is booked on it + its latency + its loads; nothing where it brings nothing
// the request is ready at the latest of
//     booked compute + compute;
//     the slowest link's first layer + what is computed in any case;
//     the slowest link's last layer + the last layer of the first pass that reads it + the passes after.
// What the shared tier brings may come in rounds (`shared_rounds`): the first layers of all blocks, then the
// next ones. So coarse are the layers then, and what of the chosen blocks is computed in the first pass that
// reads what is loaded waits with it: the request is ready not before
//     the link's first round + what is computed in any case + the chosen blocks;
//     the link's last round + the last round's share of that pass, with the chosen blocks + the passes after.
// In one round everything is computed behind the last load. (All chosen blocks are taken to be in that pass,
// as those of a slow link are.) (A tier holds a block in one form, so today's callers give one:
// `only_hidden`.) A block that the disk has in both forms is loaded in either: hidden states come sooner, and
// projecting them is computing. Only the number of hidden blocks matters, not which ones they are: they are
// the last ones.
//
//     block     0  1  2  3  4  5  new       compute  |0-|p3|p4|p5|new|      p: projecting
//     source    c  L  L  H  H  H  c         disk     |1---|2---|3-|4-|5-|
//
// Computing delays all other requests that run or wait. If there are none it is still not free, because loads
// need the processor too: an eighth of it counts. A plan's price is the time that all requests lose by it:
//     ready + (others + 1/8) * compute.
//
// Integers alone: the same problem has the same plan everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/memory/tier.h"

namespace loci {

enum class RestoreRule : std::uint8_t {
  kKv,                // load all that any tier has
  kRecompute,         // compute all
  kPensieve,          // load what host memory has, compute the rest: Pensieve has no disk (§4.3.4)
  kTokenWise,         // leading tokens are computed, so many that both would end together if every token took
                      // the same time; down to a whole block (HCache §4.1.1)
  kTokenWiseRounded,  // the same, up to a number of tokens that products like: kRoundTokens (HCache §6.3.2)
  kNaiveHybrid,       // leading tokens are computed, so that the longer of computing and loading is shortest,
                      // each by its own costs alone (HCache §6.3.1, "naive hybrid")
  kHidden,            // load all, as hidden states what the disk has so
  // HCache's closed form (§4.1.2), over blocks in place of layers: with C_H to project a block, IO_H to load
  // it so, IO_KV as keys and values, C_tok to compute it, and N blocks,
  //   C_H > IO_H: ceil(N IO_KV / (IO_KV + C_H - IO_H)) as hidden states, the others as keys and values;
  //   else:       ceil(N C_tok / (C_tok + IO_H - C_H)) as hidden states, and those before them are computed.
  kHcache,
  kAuto,  // the least price of all plans
};
// By RestoreRule.
inline constexpr std::array<std::string_view, 9> kRestoreRules = {
    "kv",           "recompute", "pensieve", "token-wise", "token-wise-rounded",
    "naive-hybrid", "hidden",    "hcache",   "auto"};
inline constexpr std::uint32_t kRoundTokens = 128;

// Errors: kInvalidArgument (field "restore") naming the rules.
Result<RestoreRule> find_restore_rule(std::string_view name);
constexpr std::string_view restore_rule_name(RestoreRule rule) {
  return kRestoreRules[static_cast<std::size_t>(rule)];
}

// What a block's hidden states cost.
struct HiddenLoad {
  Nanos load = 0;
  Nanos charge = 0;  // with projecting
  friend bool operator==(const HiddenLoad&, const HiddenLoad&) = default;
};

// A block that the device lacks and a slower tier has. (What is nowhere is computed in any case.)
struct RestorableBlock {
  std::uint32_t number = 0;  // of the sequence
  Tier from = Tier::kDisk;   // the fastest that has all of it, not kDevice
  Nanos compute = 0;         // its tokens; never less than of a block before
  Nanos load = 0;            // the link's time, but for the latency
  Nanos charge = 0;          // of compute, that loading it takes away; of hidden states projecting them, too
  bool only_hidden = false;  // `load` and `charge` are of hidden states: it has no other form
  // Of the disk's: it has them beside keys and values.
  std::optional<HiddenLoad> hidden = std::nullopt;
  friend bool operator==(const RestorableBlock&, const RestorableBlock&) = default;
};

struct RestoreLink {
  Nanos booked = 0;      // until what is being loaded has come
  Nanos latency = 0;     // once
  bool awaited = false;  // some of what is booked is the request's own
};

struct RestoreProblem {
  std::vector<RestorableBlock> blocks;  // by number
  std::array<RestoreLink, kTiers> links{};
  Nanos compute_booked = 0;   // until the processor has what others' prompts lack
  Nanos computed_anyway = 0;  // new tokens, and what no tier has
  Nanos first_reading = 0;    // of that: the first pass that reads what is loaded
  std::uint32_t layers = 1;   // at least 1
  // In how many rounds layers come from the shared tier; 0: one by one, as from the others.
  std::uint32_t shared_rounds = 0;
  std::uint32_t others = 0;  // requests that run or wait
  // What projecting costs was measured. Else keys and values are loaded where they are there, unless the rule
  // is kHidden.
  bool knows_projecting = true;
};

struct RestoreTimes {
  Nanos ready = 0;    // from now until the new tokens are computed
  Nanos compute = 0;  // of it: the processor's
  Nanos price = 0;    // what all lose, in eighths of a nanosecond
};

// kDevice's place is unused. A block of a tier is loaded if its number is at least the tier's.
using LoadFrom = std::array<std::uint32_t, kTiers>;

struct RestorePlan {
  RestoreRule rule = RestoreRule::kAuto;
  LoadFrom load_from{};
  std::uint32_t hidden_from = UINT32_MAX;  // so are blocks in both forms, from this number on
  RestoreTimes times;
  // Of the plans kKv and kRecompute (MemServe §5.3 decides between these two).
  RestoreTimes loading_all;
  RestoreTimes computing_all;
  bool loads(const RestorableBlock& block) const {
    return block.number >= load_from[static_cast<std::size_t>(block.from)];
  }
};

// Thread-safe, pure. Times are cut off where they are absurd (a day or more for what a request lacks).
// `kAuto` has the least price of all choices of loading or computing each block, where blocks of one tier
// have equal loads and charges, and the same forms; where they do not, a price at most that of every other
// rule. (Of more than kEveryCut blocks in both forms the price may be more by what one block costs.)
// O(n + m log n) for n blocks of one tier and m, fewer, of another; log n times as much where blocks have
// both forms; where a third has k, O(k m log n). Of k m choices (m where there are two tiers) about 700 at
// most are tried, at even distances, and the price may be more by what lies between two of them.
RestorePlan plan_restore(const RestoreProblem& problem, RestoreRule rule);

// In a model with windows that do not reach to the first token a request goes on from one of several places:
// what each layer sees before it is loaded, and every token behind it is computed.
//
//     block            0  1  2  3  4  5  new       L: loaded for the place that is chosen, 3; l: not loaded
//     sees all         L  L  L  l  l  l            An earlier turn ended at block 3, and the disk has the
//     sees one block   .  .  L  .  .  l            window of that place as well as the last one.
//
// From an earlier place less is loaded and more is computed, and what is computed reads the rest layer by
// layer while it comes. places_to_price() leaves out what is not worth a price, choose_place() takes the
// best.

// What a place asks of the tiers.
struct PlaceNeeds {
  std::array<std::uint64_t, kTiers> bytes{};  // to be loaded; kDevice's is unused
  std::uint8_t awaited = 0;                   // tiers that bring some of it already: bit 1 << Tier
  bool overdue = false;                       // one of those that it loads from has long been late
};
inline constexpr std::size_t kPlacesPriced = 64;
// Which of them are worth a price, kPlacesPriced at most, the last place first; the first token's place, or
// where nothing is loaded, is always among them. `places`: the last one first, and none behind one that loads
// nothing. Left out are places that wait for a tier which is late, and those that load no less than a later
// one and so compute more for nothing. If more are left, there are some at even distances, and the last one
// that loads from host memory alone, and the last one that loads from host memory and the disk alone.
// Thread-safe, pure. O(places), without a price.
std::vector<std::size_t> places_to_price(std::span<const PlaceNeeds> places);

struct PlaceChoice {
  std::size_t number = 0;  // of the chosen one in `places`
  RestoreTimes times;
  RestoreTimes loading_all;    // at the last place
  RestoreTimes computing_all;  // at the last that loads nothing
};
// `places`: of each place all that is loaded and computed there, the last place first; at least one. `kKv`
// and `kHidden` take the last place, `kRecompute` the last from which nothing is loaded, `kPensieve` the last
// from which host memory alone is loaded from, and all others that with the least price. Thread-safe, pure.
PlaceChoice choose_place(std::span<const RestoreProblem> places, RestoreRule rule);

}  // namespace loci
