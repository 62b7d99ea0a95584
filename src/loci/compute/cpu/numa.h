// SPDX-License-Identifier: Apache-2.0
// Memory nodes of a big machine. Where there is one node, nothing here has an effect.
//
// Weights and blocks are read by all threads alike, so their pages are spread over the nodes in turn: each
// product then uses the memory controllers of all. Threads keep to a node each, and so do the buffers that
// they alone use, by the system's rule that a page lies where it is first touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace loci::cpu {

// "0-2,5" as the system writes lists of nodes and processors; empty where it is none.
std::vector<std::uint32_t> parse_number_list(std::string_view text);

// The nodes that have memory, ascending; at least one.
const std::vector<std::uint32_t>& memory_nodes();

// Spreads pages that nobody has touched yet over all nodes.
void interleave_pages(void* data, std::size_t size);

// Keeps the calling thread, the `thread`th of `threads`, to the processors of one node, as far as the
// process may use them. Neighbouring threads share a node.
void keep_to_node(std::uint32_t thread, std::uint32_t threads);

}  // namespace loci::cpu
