// SPDX-License-Identifier: Apache-2.0
#include "loci/base/available_memory.h"

#include "loci/base/control_group.h"

namespace loci {
Result<AvailableMemory> read_available_memory(const std::string& root) {
  const std::string meminfo = read_system_file(root + "/proc/meminfo").value_or("");
  const auto kib = find_number(meminfo, "MemAvailable:");
  if (!kib) {
    return Status(StatusCode::kUnavailable, "this machine does not tell how much memory is available");
  }
  AvailableMemory memory{.bytes = *kib * 1024,
                         .total_bytes = find_number(meminfo, "MemTotal:").value_or(*kib) * 1024,
                         .limited_by = "the machine"};
  for (const GroupMemory& group : memory_limits(root)) {
    if (group.available_bytes() >= memory.bytes) continue;
    memory = {.bytes = group.available_bytes(),
              .total_bytes = group.limit_bytes,
              .limited_by = "control group " + group.group};
  }
  return memory;
}

}  // namespace loci
