// SPDX-License-Identifier: Apache-2.0
// The fields that chat and text completions share, as plain values. No networking here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/engine/run/sampler.h"
#include "loci/serve/conversation/response_format.h"
#include "loci/serve/generation/unserved_fields.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Limits of a request, beside those of its body.
inline constexpr std::uint32_t kChoicesMax = 16;          // n
inline constexpr std::uint32_t kPromptsMax = 256;         // prompts of one request
inline constexpr std::uint32_t kRequestChoicesMax = 256;  // n * prompts
inline constexpr std::uint32_t kStopStringsMax = 16;
inline constexpr std::uint32_t kStopStringBytesMax = 1024;
inline constexpr std::uint32_t kStopTokensMax = 256;
inline constexpr std::uint32_t kLogitBiasMax = 1024;
inline constexpr std::uint32_t kTopLogprobsMax = 20;

inline constexpr std::size_t kCacheSaltBytesMax = 256;

// The server's values for fields that a request leaves out.
struct RequestDefaults {
  SamplingParams sampling;
  UnservedRule unserved = UnservedRule::kRefuse;
};

struct GenerationFields {
  std::string model;                        // empty: whatever is served
  SamplingParams sampling;                  // seed is set only where has_seed
  bool has_seed = false;                    // without: each choice draws its own
  std::optional<std::uint32_t> max_tokens;  // absent: the rest of the context
  bool is_unlimited = false;                // that was asked for
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;                // a last chunk with the usage
  bool continuous_usage = false;             // every chunk with the usage so far
  bool explain = false;                      // the reply says where its prompts' state came from
  std::uint32_t choices = 1;                 // n
  std::optional<ConstraintSpec> constraint;  // what the reply must be
  std::string cache_salt;                    // state is shared only with requests of the same one
  // What the request wishes for and does not get: fields that would be refused, under the option lenient, and
  // tools that a service would run.
  std::vector<std::string> ignored;
};

// Reads everything but `logprobs`, whose shape the two APIs don't share, and refuses by name the fields
// that would change the reply and that Loci does not serve, but for those that this API alone serves.
void read_generation_fields(FieldReader& reader, const RequestDefaults& defaults, GenerationFields& out,
                            std::span<const std::string_view> served = {});

// Parts of read_generation_fields(), for the APIs that have some of these fields.
void read_sampling(FieldReader& reader, GenerationFields& out);  // all but seed and logit_bias
void read_seed(FieldReader& reader, GenerationFields& out);
void read_logit_bias(FieldReader& reader, GenerationFields& out);
// `name`: a string or an array of strings.
void read_stop(FieldReader& reader, std::string_view name, GenerationFields& out);
void read_stop_tokens(FieldReader& reader, GenerationFields& out);
void read_loci(FieldReader& reader, GenerationFields& out);
void read_cache_salt(FieldReader& reader, GenerationFields& out);
// min_tokens is no more than the limit, which stands in the field `name`.
void check_min_tokens(FieldReader& reader, std::string_view name, const GenerationFields& fields);

// The names of all that read_generation_fields() knows, read or accepted and not used.
std::span<const std::string_view> generation_field_names();

// The names of members that nothing reads, for the log: of the request, whose API has the fields `own` too,
// and of the objects in it ("stream_options.include_usages").
std::vector<std::string> unknown_generation_fields(const Json& request,
                                                   std::span<const std::string_view> own);

// Refuses the fields that only text completions have and that would change the reply: echo, best_of.
void refuse_completion_fields(FieldReader& reader, const GenerationFields& fields);

// Array of token ids, each checked to be one of a vocabulary of 2^32 at most; the vocabulary's own size
// is checked where it is known (check_tokens).
Result<std::vector<TokenId>> read_tokens(const Json& array, std::string_view field);

// Errors: kInvalidArgument naming the first token that is not in the vocabulary.
Status check_tokens(const std::vector<TokenId>& tokens, std::uint32_t vocabulary, std::string_view field);

}  // namespace loci
