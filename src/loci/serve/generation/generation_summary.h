// SPDX-License-Identifier: Apache-2.0
// What is told of a generation after its end: by the access log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/reply_format.h"

namespace loci {

struct GenerationSummary {
  ReplyUsage usage;
  std::size_t choices = 0;
  std::optional<Nanos> first_token;  // from the request's last byte
  Nanos duration = 0;
  bool client_left = false;
  bool cut_off = false;  // by the server, which stopped at once; not by the client
  // Of the first choice, or "failed": the stream ended with an error. Static storage.
  std::string_view finish_reason;
  PrefillEnd prefill = PrefillEnd::kNone;  // what became of the prompt at another member
  Nanos prefill_wait = 0;                  // for that one
  std::uint32_t prefill_early = 0;         // tokens whose state was read from it meanwhile
};

}  // namespace loci
