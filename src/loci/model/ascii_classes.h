// SPDX-License-Identifier: Apache-2.0
// Regular expressions in JSON Schema's dialect (ECMA 262), in which \d, \w and \s match only ASCII. In Rust
// they match the digits and letters of all scripts, and a model that may write those does.
#pragma once

#include <string>
#include <string_view>

namespace loci {

// The expression with \d, \D, \w, \W, \s and \S spelt out, also inside classes. All else stays unchanged,
// even if it is no valid expression.
std::string with_ascii_classes(std::string_view regex);

}  // namespace loci
