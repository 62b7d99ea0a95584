// SPDX-License-Identifier: Apache-2.0
// Strong identifiers: the index of one kind of thing cannot be taken for that of another kind, nor for a
// count.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace loci {

template <class Tag, class Representation>
struct StrongId {
  using Value = Representation;
  Representation value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Representation v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using TokenId = StrongId<struct TokenTag, std::uint32_t>;      // index into the vocabulary
using SlotId = StrongId<struct SlotTag, std::uint32_t>;        // a block's place in one tier's pool
using RequestId = StrongId<struct RequestTag, std::uint64_t>;  // unique in a process
using OperationId =
    StrongId<struct OperationTag, std::uint64_t>;  // a pass, move or save; unique in a process

}  // namespace loci

template <class Tag, class Representation>
struct std::hash<loci::StrongId<Tag, Representation>> {
  std::size_t operator()(loci::StrongId<Tag, Representation> id) const noexcept {
    return std::hash<Representation>{}(id.value);
  }
};
