// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/told_stream.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <ostream>  // Boost's strings need it

namespace loci {
namespace {

// In a string of JSON a quotation mark stands behind a backslash, so none of these is ever found in one.
constexpr std::string_view kChoices = "\"choices\":[";

}  // namespace

void ToldStream::Told::add(std::string_view said) {
  ++events;
  hash = XXH3_64bits_withSeed(said.data(), said.size(), hash);
}

ToldStream::Said ToldStream::read_completion(std::string_view event) const {
  if (event.starts_with("data: {\"error\":")) return {.text = event, .is_error = true};
  const std::size_t at = event.find(kChoices);
  if (at == std::string_view::npos) return {.text = event};
  const std::string_view choice = event.substr(at + kChoices.size());
  constexpr std::string_view kIndex = "{\"index\":";
  Said said{.text = choice};
  // The last one, of the usage alone.
  if (choice.starts_with(']')) said.text = kChoices;
  if (choice.starts_with(kIndex))
    std::from_chars(choice.data() + kIndex.size(), choice.data() + choice.size(), said.track);
  return said;
}

ToldStream::Said ToldStream::read_message(std::string_view event) {
  if (event.starts_with("event: error\n")) return {.text = event, .is_error = true};
  for (const std::string_view with_usage : {"event: message_start\n", "event: message_delta\n"}) {
    if (event.starts_with(with_usage)) return {.track = 0, .text = with_usage};
  }
  return {.track = 0, .text = event};
}

// The last event has the times and counts of the whole.
ToldStream::Said ToldStream::read_response(std::string_view event) {
  for (const std::string_view error : {"event: error\n", "event: response.failed\n"}) {
    if (event.starts_with(error)) return {.text = event, .is_error = true};
  }
  for (const std::string_view last : {"event: response.completed\n", "event: response.incomplete\n"}) {
    if (event.starts_with(last)) return {.track = 0, .text = last};
  }
  return {.track = 0, .text = event};
}

ToldStream::Said ToldStream::read(std::string_view event) const {
  if (api_ == RoutedApi::kResponses) return read_response(event);
  return api_ == RoutedApi::kMessages ? read_message(event) : read_completion(event);
}

ToldStream::State ToldStream::hear(const ToldPart& part) {
  if (part.kind == ToldPart::Kind::kStopped) return State::kGivenUp;
  if (!keeps_said_) return State::kGoesOn;
  if (part.kind == ToldPart::Kind::kPrompts) {
    // Tokens behind another prompt are none of this reply.
    if (prompts_ && *prompts_ != part.number) {
      for (auto& [number, track] : tracks_) track.tokens.clear();
      said_tokens_ = 0;
    }
    prompts_ = part.number;
    return State::kGoesOn;
  }
  if (part.choice >= kTracksMax) return State::kGoesOn;
  Track& track = tracks_[part.choice];
  const TokenId token(static_cast<std::uint32_t>(part.number));
  const std::size_t at = track.tokens_again++;
  if (at < track.tokens.size() && track.tokens[at] == token) return State::kGoesOn;
  said_tokens_ -= track.tokens.size() - std::min(at, track.tokens.size());
  track.tokens.resize(std::min(at, track.tokens.size()));
  track.tokens.push_back(token);
  ++said_tokens_;
  return State::kGoesOn;
}

std::string ToldStream::said() const {
  if (!prompts_ || said_tokens_ == 0) return {};
  std::vector<std::vector<TokenId>> said;
  for (const auto& [number, track] : tracks_) {
    if (track.tokens.empty()) continue;
    said.resize(number + std::size_t{1});
    said.back() = track.tokens;
  }
  return write_said(*prompts_, said);
}

void ToldStream::forget_said() {
  keeps_said_ = false;
  for (auto& [number, track] : tracks_) track.tokens = {};
  said_tokens_ = 0;
}

ToldStream::State ToldStream::push_event(std::string_view event, std::string& out) {
  if (is_told_event(event)) {
    const std::optional<ToldPart> part = read_told_event(event);
    return part ? hear(*part) : State::kGoesOn;
  }
  const Said said = read(event);
  if (said.is_error) {
    out += event;
    return State::kGoesOn;
  }
  if (tracks_.size() == kTracksMax && !tracks_.contains(said.track)) {
    is_understood_ = false;
    out += event;
    return State::kGoesOn;
  }
  Track& track = tracks_[said.track];
  if (is_again_ && track.again.events < track.told.events) {
    track.again.add(said.text);
    const bool is_all = track.again.events == track.told.events;
    return is_all && track.again.hash != track.told.hash ? State::kDiffers : State::kGoesOn;
  }
  // A reply that ends earlier than what was told.
  if (is_again_ && said.track == kRest && !has_caught_up()) return State::kDiffers;
  track.told.add(said.text);
  track.again = track.told;
  out += event;
  return State::kGoesOn;
}

ToldStream::Part ToldStream::push(std::string_view events) {
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
    out.state = push_event(events.substr(0, end + 2), out.events);
    events.remove_prefix(end + 2);
  }
  return out;
}

void ToldStream::begin_again() {
  is_again_ = true;
  for (auto& [number, track] : tracks_) {
    track.again = {};
    track.tokens_again = 0;
  }
}

bool ToldStream::has_caught_up() const {
  return std::all_of(tracks_.begin(), tracks_.end(), [](const auto& one) {
    return one.second.again.events == one.second.told.events || one.first == kRest;
  });
}

}  // namespace loci
