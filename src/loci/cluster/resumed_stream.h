// SPDX-License-Identifier: Apache-2.0
// Remembers what a client has received of a stream of events, so that another instance's stream of the same
// reply can continue where the first one broke off. The unchanged request is sent again, with the tokens that
// the first instance said (serve/generation/resumed_reply.h), and the instance makes the whole reply again.
// Events that the client has already are compared and held back:
//
//   the client has   role  "It"  " was"               three events of choice 0
//   sent again       role  "It"  " was"  " a"  ...    three are kept back; " a" is passed on
//
// Only an event's part of the reply is compared, as counts of tokens found in each tier may differ. Events of
// different choices come in any order, so each choice is counted and compared separately. Of the events a
// count and a hash are kept, of a token four bytes.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/cluster/routed_request.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/resumed_reply.h"

namespace loci {

class ResumedStream {
 public:
  explicit ResumedStream(RoutedApi api) : api_(api) {}

  enum class State : std::uint8_t {
    kGoesOn,
    kDiffers,  // this stream differs from the one that the client received
    kGivenUp,  // the instance reports that it cannot go on: its device is lost
    kDrained,  // the same, as it was told to stop
  };
  struct Part {
    State state = State::kGoesOn;
    std::string events;                     // those that the client does not have yet
    std::optional<PrefillEnd> prefilled{};  // how the prompt's computation elsewhere ended, if it was told
  };
  // Reads whole events, as an instance wrote them. Nothing is read after an event with another result than
  // kGoesOn.
  Part push(std::string_view events);
  // Says that the next events come from another instance and begin with the reply's beginning.
  void begin_again();
  // What instances said, as write_said() writes it; empty: nothing, or it is forgotten.
  std::string said() const;
  std::size_t said_bytes() const { return said_tokens_ * sizeof(TokenId); }  // of memory
  // From now on no tokens are kept: another instance makes the reply anew.
  void forget_said();
  // True: all events that the client has received have come again.
  bool has_caught_up() const;
  // False: the client received an event that is not understood, so no stream can continue this one.
  bool is_understood() const { return is_understood_; }

 private:
  static constexpr std::uint32_t kRest = UINT32_MAX;  // the track of events that belong to no choice
  static constexpr std::size_t kTracksMax = 512;

  struct Seen {
    std::uint64_t events = 0;
    std::uint64_t hash = 0;
    void add(std::string_view text);
  };
  struct Track {
    Seen seen, again;
    std::vector<TokenId> tokens;   // that an instance said
    std::size_t tokens_again = 0;  // of them, those that the latest one said
  };
  struct EventText {
    std::uint32_t track = kRest;
    std::string_view text;  // the text that is compared
    bool is_error = false;
  };

  EventText read(std::string_view event) const;
  EventText read_completion(std::string_view event) const;
  static EventText read_message(std::string_view event);
  static EventText read_response(std::string_view event);
  State hear(const ReplyMark& mark);
  State push_event(std::string_view event, Part& out);
  const RoutedApi api_;
  std::map<std::uint32_t, Track> tracks_;
  std::optional<std::uint64_t> prompts_;  // the prompts' name, as the latest instance says
  std::size_t said_tokens_ = 0;           // of all tracks
  bool keeps_said_ = true;
  bool is_again_ = false;
  bool is_understood_ = true;
};

}  // namespace loci
