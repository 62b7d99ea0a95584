// SPDX-License-Identifier: Apache-2.0
// The tools of a request, and which of them the reply may or must call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/wire/json.h"

namespace loci {

inline constexpr std::uint32_t kToolsMax = 128;  // of one request
inline constexpr std::size_t kToolNameBytesMax = 64;

struct Tool {
  std::string name;
  Json function;        // {"name", "description", "parameters", ...}, as the client wrote it
  bool strict = false;  // the arguments must match the parameters' schema
  // The schema of its arguments; {} where the client gave none.
  Json parameters() const;
};

enum class ToolChoice : std::uint8_t {
  kAuto,      // the model decides
  kNone,      // no calls; the model is told of the tools all the same, so that its prompt stays what it was
  kRequired,  // at least one call
  kNamed,     // one call, of ToolUse::named
};

struct ToolUse {
  std::vector<Tool> tools;  // what the model is told of
  ToolChoice choice = ToolChoice::kAuto;
  std::string named;
  bool parallel = true;  // several calls in one reply

  bool has(std::string_view name) const;
  // Errors: kInvalidArgument naming `name_field`: it is no valid name, or another tool has it.
  Status add(Tool tool, std::string_view name_field);

  // The reply may have calls.
  bool any() const { return !tools.empty() && choice != ToolChoice::kNone; }
  // It must have one.
  bool must_call() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }
  bool one_call() const { return !parallel || choice == ToolChoice::kNamed; }
};

}  // namespace loci
