// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/numa.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace loci::cpu {

namespace {

constexpr std::uint32_t kMaxNodes = 1024;  // as many as Linux knows
constexpr int kInterleave = 3;             // MPOL_INTERLEAVE of <linux/mempolicy.h>

std::vector<std::uint32_t> read_number_list(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_number_list(line);
}

}  // namespace

std::vector<std::uint32_t> parse_number_list(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::uint32_t first = 0, last = 0;
    std::from_chars_result read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return {};
    last = first;
    if (read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || last < first || last - first > (1u << 16)) return {};
    for (std::uint32_t number = first; number <= last; ++number) numbers.push_back(number);
    if (read.ptr < end && *read.ptr != ',') return {};
    at = read.ptr + 1;
  }
  return numbers;
}

const std::vector<std::uint32_t>& memory_nodes() {
  static const std::vector<std::uint32_t> nodes = [] {
    std::vector<std::uint32_t> found = read_number_list("/sys/devices/system/node/has_memory");
    std::erase_if(found, [](std::uint32_t node) { return node >= kMaxNodes; });
    return found.empty() ? std::vector<std::uint32_t>{0} : found;
  }();
  return nodes;
}

void interleave_pages(void* data, std::size_t size) {
  if (memory_nodes().size() < 2) return;
  constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  unsigned long mask[kMaxNodes / kWordBits] = {};
  for (const std::uint32_t node : memory_nodes()) mask[node / kWordBits] |= 1ul << (node % kWordBits);
  // Where the system refuses (a container's rules), pages lie where they are first touched.
  syscall(SYS_mbind, data, size, kInterleave, mask, kMaxNodes + 1, 0);
}

void keep_to_node(std::uint32_t thread, std::uint32_t threads) {
  const std::vector<std::uint32_t>& nodes = memory_nodes();
  if (nodes.size() < 2) return;
  const std::uint32_t node = nodes[std::uint64_t{thread} * nodes.size() / threads];
  cpu_set_t allowed, chosen;
  CPU_ZERO(&chosen);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (const std::uint32_t cpu :
       read_number_list(fmt::format("/sys/devices/system/node/node{}/cpulist", node))) {
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &chosen);
  }
  if (CPU_COUNT(&chosen) > 0) sched_setaffinity(0, sizeof chosen, &chosen);
}

}  // namespace loci::cpu
