// SPDX-License-Identifier: Apache-2.0
// Seeded randomness: the same seed gives the same numbers on every machine. Not for secrets.
#pragma once

#include <cstdint>

namespace loci {

// A step of SplitMix64 from the state `x`: its increment, then its finaliser. A bijection of 64-bit words
// whose output looks random.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The random word for (seed, index). It needs no state, so a request's draws depend neither on its batch nor
// on suspensions.
constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  return mix64(mix64(seed) ^ (index * 0xd1342543de82ef95u));
}

// Uniform in [0, 1), 53 bits.
constexpr double unit_interval(std::uint64_t word) {
  return static_cast<double>(word >> 11) * (1.0 / 9007199254740992.0);
}

// The number with which token number `draw` of a request is drawn, on any device.
constexpr double sample_uniform(std::uint64_t seed, std::uint64_t draw) {
  return unit_interval(random_word(seed, draw));
}

// A sequence of words. Thread-compatible.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : seed_(seed) {}
  constexpr std::uint64_t next() { return random_word(seed_, index_++); }
  // Uniform in [0, bound); bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  constexpr double unit() { return unit_interval(next()); }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

}  // namespace loci
