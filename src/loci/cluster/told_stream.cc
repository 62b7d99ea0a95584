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
constexpr std::string_view kCreated = "\"created\":";
constexpr std::string_view kId = "\"id\":\"";

// Where the digits of "created" stand; empty: nowhere.
std::string_view created_of(std::string_view event) {
  const std::size_t at = event.substr(0, event.find(kChoices)).find(kCreated);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = event.substr(at + kCreated.size());
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return rest.substr(
      0, static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), digit) - rest.begin()));
}

// Of an error that another instance may not meet: this one stops, or has lost its device.
bool is_given_up(std::string_view error) {
  return error.find(R"("code":"unavailable")") != std::string_view::npos ||
         error.find(R"("type":"overloaded_error")") != std::string_view::npos;
}

}  // namespace

void ToldStream::Told::add(std::string_view said) {
  ++events;
  while (true) {
    const std::size_t at = said.find(kId);
    const std::size_t begin = at == std::string_view::npos ? said.size() : at + kId.size();
    hash = XXH3_64bits_withSeed(said.data(), begin, hash);
    const std::size_t end = said.find('"', begin);
    if (end == std::string_view::npos) return;
    said.remove_prefix(end);
  }
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

ToldStream::Said ToldStream::read(std::string_view event) const {
  return api_ == RoutedApi::kMessages ? read_message(event) : read_completion(event);
}

void ToldStream::pass_on(std::string_view event, std::string& out) {
  const std::string_view created = api_ == RoutedApi::kOpenAi ? created_of(event) : std::string_view();
  if (created.empty()) {
    out += event;
    return;
  }
  if (created_.empty()) created_ = created;
  const auto at = static_cast<std::size_t>(created.data() - event.data());
  out += event.substr(0, at);
  out += created_;
  out += event.substr(at + created.size());
}

ToldStream::State ToldStream::push_event(std::string_view event, std::string& out) {
  const Said said = read(event);
  if (said.is_error) {
    if (is_given_up(said.text)) return State::kGivenUp;
    pass_on(event, out);
    return State::kGoesOn;
  }
  if (tracks_.size() == kTracksMax && !tracks_.contains(said.track)) {
    is_understood_ = false;
    pass_on(event, out);
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
  pass_on(event, out);
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
  for (auto& [number, track] : tracks_) track.again = {};
}

bool ToldStream::has_caught_up() const {
  return std::all_of(tracks_.begin(), tracks_.end(), [](const auto& one) {
    return one.second.again.events == one.second.told.events || one.first == kRest;
  });
}

}  // namespace loci
