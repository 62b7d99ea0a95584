// SPDX-License-Identifier: Apache-2.0
// Does with bytes that may be a GGUF file everything that a server would do before it computes; for tests and
// fuzzers. Returns the result of each step, and must never crash or hang.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "loci/model/gguf.h"
#include "loci/model/model.h"

namespace loci {

struct Exercised {
  Status parsed;
  Status specified;  // meaningful if `parsed` is ok
};

inline Exercised exercise_gguf(std::span<const std::byte> bytes) {
  Result<GgufFile> file = GgufFile::parse(bytes);
  if (!file.ok()) return {file.status(), {}};
  for (const TensorView& tensor : file->tensors()) {
    std::vector<float> row(tensor.columns);
    decode_row(tensor, 0, row);
    decode_row(tensor, tensor.rows - 1, row);
  }
  for (const auto& [key, value] : file->metadata()) {
    // Every typed look-up of every key must give a value or an error.
    (void)file->get_uint(key).ok();
    (void)file->get_float(key).ok();
    (void)file->get_bool(key).ok();
    (void)file->get_string(key).ok();
    (void)file->get_strings(key).ok();
    (void)file->get_ints(key).ok();
    (void)file->get_floats(key).ok();
    (void)describe_type(value).size();
  }
  return {{}, read_model_spec(*file).status()};
}

}  // namespace loci
