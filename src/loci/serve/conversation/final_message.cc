// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/final_message.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace loci {
namespace {

constexpr std::string_view kMark = "LOCI_END_OF_THE_FINAL_MESSAGE ";
constexpr std::string_view kTrimmedMark = kMark.substr(0, kMark.size() - 1);
constexpr std::string_view kBlanks = " \n\r\t\f\v";

// The bytes of white space at a text's end.
std::size_t blank_bytes(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kBlanks);
  return text.size() - (last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

void mark_final_message(Conversation& conversation) { conversation.messages.back().content += kMark; }

Status cut_at_mark(std::string_view text, std::vector<ChatSegment>& segments) {
  // From the end: a client's own text may spell the mark.
  for (std::size_t i = segments.size(); i-- > 0;) {
    std::string& rendered = segments[i].text;
    const std::size_t at = rendered.rfind(kTrimmedMark);
    if (at == std::string::npos) continue;
    const bool trims = !std::string_view(rendered).substr(at).starts_with(kMark);
    rendered.resize(at);
    // No more than the message has: what stands before it is the template's.
    if (trims) rendered.resize(at - std::min(blank_bytes(rendered), blank_bytes(text)));
    segments[i].control.reset();
    segments.resize(i + 1);
    return {};
  }
  return invalid_argument(
      "the model's chat template does not write the last message to its end, so no reply can go on with it");
}

}  // namespace loci
