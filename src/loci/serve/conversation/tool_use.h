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

inline constexpr std::uint32_t kToolsMax =
    1'024;  // of one request; agents with many MCP servers send hundreds
inline constexpr std::size_t kToolNameBytesMax = 128;

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
  // Of kAuto and kRequired: the names of the only ones that the reply may call; empty: it may call them all.
  std::vector<std::string> allowed;
  bool parallel = true;  // several calls in one reply
  // Types of tools that a service runs itself, as a search: there is none, and the model is not told of them.
  std::vector<std::string> left_out;

  bool has(std::string_view name) const;
  // Errors: kInvalidArgument naming `name_field`: it is no valid name, or another tool has it.
  Status add(Tool tool, std::string_view name_field);
  void leave_out(std::string_view type);

  // A reply that has calls may call this one.
  bool may_call(std::string_view name) const;
  // The reply may have calls.
  bool any() const { return !tools.empty() && choice != ToolChoice::kNone; }
  // It must have one.
  bool must_call() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }
  bool one_call() const { return !parallel || choice == ToolChoice::kNamed; }
};

}  // namespace loci
