// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/generation_fields.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <set>

#include "loci/model/sampling_range.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/unknown_fields.h"

namespace loci {

void read_sampling(FieldReader& reader, GenerationFields& out) {
  SamplingParams& sampling = out.sampling;
  reader.number("temperature", kTemperatureRange, sampling.temperature);
  reader.number("top_p", kTopPRange, sampling.top_p);
  reader.number("min_p", kMinPRange, sampling.min_p);
  reader.number("repeat_penalty", kRepetitionPenaltyRange, sampling.repetition_penalty);
  reader.number("repetition_penalty", kRepetitionPenaltyRange, sampling.repetition_penalty);
  reader.number("frequency_penalty", kPenaltyRange, sampling.frequency_penalty);
  reader.number("presence_penalty", kPenaltyRange, sampling.presence_penalty);
  reader.unsigned_integer("min_tokens", 0, std::numeric_limits<std::int32_t>::max(), sampling.min_tokens);
  std::optional<std::int64_t> top_k;
  reader.integer("top_k", -1, std::numeric_limits<std::int32_t>::max(), top_k);
  if (top_k) sampling.top_k = *top_k < 0 ? 0 : static_cast<std::uint32_t>(*top_k);
}

void read_seed(FieldReader& reader, GenerationFields& out) {
  const Json* seed = reader.find("seed");
  if (seed == nullptr) return;
  if (seed->is_number_unsigned()) {
    out.sampling.seed = seed->get<std::uint64_t>();
  } else if (const auto number = as_integer(*seed)) {
    // How clients of llama.cpp and vLLM ask for a random one.
    if (*number == -1) return;
    out.sampling.seed = static_cast<std::uint64_t>(*number);
  } else {
    return reader.expected("seed", "an integer of 64 bits", *seed);
  }
  out.has_seed = true;
}

void read_logit_bias(FieldReader& reader, GenerationFields& out) {
  const Json* bias = reader.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return reader.expected("logit_bias", "an object of token id to number", *bias);
  if (bias->size() > kLogitBiasMax) {
    return reader.fail("logit_bias",
                       fmt::format("expected at most {} tokens; got {}", kLogitBiasMax, bias->size()));
  }
  std::set<std::uint32_t> seen;
  for (const auto& [key, value] : bias->items()) {
    std::uint32_t token = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, token);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return reader.expected("logit_bias", "token ids as keys", Json(key));
    }
    // "5" and "05" are two members: the sampler would add what each may be alone.
    if (!seen.insert(token).second) {
      return reader.fail("logit_bias", fmt::format("expected each token once; got token {} twice", token));
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      return reader.expected(fmt::format("logit_bias.{}", token), "a number of at least -100 and at most 100",
                             value);
    }
    out.sampling.logit_bias.emplace_back(TokenId(token), value.get<float>());
  }
}

void read_stop(FieldReader& reader, std::string_view name, GenerationFields& out) {
  const Json* stop = reader.find(name);
  if (stop == nullptr) return;
  const std::string what = fmt::format("a string or an array of at most {} strings", kStopStringsMax);
  if (!stop->is_string() && !stop->is_array()) return reader.expected(name, what, *stop);
  if (stop->is_array() && stop->size() > kStopStringsMax) {
    return reader.fail(name, fmt::format("expected {}; got {}", what, stop->size()));
  }
  const auto add = [&](const Json& one, std::string_view place) {
    if (!one.is_string()) return reader.expected(place, "a string", one);
    const std::string& text = one.get_ref<const std::string&>();
    if (text.empty()) return;  // what some clients send for "none"
    if (text.size() > kStopStringBytesMax) {
      return reader.fail(place,
                         fmt::format("expected at most {} bytes; got {}", kStopStringBytesMax, text.size()));
    }
    out.stop.push_back(text);
  };
  if (stop->is_string()) return add(*stop, name);
  for (std::size_t i = 0; i < stop->size(); ++i) add((*stop)[i], fmt::format("{}[{}]", name, i));
}

