// SPDX-License-Identifier: Apache-2.0
// A reply that another server can go on with. A front of a cluster draws the reply's name and asks for it
// (cluster/resumed_request.h). Whatever a server would draw for the reply is made of the name, and between a
// stream's events the server tells the front which tokens it has sampled:
//
//   the first server    : loci-token 0 17    data: ..."It"...    : loci-token 0 4    data: ..." was"...
//   the front           passes the events on, and keeps 17 and 4; the client never sees them
//   another server      is told: choice 0 begins with 17, 4
//                       takes 17 for computed, samples 4 again, and goes on; its events are those of before
//
// Each mark is a comment of server-sent events. The last token is sampled again, so that the server finds
// by itself whether the reply ends with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"

namespace loci {

struct ResumedReply {
  std::string name;             // kReplyNameDigits hexadecimal digits; never used for another reply
  std::int64_t created_at = 0;  // seconds since 1970
  bool is_again = false;        // another server was asked for it before, and may have stored it
  bool was_lost = false;        // and that one ended with it, so it had admitted the request
  // What that server said: prompts_name() of its prompts, and with which tokens each choice begins. If the
  // prompts are others here (a client's history may have other tokens), the whole reply is made again.
  std::uint64_t prompts = 0;
  std::vector<std::vector<TokenId>> said;

  // In place of a random number: number `index` of those for the purpose.
  std::uint64_t drawn(std::string_view purpose, std::uint64_t index) const;
};
inline constexpr std::size_t kReplyNameDigits = 32;

// A name for the tokens of a request's prompts.
std::uint64_t prompts_name(const std::vector<std::vector<TokenId>>& prompts);

// What a server says between events; each is a whole event, without data.
struct ReplyMark {
  enum class Kind : std::uint8_t {
    kPrompts,  // `number` is prompts_name()
    kToken,    // `number` is a token of choice `choice`
    kStopped,  // the server cannot go on (its device is lost): the error that follows is not the reply's
    kDrained,  // the same, as the server was told to stop: the reply has nothing to do with it
    kPrefill,  // how the prompt's computation at another member ended, of a stream that had begun: `number`
               // is a PrefillEnd
  };
  Kind kind = Kind::kToken;
  std::uint32_t choice = 0;
  std::uint64_t number = 0;
};
std::string mark_event(const ReplyMark& mark);
// True: it is a mark, or something that a later version says; clients must not see it.
bool is_mark_event(std::string_view event);
// Absent: it is not one that is understood.
std::optional<ReplyMark> read_mark_event(std::string_view event);

// `prompts` and `said` as bytes, which read_said() takes back. Absent: the bytes are not whole.
std::string write_said(std::uint64_t prompts, const std::vector<std::vector<TokenId>>& said);
struct SaidTokens {
  std::uint64_t prompts = 0;
  std::vector<std::vector<TokenId>> said;
};
std::optional<SaidTokens> read_said(std::string_view bytes);

}  // namespace loci
