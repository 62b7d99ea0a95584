// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/resumed_stream.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <ostream>  // Boost's strings need it

namespace loci {
namespace {

// In a string of JSON a quotation mark stands behind a backslash, so none of these is ever found in one.
constexpr std::string_view kChoices = "\"choices\":[";

}  // namespace

void ResumedStream::Seen::add(std::string_view text) {
  ++events;
  hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
}

ResumedStream::EventText ResumedStream::read_completion(std::string_view event) const {
  if (event.starts_with("data: {\"error\":")) return {.text = event, .is_error = true};
  const std::size_t at = event.find(kChoices);
  if (at == std::string_view::npos) return {.text = event};
  const std::string_view choice = event.substr(at + kChoices.size());
  constexpr std::string_view kIndex = "{\"index\":";
  EventText read_text{.text = choice};
  // The last one, of the usage alone.
  if (choice.starts_with(']')) read_text.text = kChoices;
  if (choice.starts_with(kIndex))
    std::from_chars(choice.data() + kIndex.size(), choice.data() + choice.size(), read_text.track);
  return read_text;
}

ResumedStream::EventText ResumedStream::read_message(std::string_view event) {
  if (event.starts_with("event: error\n")) return {.text = event, .is_error = true};
  for (const std::string_view with_usage : {"event: message_start\n", "event: message_delta\n"}) {
    if (event.starts_with(with_usage)) return {.track = 0, .text = with_usage};
  }
  return {.track = 0, .text = event};
}

// The last event has the times and counts of the whole.
ResumedStream::EventText ResumedStream::read_response(std::string_view event) {
  for (const std::string_view error : {"event: error\n", "event: response.failed\n"}) {
    if (event.starts_with(error)) return {.text = event, .is_error = true};
  }
  for (const std::string_view last : {"event: response.completed\n", "event: response.incomplete\n"}) {
    if (event.starts_with(last)) return {.track = 0, .text = last};
  }
  return {.track = 0, .text = event};
}

ResumedStream::EventText ResumedStream::read(std::string_view event) const {
  if (api_ == RoutedApi::kResponses) return read_response(event);
  return api_ == RoutedApi::kMessages ? read_message(event) : read_completion(event);
}

ResumedStream::State ResumedStream::hear(const ReplyMark& mark) {
  if (mark.kind == ReplyMark::Kind::kStopped) return State::kGivenUp;
  if (mark.kind == ReplyMark::Kind::kDrained) return State::kDrained;
  if (!keeps_said_ || mark.kind == ReplyMark::Kind::kPrefill) return State::kGoesOn;
  if (mark.kind == ReplyMark::Kind::kPrompts) {
    // Tokens behind another prompt are none of this reply.
    if (prompts_ && *prompts_ != mark.number) {
      for (auto& [number, track] : tracks_) track.tokens.clear();
      said_tokens_ = 0;
    }
    prompts_ = mark.number;
    return State::kGoesOn;
  }
  if (mark.choice >= kTracksMax) return State::kGoesOn;
  Track& track = tracks_[mark.choice];
  const TokenId token(static_cast<std::uint32_t>(mark.number));
  const std::size_t at = track.tokens_again++;
  if (at < track.tokens.size() && track.tokens[at] == token) return State::kGoesOn;
  said_tokens_ -= track.tokens.size() - std::min(at, track.tokens.size());
  track.tokens.resize(std::min(at, track.tokens.size()));
  track.tokens.push_back(token);
  ++said_tokens_;
  return State::kGoesOn;
}

std::string ResumedStream::said() const {
  if (!prompts_ || said_tokens_ == 0) return {};
  std::vector<std::vector<TokenId>> said;
  for (const auto& [number, track] : tracks_) {
    if (track.tokens.empty()) continue;
    said.resize(number + std::size_t{1});
    said.back() = track.tokens;
  }
  return write_said(*prompts_, said);
}

void ResumedStream::forget_said() {
  keeps_said_ = false;
  for (auto& [number, track] : tracks_) track.tokens = {};
  said_tokens_ = 0;
}

ResumedStream::State ResumedStream::push_event(std::string_view event, Part& out) {
  if (is_mark_event(event)) {
    const std::optional<ReplyMark> mark = read_mark_event(event);
    if (!mark) return State::kGoesOn;
    if (mark->kind == ReplyMark::Kind::kPrefill) out.prefilled = static_cast<PrefillEnd>(mark->number);
    return hear(*mark);
  }
  // It says that an instance is still at work, also while it makes again what the client has.
  if (event.starts_with(':')) {
    out.events += event;
    return State::kGoesOn;
  }
  const EventText read_text = read(event);
  if (read_text.is_error) {
    out.events += event;
    return State::kGoesOn;
  }
  if (tracks_.size() == kTracksMax && !tracks_.contains(read_text.track)) {
    is_understood_ = false;
    out.events += event;
    return State::kGoesOn;
  }
  Track& track = tracks_[read_text.track];
  if (is_again_ && track.again.events < track.seen.events) {
    track.again.add(read_text.text);
    const bool is_all = track.again.events == track.seen.events;
    return is_all && track.again.hash != track.seen.hash ? State::kDiffers : State::kGoesOn;
  }
  // A reply that ends earlier than what the client has.
  if (is_again_ && read_text.track == kRest && !has_caught_up()) return State::kDiffers;
  track.seen.add(read_text.text);
  track.again = track.seen;
  out.events += event;
  return State::kGoesOn;
}

ResumedStream::Part ResumedStream::push(std::string_view events) {
  Part out;
  while (!events.empty() && out.state == State::kGoesOn) {
    const std::size_t end = events.find("\n\n");
    if (end == std::string_view::npos) {
      // A part of an event that is too large to be held.
      if (is_again_ && !has_caught_up()) return {.state = State::kDiffers, .events = {}};
      is_understood_ = false;
      out.events += events;
      break;
    }
    out.state = push_event(events.substr(0, end + 2), out);
    events.remove_prefix(end + 2);
  }
  return out;
}

void ResumedStream::begin_again() {
  is_again_ = true;
  for (auto& [number, track] : tracks_) {
    track.again = {};
    track.tokens_again = 0;
  }
}

bool ResumedStream::has_caught_up() const {
  return std::all_of(tracks_.begin(), tracks_.end(), [](const auto& one) {
    return one.second.again.events == one.second.seen.events || one.first == kRest;
  });
}

}  // namespace loci