void read_stop_tokens(FieldReader& reader, GenerationFields& out) {
  const Json* ids = reader.find("stop_token_ids");
  if (ids == nullptr) return;
  Result<std::vector<TokenId>> tokens = read_tokens(*ids, "stop_token_ids");
  if (!tokens.ok()) return reader.fail(tokens.status());
  if (tokens->size() > kStopTokensMax) {
    return reader.fail("stop_token_ids",
                       fmt::format("expected at most {} tokens; got {}", kStopTokensMax, tokens->size()));
  }
  out.stop_token_ids = std::move(*tokens);
}

// What is Loci's own.
void read_loci(FieldReader& reader, GenerationFields& out) {
  const Json* loci = reader.find("loci");
  if (loci == nullptr) return;
  FieldReader nested(*loci, "loci");
  nested.boolean("explain", out.explain);
  if (!nested.ok()) reader.fail(nested.status());
}

// As vLLM has it: who does not know the salt finds nothing of what was said with it.
void read_cache_salt(FieldReader& reader, GenerationFields& out) {
  const Json* salt = reader.find("cache_salt");
  if (salt == nullptr) return;
  const bool fits = salt->is_string() && !salt->empty() && salt->get_ref<const std::string&>().size() > 0 &&
                    salt->get_ref<const std::string&>().size() <= kCacheSaltBytesMax;
  if (!fits) {
    return reader.expected("cache_salt", fmt::format("a string of 1 to {} bytes", kCacheSaltBytesMax), *salt);
  }
  out.cache_salt = salt->get<std::string>();
}

void check_min_tokens(FieldReader& reader, std::string_view name, const GenerationFields& fields) {
  if (!fields.max_tokens || fields.sampling.min_tokens <= *fields.max_tokens) return;
  reader.fail("min_tokens", fmt::format("expected at most {} ({}); got {}", name, *fields.max_tokens,
                                        fields.sampling.min_tokens));
}

namespace {

void read_max_tokens(FieldReader& reader, GenerationFields& out) {
  // An echo alone, of text completions, needs no reply.
  const Json* echo = reader.find("echo");
  const std::int64_t least = echo != nullptr && *echo == true ? 0 : 1;
  // The newer name wins where several are given. -1 is no limit, as with llama.cpp and LM Studio.
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    std::optional<std::int64_t> value;
    reader.integer(name, -1, std::numeric_limits<std::int32_t>::max(), value);
    if (value == 0 && least > 0) reader.fail(name, "expected -1 (no limit) or at least 1; got 0");
    if (!value) continue;
    out.is_unlimited = *value < 0;
    out.max_tokens = out.is_unlimited ? std::nullopt : std::optional(static_cast<std::uint32_t>(*value));
  }
  check_min_tokens(reader, "max_tokens", out);
}

void read_stream(FieldReader& reader, GenerationFields& out) {
  reader.boolean("stream", out.stream);
  const Json* options = reader.find("stream_options");
  if (options == nullptr) return;
  FieldReader nested(*options, "stream_options");
  nested.boolean("include_usage", out.include_usage);
  nested.boolean("continuous_usage_stats", out.continuous_usage);
  bool obfuscation = false;  // nothing is added to chunks
  nested.boolean("include_obfuscation", obfuscation);
  if (!nested.ok()) return reader.fail(nested.status());
  if (!out.stream) reader.fail("stream_options", "is only allowed where stream is true");
}

constexpr auto kGenerationNames = std::to_array<std::string_view>({
    "best_of",
    "cache_salt",
    "echo",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "loci",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "n_predict",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "repeat_penalty",
    "repetition_penalty",
    "request_id",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "stop_token_ids",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    "user",
    "verbosity",
    // What constrains a reply.
    "ebnf",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "regex",
    "structured_outputs",
});

// Members of the objects among them.
struct KnownMembers {
  std::string_view path;
  std::span<const std::string_view> names;
};
constexpr auto kStreamNames =
    std::to_array<std::string_view>({"continuous_usage_stats", "include_obfuscation", "include_usage"});
