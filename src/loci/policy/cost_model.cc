#include "loci/policy/cost_model.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace loci {
namespace {

Nanos transfer(const LinkCost& link, std::uint64_t bytes) {
  const auto nanos = static_cast<unsigned __int128>(bytes) * kNanosPerSecond /
                     std::max<std::uint64_t>(1, link.bytes_per_second);
  return link.latency +
         static_cast<Nanos>(std::min<unsigned __int128>(nanos, std::numeric_limits<Nanos>::max() / 4));
}

}  // namespace

Nanos CostModel::attention(std::uint32_t before) const {
  const std::vector<Nanos>& at = curves_.attention;
  if (before == 0) return 0;
  const auto power = static_cast<std::size_t>(std::bit_width(before) - 1);
  if (power + 1 >= at.size()) {
    const auto last = at.size() - 1;
    return static_cast<Nanos>(static_cast<__int128>(at[last]) * before / (std::int64_t{1} << last));
  }
  const std::int64_t low = std::int64_t{1} << power;
  return at[power] +
         static_cast<Nanos>(static_cast<__int128>(at[power + 1] - at[power]) * (before - low) / low);
}

// The mean of the ends: between powers of two the curve is straight, and ranges are short beside them.
Nanos CostModel::compute(std::uint32_t begin, std::uint32_t count) const {
  if (count == 0) return 0;
  const Nanos middle = (attention(begin) + attention(begin + count - 1)) / 2;
  return (curves_.token + middle) * count;
}

Nanos CostModel::pass(std::uint32_t rows, std::uint64_t context) const {
  if (rows == 0) return 0;
  const auto mean = static_cast<std::uint32_t>(std::min<std::uint64_t>(context / rows, UINT32_MAX));
  return std::max(curves_.pass, curves_.token * rows) + attention(mean) * rows;
}

Nanos CostModel::load(Tier from, std::uint64_t bytes) const {
  if (from == Tier::kDevice) return 0;
  return transfer(from == Tier::kHost ? curves_.host_load : curves_.disk_read, bytes);
}

Nanos CostModel::save(Tier to, std::uint64_t bytes) const {
  if (to == Tier::kDevice) return 0;
  return transfer(to == Tier::kHost ? curves_.host_save : curves_.disk_write, bytes);
}

}  // namespace loci
