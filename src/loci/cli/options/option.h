// SPDX-License-Identifier: Apache-2.0
// One option of `loci serve`: the row of the table from which come its flag, its environment variable, its
// key in the TOML file, --help, --print-config and docs/options.md.
//
// Names follow a rule, so that one tells the others: "--max-body" of the group "network" is LOCI_MAX_BODY in
// the environment and network.max_body in the file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"

namespace loci {

struct ServerConfig;

// How a value is written in TOML, and what is asked for where it is wrong.
enum class OptionKind : std::uint8_t {
  kText,
  kPath,      // relative ones are relative to where the server was started
  kInteger,   // TOML: an integer
  kNumber,    // "0.7"; TOML: an integer or a float, or a string
  kBytes,     // "4GiB"; TOML: a string or an integer
  kDuration,  // "30s"; TOML: a string, or a number of seconds
  kChoice,
  kSwitch,  // "on" or "off"; TOML: a boolean too
  kList,    // "a,b"; TOML: an array of strings, none of which holds a comma
};

struct Option {
  std::string group;  // one of option_groups()
  std::string flag;   // "--max-body"
  std::string help;   // for people; also says what special values mean
  OptionKind kind = OptionKind::kText;
  std::string type;                  // what --help shows for a value: "SIZE"
  std::vector<std::string> choices;  // kChoice: all that is accepted
  std::string default_note;          // shown where nothing is set by default: "most of what is free"
  bool secret = false;               // the value is never printed
  // Refused where it is given without a value: that a shell's variable has none must not open the server.
  bool guards = false;

  // Takes the text of a value. Errors: kInvalidArgument without a field; the message says what was
  // expected and found.
  std::function<Status(ServerConfig&, const std::string&)> set;
  // The value as text, which set() would take; absent: none is set.
  std::function<std::optional<std::string>(const ServerConfig&)> get;

  std::string environment() const;  // "LOCI_MAX_BODY"
  std::string key() const;          // "network.max_body"
};

// What every row begins with.
struct OptionName {
  std::string group;
  std::string flag;
  std::string help;
};

}  // namespace loci
