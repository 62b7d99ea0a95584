// SPDX-License-Identifier: Apache-2.0
// Text of a request's target, in which %2F stands for a slash.
#pragma once

#include <string>
#include <string_view>

namespace loci {

// What is no valid escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace loci