constexpr auto kFormatNames = std::to_array<std::string_view>({"json_schema", "schema", "type"});
constexpr auto kSchemaNames = std::to_array<std::string_view>({"description", "name", "schema", "strict"});
constexpr auto kStructuredNames = std::to_array<std::string_view>(
    {"choice", "disable_additional_properties", "disable_any_whitespace", "grammar", "json", "json_object",
     "regex", "structural_tag", "whitespace_pattern"});
constexpr auto kLociNames = std::to_array<std::string_view>({"explain"});
constexpr auto kInnerNames = std::to_array<KnownMembers>({
    {"loci", kLociNames},
    {"response_format", kFormatNames},
    {"response_format.json_schema", kSchemaNames},
    {"stream_options", kStreamNames},
    {"structured_outputs", kStructuredNames},
});

}  // namespace

std::span<const std::string_view> generation_field_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names(kGenerationNames.begin(), kGenerationNames.end());
    names.insert(names.end(), unserved_field_names().begin(), unserved_field_names().end());
    return names;
  }();
  return kNames;
}

std::vector<std::string> unknown_generation_fields(const Json& request,
                                                   std::span<const std::string_view> own) {
  std::vector<std::string> out = unknown_fields(request, {generation_field_names(), own});
  for (const KnownMembers& one : kInnerNames) {
    std::vector<std::string> inner = unknown_members(request, one.path, one.names);
    out.insert(out.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
  }
  return out;
}

void read_generation_fields(FieldReader& reader, const RequestDefaults& defaults, GenerationFields& out,
                            std::span<const std::string_view> served) {
  out.sampling = defaults.sampling;
  reader.text("model", out.model);
  read_sampling(reader, out);
  read_seed(reader, out);
  read_logit_bias(reader, out);
  read_stop(reader, "stop", out);
  read_stop_tokens(reader, out);
  read_max_tokens(reader, out);
  read_stream(reader, out);
  read_loci(reader, out);
  reader.boolean("ignore_eos", out.ignore_eos);
  // Accepted and not used: their types are checked all the same.
  std::string unused;
  for (const char* name : {"user", "prompt_cache_key", "safety_identifier", "service_tier", "request_id"})
    reader.text(name, unused);
  reader.unsigned_integer("n", 1, kChoicesMax, out.choices);
  read_constraint(reader, out.constraint);
  read_cache_salt(reader, out);
  out.ignored = refuse_unserved(reader, defaults.unserved, served);
}

void refuse_completion_fields(FieldReader& reader, const GenerationFields& fields) {
  const auto refuse = [&](const char* name, const Json& value) {
    reader.fail(name, fmt::format("belongs to /v1/completions; leave it out (got {})", json_excerpt(value)));
  };
  if (const Json* echo = reader.find("echo"); echo != nullptr && *echo != false && *echo != 0)
    refuse("echo", *echo);
  const Json* best_of = reader.find("best_of");
  if (best_of != nullptr && as_integer(*best_of) != fields.choices) refuse("best_of", *best_of);
}

Result<std::vector<TokenId>> read_tokens(const Json& array, std::string_view field) {
  if (!array.is_array()) {
    return invalid_argument(fmt::format("expected an array of token ids; got {}", json_excerpt(array)),
                            std::string(field));
  }
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const std::optional<std::int64_t> id = as_integer(array[i]);
    if (!id || *id < 0 || *id > std::numeric_limits<std::uint32_t>::max()) {
      return invalid_argument(fmt::format("expected a token id; got {}", json_excerpt(array[i])),
                              fmt::format("{}[{}]", field, i));
    }
    tokens.emplace_back(static_cast<std::uint32_t>(*id));
  }
  return tokens;
}

Status check_tokens(const std::vector<TokenId>& tokens, std::uint32_t vocabulary, std::string_view field) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].value >= vocabulary) {
      return invalid_argument(fmt::format("expected a token id below {} (the vocabulary's size); got {}",
                                          vocabulary, tokens[i].value),
                              fmt::format("{}[{}]", field, i));
    }
  }
  return {};
}

}  // namespace loci
