// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/said_tokens.h"

#include <utility>

#include "loci/base/random.h"

namespace loci::sim {

std::size_t SaidTokens::Hash::operator()(const std::pair<std::uint64_t, std::uint32_t>& key) const {
  return mix64(key.first ^ mix64(key.second));
}

SaidTokens::Place SaidTokens::root(const std::string& name) {
  const auto [at, fresh] = roots_.try_emplace(name, static_cast<std::uint32_t>(runs_.size()));
  if (fresh) runs_.emplace_back();
  return {at->second, 0};
}

SaidTokens::Way SaidTokens::say(Place place, std::span<const TokenId> tokens, std::vector<Piece>& pieces) {
  while (true) {
    const std::vector<TokenId>& run = runs_[place.run];
    std::size_t same = 0;
    while (same < tokens.size() && place.offset + same < run.size() &&
           run[place.offset + same] == tokens[same]) {
      ++same;
    }
    if (same > 0) pieces.push_back({place.run, static_cast<std::uint32_t>(same), place.offset});
    place.offset += static_cast<std::uint32_t>(same);
    tokens = tokens.subspan(same);
    if (tokens.empty()) return {place, pieces.size()};
    const std::pair key(std::uint64_t{place.run} << 32 | place.offset, tokens.front().value);
    const auto [at, fresh] = behind_.try_emplace(key, static_cast<std::uint32_t>(runs_.size()));
    place = {at->second, 0};
    if (!fresh) continue;
    runs_.emplace_back(tokens.begin(), tokens.end());
    const std::size_t known = pieces.size();
    const auto fresh_tokens = static_cast<std::uint32_t>(tokens.size());
    pieces.push_back({place.run, fresh_tokens});
    return {{place.run, fresh_tokens}, known};
  }
}

}  // namespace loci::sim
