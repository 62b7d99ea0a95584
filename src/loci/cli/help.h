// SPDX-License-Identifier: Apache-2.0
// What `loci --help` and `loci serve --help` print, sorted by what a person wants to do. Lines have at most
// 80 columns.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace loci {

// The commands in groups, and examples. `app`: with all its commands; each has one of the groups below.
std::string loci_help(const CLI::App& app);

inline constexpr const char* kTalkGroup = "Serve a model and talk to it";
inline constexpr const char* kModelsGroup = "Models and what is kept of them";
inline constexpr const char* kManyGroup = "For several users and several servers";
inline constexpr const char* kMeasureGroup = "Measure and understand";

enum class HelpDepth : std::uint8_t {
  kOften,  // the options that people set
  kAll,
};
std::string serve_help(HelpDepth depth);

}  // namespace loci
