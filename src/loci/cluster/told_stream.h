// SPDX-License-Identifier: Apache-2.0
// What a client was told by a stream of events, so that another instance's stream of the same reply can go on
// where the first one broke off. The request is sent again as it was, and makes the whole reply anew; what
// the client has already is compared and kept back:
//
//   the client has   role  "It"  " was"               three events of choice 0
//   sent again       role  "It"  " was"  " a"  ...    three are kept back; " a" is passed on
//
// Compared is what an event says of the reply. When it was begun, random ids of calls, and how many tokens
// were found in which memory differ without meaning. Events of different choices come in any order, so each
// choice is counted and compared for itself. Of what was told only a count and a hash are kept: a choice
// costs less than 100 bytes.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "loci/cluster/routed_request.h"

namespace loci {

class ToldStream {
 public:
  // Of chat completions, text completions or messages.
  explicit ToldStream(RoutedApi api) : api_(api) {}

  enum class State : std::uint8_t {
    kGoesOn,
    kDiffers,  // this stream is not the one that the client was told
    kGivenUp,  // the instance says that it can't go on: it stops, or its device is lost
  };
  struct Part {
    State state = State::kGoesOn;
    std::string events;  // that the client does not have yet
  };
  // Whole events, as an instance wrote them. Behind one that says anything but kGoesOn nothing is read.
  Part push(std::string_view events);
  // The next events are another instance's, from the beginning of the reply on.
  void begin_again();
  // All that the client was told has come again.
  bool has_caught_up() const;
  // False: something was told that is not understood, so that nothing can go on from it.
  bool is_understood() const { return is_understood_; }

 private:
  static constexpr std::uint32_t kRest = UINT32_MAX;  // the track of events that belong to no choice
  static constexpr std::size_t kTracksMax = 512;

  struct Told {
    std::uint64_t events = 0;
    std::uint64_t hash = 0;
    void add(std::string_view said);
  };
  struct Track {
    Told told, again;
  };
  struct Said {
    std::uint32_t track = kRest;
    std::string_view text;  // what is compared
    bool is_error = false;
  };

  Said read(std::string_view event) const;
  Said read_completion(std::string_view event) const;
  static Said read_message(std::string_view event);
  State push_event(std::string_view event, std::string& out);
  // With the time of the first stream.
  void pass_on(std::string_view event, std::string& out);

  const RoutedApi api_;
  std::map<std::uint32_t, Track> tracks_;
  std::string created_;  // of the first event
  bool is_again_ = false;
  bool is_understood_ = true;
};

}  // namespace loci
