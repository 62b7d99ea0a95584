// SPDX-License-Identifier: Apache-2.0
// Used by every family's reader: it reads numbers within limits and tensors of the expected shape, and checks
// at the end that no tensor of the file was left out of the computation.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/model_source.h"

namespace loci {

// Thread-compatible; the source must outlive it. Keys are given without the family's prefix:
// "block_count" reads "llama.block_count". All errors are kInvalidArgument naming key or tensor.
class SpecReader {
 public:
  SpecReader(const ModelSource& source, std::string_view prefix) : source_(&source), prefix_(prefix) {}

  const ModelSource& source() const { return *source_; }
  const std::string& prefix() const { return prefix_; }
  bool has(std::string_view name) const { return source_->has(key(name)); }
  std::string key(std::string_view name) const { return prefix_ + "." + std::string(name); }

  // A whole number from `least` to `most`.
  Result<std::uint32_t> count(std::string_view name, std::uint32_t least, std::uint32_t most) const;
  Result<std::uint32_t> count_or(std::string_view name, std::uint32_t least, std::uint32_t most,
                                 std::uint32_t otherwise) const;
  // A finite number above `above` and up to `most`.
  Result<double> number(std::string_view name, double above, double most) const;
  Result<double> number_or(std::string_view name, double above, double most, double otherwise) const;
  Result<bool> flag_or(std::string_view name, bool otherwise) const;
  // `size` bools, one for each layer.
  Result<std::vector<bool>> flags(std::string_view name, std::size_t size) const;
  // `size` finite numbers above zero.
  Result<std::vector<float>> factors(std::string_view name, std::size_t size) const;

  // A tensor that must be there, in this shape. Vectors are [1, columns].
  Result<TensorView> tensor(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  // The same, or an absent view if the file has no tensor of this name.
  Result<TensorView> tensor_if_any(const std::string& name, std::uint64_t rows, std::uint64_t columns);
  bool exists(const std::string& name) const;
  // Marks a tensor that the computation does not use.
  void ignore(const std::string& name) { used_.insert(name); }
  // Errors: a tensor that was neither read nor ignored; a part of the model would silently not be computed.
  Status check_all_used() const;

 private:
  const ModelSource* source_;
  std::string prefix_;
  std::set<std::string, std::less<>> used_;
};

// Returns an error if a factor is not a finite number above zero; `field` is the key or tensor that they come
// from.
Status check_factors(const std::vector<float>& factors, const std::string& field);

}  // namespace loci
