// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/row_checks.h"

#include <xxhash.h>

namespace loci::cpu {
namespace {

std::uint64_t check_of(std::span<const std::byte> row) { return XXH3_64bits(row.data(), row.size()); }

}  // namespace

RowChecks::RowChecks(const TensorView& tensor) : tensor_(tensor) {
  if (!tensor.present()) return;
  checks_.reserve(tensor.rows);
  for (std::uint64_t row = 0; row < tensor.rows; ++row) checks_.push_back(check_of(tensor.row(row)));
}

bool RowChecks::is_same(std::uint64_t row) const { return check_of(tensor_.row(row)) == checks_[row]; }

}  // namespace loci::cpu
