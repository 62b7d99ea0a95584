// SPDX-License-Identifier: Apache-2.0
// Memory nodes of a big machine. On a machine with one node nothing here has an effect.
//
// Weights and blocks are read by all threads alike, so their pages are spread over the nodes in turn, and
// each product uses the memory controllers of all nodes. Each thread keeps to one node. So do the buffers
// that only this thread uses, because the system places a page where it is first touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace loci::cpu {

// Parses "0-2,5", as the system writes lists of nodes and processors. Empty: the text is no such list.
std::vector<std::uint32_t> parse_number_list(std::string_view text);

// The nodes that have memory, ascending; at least one.
const std::vector<std::uint32_t>& memory_nodes();

// Spreads pages that nobody has touched yet over all nodes.
void interleave_pages(void* data, std::size_t size);

// Keeps the calling thread, number `thread` of `threads`, to those processors of one node that the process
// may use. Neighbouring threads share a node.
void keep_to_node(std::uint32_t thread, std::uint32_t threads);

}  // namespace loci::cpu
