// SPDX-License-Identifier: Apache-2.0
// The message by which a member has another one compute a prompt (serve/generation/prefill.h;
// docs/cluster.md#prompts-and-replies-on-separate-servers has the bytes). The reply comes in lines: one after
// each pass that computes some of the prompt, and with each pulse, so that a silent member is told from a
// slow one, and a last one that says how it ended.
//
// The reader trusts no count or length. Values; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/generation/prefill.h"

namespace loci {

inline constexpr std::string_view kPrefillPath = "/peers/3/prefill";
inline constexpr std::size_t kPrefillTokensMax = std::size_t{1} << 20;
inline constexpr std::size_t kPrefillNamesMax = 4'096;        // of the text's chunks, and of its ends
inline constexpr std::size_t kPrefillTenantBytesMax = 4'096;  // of the tenant, and of the salt
inline constexpr std::size_t kPrefillHeadBytes = 8 * 4 + 3 * 8;
// Of a message with all of these.
inline constexpr std::size_t kPrefillBodyBytesMax =
    kPrefillHeadBytes + 2 * kPrefillTenantBytesMax + 4 * kPrefillTokensMax + 2 * 8 * kPrefillNamesMax;

// u32 weight, u32 queued_max, u32 bytes of the tenant's name, u32 of the salt, u32 tokens, u32 chunks, u32
// ends, u32 milliseconds of a pulse, u64 bytes of a chunk, u64 of the text, u64 the tenant's number in the
// text's names; then the tenant, the salt, u32 each token, u64 each chunk, u64 each end. A text without names
// has no chunks and no ends.
std::string write_prefill(const PrefillWork& work);
// Errors: kInvalidArgument naming the field.
Result<PrefillWork> read_prefill(std::string_view body);

// What a line of the reply says.
struct PrefillNews {
  enum class Says : std::uint8_t {
    kWaits,     // "w": in the queue
    kComputes,  // "c TOKENS": the state of the prompt's first ones can be read
    kDone,      // "d TOKENS": so many were computed; it had the others
    kRefused,   // "r"
    kBroke,     // "b": it did not come to its end
    kUnable,    // "u": this member computes nothing now: it stops, or its device is lost
  };
  Says says = Says::kWaits;
  std::uint32_t tokens = 0;  // of kComputes and kDone
  bool is_last() const { return says != Says::kWaits && says != Says::kComputes; }
  friend bool operator==(const PrefillNews&, const PrefillNews&) = default;
};
inline constexpr std::size_t kPrefillLineBytesMax = 16;  // with its end
// With the line's end.
std::string write_prefill_news(const PrefillNews& news);
// `line` without its end. None: it is no such line.
std::optional<PrefillNews> read_prefill_news(std::string_view line);

}  // namespace loci
