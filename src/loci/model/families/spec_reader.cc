// SPDX-License-Identifier: Apache-2.0
#include "loci/model/families/spec_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace loci {

Result<std::uint32_t> SpecReader::count(std::string_view name, std::uint32_t least,
                                        std::uint32_t most) const {
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t value, source_->get_uint(key(name)));
  if (value < least || value > most) {
    return invalid_argument(fmt::format("expected a number from {} to {}, found {}", least, most, value),
                            key(name));
  }
  return static_cast<std::uint32_t>(value);
}

Result<std::uint32_t> SpecReader::count_or(std::string_view name, std::uint32_t least, std::uint32_t most,
                                           std::uint32_t otherwise) const {
  return has(name) ? count(name, least, most) : Result<std::uint32_t>(otherwise);
}

Result<double> SpecReader::number(std::string_view name, double above, double most) const {
  LOCI_ASSIGN_OR_RETURN(const double value, source_->get_float(key(name)));
  if (!(value > above && value <= most)) {  // a NaN fails too
    return invalid_argument(
        fmt::format("expected a number above {} and up to {}, found {}", above, most, value), key(name));
  }
  return value;
}

Result<double> SpecReader::number_or(std::string_view name, double above, double most,
                                     double otherwise) const {
  return has(name) ? number(name, above, most) : Result<double>(otherwise);
}

Result<bool> SpecReader::flag_or(std::string_view name, bool otherwise) const {
  return has(name) ? source_->get_bool(key(name)) : Result<bool>(otherwise);
}

Result<std::vector<bool>> SpecReader::flags(std::string_view name, std::size_t size) const {
  const GgufValue* value = source_->find(key(name));
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* flags = array == nullptr ? nullptr : std::get_if<std::vector<bool>>(&array->elements);
  if (flags == nullptr) {
    return invalid_argument(fmt::format("expected an array of bools, found {}",
                                        value == nullptr ? "no such key" : describe_type(*value)),
                            key(name));
  }
  if (flags->size() != size) {
    return invalid_argument(fmt::format("expected {} bools, found {}", size, flags->size()), key(name));
  }
  return *flags;
}

Status check_factors(const std::vector<float>& factors, const std::string& field) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0 && std::isfinite(factors[i]))) {
      return invalid_argument(fmt::format("expected factors above 0, found {} at index {}", factors[i], i),
                              field);
    }
  }
  return {};
}

Result<std::vector<float>> SpecReader::factors(std::string_view name, std::size_t size) const {
  LOCI_ASSIGN_OR_RETURN(std::vector<float> values, source_->get_floats(key(name)));
  if (values.size() != size) {
    return invalid_argument(fmt::format("expected {} numbers, found {}", size, values.size()), key(name));
  }
  LOCI_RETURN_IF_ERROR(check_factors(values, key(name)));
  return values;
}

Result<TensorView> SpecReader::tensor(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  used_.insert(name);
  LOCI_ASSIGN_OR_RETURN(TensorView view, source_->get_tensor(name));
  if (view.rows != rows || view.columns != columns) {
    return invalid_argument(
        fmt::format("expected [{}, {}], found [{}, {}]", rows, columns, view.rows, view.columns), name);
  }
  return view;
}

Result<TensorView> SpecReader::tensor_if_any(const std::string& name, std::uint64_t rows,
                                             std::uint64_t columns) {
  return exists(name) ? tensor(name, rows, columns) : Result<TensorView>(TensorView{});
}

bool SpecReader::exists(const std::string& name) const {
  return source_->find_tensor(name) != nullptr || source_->find_opaque_tensor(name) != nullptr;
}

Status SpecReader::check_all_used() const {
  const auto check = [&](const std::string& name) -> Status {
    if (used_.contains(name)) return {};
    return invalid_argument(
        fmt::format("expected only tensors that the family {} computes with, found this one", prefix_), name);
  };
  for (const TensorView& view : source_->tensors()) LOCI_RETURN_IF_ERROR(check(view.name));
  for (const OpaqueTensor& opaque : source_->opaque_tensors()) LOCI_RETURN_IF_ERROR(check(opaque.name));
  return {};
}

}  // namespace loci
