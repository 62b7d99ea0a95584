// SPDX-License-Identifier: Apache-2.0
// Fuzzes what fronts and instances say to one another of prompts (feed_wire.h): whatever comes, nothing is
// read past its end, what parses is what would be written, and no reply says what does not answer its
// question.
#include <cstdint>
#include <string_view>

#include "loci/cluster/feed/feed_wire.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

std::uint64_t word_at(const std::uint8_t* data) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= std::uint64_t{data[i]} << (8 * i);
  return word;
}

}  // namespace

// The first 16 bytes are an epoch and a number (or a place) that a question has.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 16) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 16), size - 16);
  if (const auto question = loci::read_feed_question(input); question.ok()) {
    expect(question->wait <= loci::kFeedWaitMax);
    expect(loci::write_feed_question(*question) == input);
  }
  if (const auto question = loci::read_feed_page_question(input); question.ok())
    expect(loci::write_feed_page_question(*question) == input);

  const loci::FeedQuestion question{.epoch = word_at(data), .after = word_at(data + 8)};
  if (const auto changes = loci::read_feed_changes(input, question); changes.ok()) {
    expect(changes->is_gap || changes->last == question.after + changes->changes.size());
    expect(changes->is_gap || question.epoch == 0 || changes->epoch == question.epoch);
    const loci::FeedCosts& costs = changes->costs;
    expect(costs.compute_us > 0 && costs.host_us > 0 && costs.disk_us > 0 && costs.peer_us > 0);
    expect(changes->changes.size() <= loci::kFeedEntriesMax);
    expect(loci::write_feed_changes(*changes) == input);
  }
  const loci::FeedPageQuestion from{.epoch = question.epoch,
                                    .place = static_cast<std::uint32_t>(question.after)};
  if (const auto page = loci::read_feed_page(input, from); page.ok()) {
    expect(page->next == 0 || page->next > from.place);
    expect(page->entries.size() <= loci::kFeedEntriesMax);
    for (const loci::FeedEntry& entry : page->entries) expect(entry.tier().has_value());
    expect(loci::write_feed_page(*page) == input);
  }
  return 0;
}
