// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/prices.h"

#include <fmt/format.h>

#include <cmath>

#include "loci/sim/fields.h"
#include "loci/sim/json_text.h"

namespace loci::sim {
namespace {

constexpr double kPriceMax = 1e9;
constexpr double kSizeMaxGb = 1e9;
constexpr double kHostStepGb = 8, kDiskStepGb = 64;  // the least sizes above none

void read_price(Fields& fields, const char* name, double& price) {
  if (!fields.has(name))
    return fields.wrong(name, fmt::format("a number from 0 to {}", kPriceMax), "nothing");
  fields.read(name, price, 0, kPriceMax);
}

void read_sizes(Fields& fields, const char* name, double least_gb, double state_gb,
                std::vector<double>& sizes) {
  if (!fields.has(name)) {
    sizes = {0};
    for (double size = least_gb; sizes.back() < state_gb && sizes.size() < kSizesMax; size *= 2)
      sizes.push_back(size);
    return;
  }
  const nlohmann::json& list = fields.raw(name);
  const std::string expected =
      fmt::format("1 to {} numbers from 0 to {}, each more than the one before", kSizesMax, kSizeMaxGb);
  if (!list.is_array() || list.empty() || list.size() > kSizesMax) {
    return fields.wrong(name, expected,
                        list.is_array() ? fmt::format("{} of them", list.size()) : shown(list));
  }
  for (const nlohmann::json& one : list) {
    const double size = one.is_number() ? one.get<double>() : std::nan("");
    if (!(size >= 0 && size <= kSizeMaxGb) || (!sizes.empty() && size <= sizes.back()))
      return fields.wrong(name, expected, shown(one));
    sizes.push_back(size);
  }
}

}  // namespace

TierCosts Prices::costs(std::uint32_t machines) const {
  TierCosts costs;
  for (const double size : host_gb) costs.host.push_back(machines * size * host_gb_hour);
  for (const double size : disk_gb) costs.disk.push_back(machines * size * disk_gb_hour);
  return costs;
}

Result<Prices> parse_prices(const nlohmann::json& json, const std::string& file, double state_gb) {
  Status status;
  Fields fields(json, file, "", status);
  Prices prices;
  std::string comment;
  fields.read("comment", comment);
  fields.read("currency", prices.currency);
  fields.read("machine_hour", prices.machine_hour, 0, kPriceMax);
  read_price(fields, "host_gb_hour", prices.host_gb_hour);
  read_price(fields, "disk_gb_hour", prices.disk_gb_hour);
  read_sizes(fields, "host_gb", kHostStepGb, state_gb, prices.host_gb);
  read_sizes(fields, "disk_gb", kDiskStepGb, state_gb, prices.disk_gb);
  fields.finish();
  LOCI_RETURN_IF_ERROR(status);
  return prices;
}

}  // namespace loci::sim
