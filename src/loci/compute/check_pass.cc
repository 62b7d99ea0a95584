// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/check_pass.h"

#include "loci/base/check.h"

namespace loci {
namespace {

void check_table(const Span& span, const BlockTable& table, std::uint32_t window, std::uint32_t slots) {
  LOCI_CHECK(table.blocks.size() * kBlockTokens >= span.position + span.tokens.size(),
             "a block table is too short");
  for (std::size_t i = first_visible(window, span.position) / kBlockTokens; i < table.blocks.size(); ++i) {
    LOCI_CHECK(table.blocks[i].value < slots, "a slot outside the pool");
  }
}

void check_span(const Span& span, std::uint32_t layers, std::span<const LayerGroup> groups,
                std::span<const std::uint32_t> slots) {
  LOCI_CHECK(!span.tokens.empty(), "a span has a token");
  LOCI_CHECK(span.layers.begin == 0 && span.layers.end > 0 && span.layers.end <= layers,
             "a span starts at layer 0");
  LOCI_CHECK(span.logits == LogitsWanted::kNone || span.layers.end == layers, "logits need all layers");
  LOCI_CHECK(!span.sampling || span.logits == LogitsWanted::kLast, "the last logits are sampled");
  LOCI_CHECK(!span.token_of || span.tokens.size() == 1, "a sample is one token");
  LOCI_CHECK(span.tables.size() == groups.size(), "one block table a group");
  for (std::size_t g = 0; g < groups.size(); ++g)
    check_table(span, span.tables[g], groups[g].window, slots[g]);
  LOCI_CHECK(span.capture.empty() || span.capture.size() == span.layers.end, "one capture buffer a layer");
}

}  // namespace

void check_pass(const Pass& pass, std::uint32_t layers, std::span<const LayerGroup> groups,
                std::span<const std::uint32_t> slots) {
  for (const BlockCopy& copy : pass.copies) {
    LOCI_CHECK(copy.group < groups.size(), "no such group");
    LOCI_CHECK(copy.from.value < slots[copy.group] && copy.to.value < slots[copy.group],
               "a slot outside the pool");
    LOCI_CHECK(copy.tokens <= kBlockTokens, "a block has 32 tokens");
  }
  for (const Span& span : pass.spans) check_span(span, layers, groups, slots);
}

}  // namespace loci
