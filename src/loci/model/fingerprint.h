// SPDX-License-Identifier: Apache-2.0
// The identity of a model's computation: 128 bits of XXH3 over the family, sizes, numbers, rotary table and
// every tensor's role, type, shape and bytes. Names of tensors, and names for people, are left out, because
// they change no state. It guards against mix-ups, not against forgery: whoever can choose the weights can
// choose the answers anyway.
//
// Cost: one pass over the weights at the speed of memory (of the disk, when the file is not cached).
#pragma once

#include <array>
#include <cstdint>

#include "loci/model/model_spec.h"

namespace loci {

// Ignores spec.fingerprint. The tensors' bytes must be mapped.
std::array<std::uint8_t, 16> compute_fingerprint(const ModelSpec& spec);

}  // namespace loci
