// SPDX-License-Identifier: Apache-2.0
// Lines of a trace's file: JSON objects, one a line. Errors name the file, the line, the field, what was
// expected and what was found. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/sim/trace.h"

namespace loci::sim {

// Where something stands in a file, and how to complain about it.
class TracePlace {
 public:
  // `file` must outlive it.
  TracePlace(const std::string& file, std::uint64_t line) : file_(file), line_(line) {}
  // "FILE:LINE"
  std::string text() const;
  // kInvalidArgument "FILE:LINE: FIELD: expected ..., found ...".
  Status wrong(std::string_view field, std::string_view expected, std::string_view found) const;

 private:
  const std::string& file_;
  std::uint64_t line_;
};

class TraceLine {
 public:
  explicit TraceLine(TracePlace place) : place_(place) {}

  Status parse(std::string_view text);
  const nlohmann::json& json() const { return json_; }
  const TracePlace& place() const { return place_; }
  Status wrong(std::string_view field, std::string_view expected, std::string_view found) const {
    return place_.wrong(field, expected, found);
  }
  bool has(const char* field) const { return json_.contains(field); }
  bool is_list(const char* field) const;
  // Errors: another field than these.
  Status known(std::initializer_list<std::string_view> names) const;
  Result<std::uint64_t> count(const char* field, std::uint64_t least, std::uint64_t most) const;
  Result<Nanos> millis(const char* field) const;
  // A name or a whole number; they are never equal.
  Result<std::string> name(const char* field) const;
  // One for each block of `block` tokens, the last of which may be a part of one.
  Result<std::vector<Piece>> hashes(const char* field, std::uint64_t prompt, std::uint64_t block) const;
  // A block for each hash, as long as `lengths` says; together they are the prompt, or the prompt and the
  // reply.
  Result<std::vector<Piece>> blocks(const char* lengths, const char* field, std::uint64_t prompt,
                                    std::uint64_t reply) const;

 private:
  TracePlace place_;
  nlohmann::json json_;
};

// Calls `take` for each line of a text that is not empty, without its end. Errors: the first that `take`
// returns; more than kTraceRequestsMax lines; none.
Status each_text_line(const std::string& text, const std::string& name,
                      const std::function<Status(std::string_view, const TracePlace&)>& take);
// Likewise, for JSON objects.
Status each_trace_line(const std::string& text, const std::string& name,
                       const std::function<Status(const TraceLine&)>& take);

}  // namespace loci::sim
