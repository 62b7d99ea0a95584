// SPDX-License-Identifier: Apache-2.0
// Regular expressions as JSON Schema's dialect (ECMA 262) reads them: \d, \w and \s are of ASCII. Rust's mean
// all scripts' digits and letters, and a model that may write them does.
#pragma once

#include <string>
#include <string_view>

namespace loci {

// The expression with \d, \D, \w, \W, \s and \S spelt out, inside of classes too. All else stays as it is,
// whether it is an expression or not.
std::string with_ascii_classes(std::string_view regex);

}  // namespace loci
