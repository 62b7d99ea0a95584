// SPDX-License-Identifier: Apache-2.0
// Sessions of a coding agent (weka-agentic-coding): a line is a session with all its requests, whose prompts
// are named by ids of blocks (docs/traces.md says what each field becomes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Blocks `first`, `first + 1`, ..., `count` of them.
struct WekaRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  friend bool operator==(const WekaRun&, const WekaRun&) = default;
};

struct WekaRequest {
  Nanos at = 0;           // from its session's begin
  bool streamed = false;  // `type` is s
  std::uint32_t prompt_tokens = 0;
  std::uint32_t reply_tokens = 0;  // may be none
  std::vector<WekaRun> blocks;     // the prompt's whole blocks
  std::optional<Nanos> think;      // from the last reply's end
  std::optional<Nanos> took;       // the server, for it
};

struct WekaSession {
  Nanos at = 0;  // of a sub-agent: when it began, from its session's begin
  std::uint32_t block_tokens = 64;
  // At the head of the prompt: the tools, then the system's text.
  std::uint32_t tool_tokens = 0, system_tokens = 0;
  std::vector<WekaRequest> requests;
  std::vector<WekaSession> subagents;  // they have their session's ids; their own have none
  std::size_t entries() const { return requests.size() + subagents.size(); }
};

// Errors: kInvalidArgument "FILE:LINE: FIELD: expected ..., found ...".
Result<std::vector<WekaSession>> parse_weka(const std::string& text, const std::string& name);

// The data does not say when sessions began: they begin at random, `rate` of them a second, as `seed` draws.
// `name`: of the trace.
Trace trace_of_sessions(const std::vector<WekaSession>& sessions, const std::string& name, double rate,
                        std::uint64_t seed);

}  // namespace loci::sim
