// SPDX-License-Identifier: Apache-2.0
// A range of numbers, as limits of options and of fields are said.
#pragma once

namespace loci {

// From `low` to `high`, both of them in it but for a low that is excluded. NaN is in no range.
struct NumberRange {
  double low = 0;
  double high = 0;
  bool low_excluded = false;

  constexpr bool contains(double value) const {
    return value >= low && value <= high && !(low_excluded && value == low);
  }
};

}  // namespace loci
