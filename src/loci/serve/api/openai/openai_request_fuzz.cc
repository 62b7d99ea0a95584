// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of any request: no crash, no endless work, and what is accepted keeps its limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/api/openai/completion_request.h"
#include "loci/serve/api/openai/token_request.h"
#include "loci/serve/wire/json_parse.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const loci::GenerationFields& fields) {
  const loci::SamplingParams& sampling = fields.sampling;
  require(sampling.temperature >= 0 && sampling.top_p > 0 && sampling.top_p <= 1);
  require(sampling.min_p >= 0 && sampling.min_p <= 1 && sampling.repetition_penalty > 0);
  require(fields.choices >= 1 && fields.choices <= loci::kChoicesMax);
  require(!fields.max_tokens || *fields.max_tokens >= 1);
  require(fields.stop.size() <= loci::kStopStringsMax && sampling.top_logprobs <= loci::kTopLogprobsMax);
}

// A refusal has a message that can be sent.
void check(const loci::Status& status) {
  require(!status.message().empty() && status.message().size() < 4096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto json = loci::parse_json(body);
  if (!json.ok()) {
    check(json.status());
    return 0;
  }
  if (const auto chat = loci::parse_chat_request(*json); chat.ok())
    check(chat.value().fields);
  else
    check(chat.status());
  if (const auto text = loci::parse_completion_request(*json); text.ok()) {
    check(text.value().fields);
    require(!text.value().prompts.empty());
  } else {
    check(text.status());
  }
  if (const auto tokens = loci::parse_tokenize_request(*json); !tokens.ok()) check(tokens.status());
  if (const auto tokens = loci::parse_detokenize_request(*json); !tokens.ok()) check(tokens.status());
  return 0;
}
