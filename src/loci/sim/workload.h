// SPDX-License-Identifier: Apache-2.0
// Workloads of which only statistics are known, drawn from a seed: conversations whose lengths and turns are
// fitted to a paper's figures, and documents or contexts that many requests share, some more often than
// others. Each trace's notes say what was fitted and what was assumed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// A conversation has one turn with probability `single_share`, else two or more, geometrically distributed.
// The lengths of a turn's input and of its reply are log-normal. Each conversation has a level, a log-normal
// factor of all its lengths, so that some are long throughout.
struct ConversationShape {
  double turns_mean = 5;
  double single_share = 0.2;
  double input_mean = 40;  // tokens that a turn adds
  double reply_mean = 200;
  double sigma = 1.0;        // of the logarithm of a length within a conversation
  double level_sigma = 0.5;  // of the logarithm of a conversation's level
  double turns_sigma = 0;    // above 0: turns beyond the second are log-normal instead of geometric
  // If over_share[0] > 0, the level's mean and sigma are fitted so that a share over_share[i] of the
  // conversations has more than over_tokens[i] tokens in all. input_mean and reply_mean then only give the
  // ratio of the two.
  double over_tokens[2] = {2048, 4096};
  double over_share[2] = {0, 0};
};

struct WorkloadOptions {
  std::string kind = "sharegpt-pensieve";
  std::uint32_t conversations = 1000;
  double rate = 1;                    // conversations a second, Poisson
  double think_s = 60;                // mean, from a reply's end to the next turn
  std::string think = "exponential";  // or "constant"
  std::uint32_t tokens_max = 16'384;  // a conversation ends before it gets longer; 0: no limit
  std::uint64_t seed = 1;
  ConversationShape shape;  // for the kind "conversations"
  // Kinds "text-analysis" and "documents": contexts, requests' bodies and replies in tokens.
  std::uint32_t contexts = 128;
  std::uint32_t context_tokens = 1024;
  std::uint32_t body_tokens = 64;
  std::uint32_t reply_tokens = 32;
  double zipf = 0;           // 0: all contexts are alike
  std::uint32_t tasks = 6;   // of a document
  std::uint32_t copies = 1;  // of each conversation about a document
};

std::vector<std::string_view> workload_kinds();
// What the fields of a kind are where nothing else is said: of a named workload of documents or contexts its
// lengths and tasks; of other kinds, known or not, as above.
WorkloadOptions workload_of_kind(std::string_view kind);
// The shape of a kind of conversations. Errors: kNotFound if there is no such kind.
Result<ConversationShape> conversation_shape(std::string_view kind);
// At most kTraceRequestsMax requests, due within 10^9 s. Errors: kInvalidArgument "FIELD: expected ..., found
// ...".
Result<Trace> make_workload(const WorkloadOptions& options);

}  // namespace loci::sim
