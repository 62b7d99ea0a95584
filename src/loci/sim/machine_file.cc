// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/machine_file.h"

#include <utility>

#include "loci/sim/fields.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/scenario.h"

namespace loci::sim {

Result<MachinePreset> read_machine_file(const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  LOCI_ASSIGN_OR_RETURN(const nlohmann::json json, parse_scenario_text(text, path));
  Status status;
  Fields fields(json, path, "", status);
  MachinePreset machine{};
  std::string comment;
  fields.read("comment", comment);
  fields.require("peak_flops", machine.peak_flops, 1e6, 1e18);
  fields.require("memory_bandwidth", machine.memory_bandwidth, 1e6, 1e18);
  fields.require("memory_bytes", machine.memory_bytes, 1e6, 1e18);
  for (const auto& [name, rate] :
       {std::pair{"link_bandwidth", &machine.link_bandwidth}, std::pair{"disk_read", &machine.disk_read},
        std::pair{"disk_write", &machine.disk_write}}) {
    double bytes = 0;
    fields.require(name, bytes, 1e3, 1e15);
    *rate = static_cast<std::uint64_t>(bytes);
  }
  fields.finish();
  LOCI_RETURN_IF_ERROR(status);
  return machine;
}

}  // namespace loci::sim
