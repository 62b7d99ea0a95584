// SPDX-License-Identifier: Apache-2.0
// What is told of a generation after its end: by the access log, and by the spans of traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/serve/generation/prefill.h"
#include "loci/serve/generation/reply_format.h"

namespace loci {

struct GenerationSummary {
  ReplyUsage usage;
  std::size_t choices = 0;
  // All from the request's last byte. Of the first choice that was admitted or had a token, and of the last
  // token of all; absent: there was none.
  std::optional<Nanos> admitted = {}, first_token = {}, last_token = {};
  Nanos duration = 0;
  bool client_left = false;
  bool cut_off = false;  // by the server, which stopped at once; not by the client
  // Of the first choice, or "failed": the stream ended with an error. Static storage.
  std::string_view finish_reason = {};
  std::vector<std::string_view> finish_reasons = {};  // of all choices, if they ended
  std::string model_asked, model;                     // as the request names it, if it does; as it is served
  PrefillEnd prefill = PrefillEnd::kNone;             // what became of the prompt at another member
  Nanos prefill_wait = 0;                             // for that one
  std::uint32_t prefill_early = 0;                    // tokens whose state was read from it meanwhile
};

}  // namespace loci
