// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/unserved_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// (To nlohmann's empty() no text is empty.)
bool is_empty_container(const Json& value) {
  return value == "" || ((value.is_array() || value.is_object()) && value.empty());
}
bool is_false(const Json& value) { return value == false || value == 0; }
// 0 is a number here: it asks for the log-probabilities of the tokens themselves, without alternatives.
bool is_no(const Json& value) { return value == false; }
bool is_true(const Json& value) { return value == true; }
bool is_one(const Json& value) { return value == 1; }
bool is_off(const Json& value) { return value.is_number() && value.get<double>() <= 0; }
bool is_text_only(const Json& value) { return value == Json::array({"text"}); }
bool is_none(const Json& value) { return value == "none" || value == "auto"; }
bool is_zero_text(const Json& value) { return value == "" || is_false(value); }
bool never(const Json&) { return false; }
// What only says more of another field, which decides.
bool always(const Json&) { return true; }

// `harmless` says which values ask for nothing.
struct Unserved {
  std::string_view field;
  bool (*harmless)(const Json&);
};

constexpr auto kUnserved = std::to_array<Unserved>({
    // OpenAI
    {"functions", is_empty_container},
    {"function_call", is_none},
    {"modalities", is_text_only},
    {"audio", never},
    {"moderation", never},
    {"web_search_options", never},
    {"suffix", is_empty_container},
    // vLLM
    {"use_beam_search", is_false},
    {"length_penalty", is_one},
    {"early_stopping", is_false},
    {"prompt_logprobs", is_no},
    {"logprob_token_ids", is_empty_container},
    {"allowed_token_ids", is_empty_container},
    {"bad_words", is_empty_container},
    {"logits_processors", is_empty_container},
    {"include_stop_str_in_output", is_false},
    {"skip_special_tokens", is_true},
    {"spaces_between_special_tokens", is_true},
    {"truncate_prompt_tokens", is_off},
    {"guided_whitespace_pattern", is_empty_container},
    {"guided_decoding_backend", always},
    {"return_tokens_as_token_ids", is_false},
    {"return_token_ids", is_false},
    {"include_reasoning", is_true},
    {"continue_final_message", is_false},
    {"thinking_token_budget", never},
    {"documents", is_empty_container},
    {"chat_template", is_empty_container},
    {"mm_processor_kwargs", is_empty_container},
    {"kv_transfer_params", is_empty_container},
    {"vllm_xargs", is_empty_container},
    {"priority", is_false},
    // SGLang
    {"stop_regex", is_empty_container},
    {"no_stop_trim", is_false},
    {"separate_reasoning", is_true},
    {"stream_reasoning", always},
    {"lora_path", is_empty_container},
    {"session_params", is_empty_container},
    {"custom_logit_processor", is_empty_container},
    {"custom_params", is_empty_container},
    {"return_hidden_states", is_false},
    {"return_routed_experts", is_false},
    // llama.cpp
    {"typical_p", is_one},
    {"tfs_z", is_one},
    {"top_n_sigma", is_off},
    {"xtc_probability", is_off},
    {"xtc_threshold", always},
    {"dynatemp_range", is_off},
    {"dynatemp_exponent", always},
    {"dry_multiplier", is_off},
    {"dry_base", always},
    {"dry_allowed_length", always},
    {"dry_penalty_last_n", always},
    {"dry_sequence_breakers", always},
    {"mirostat", is_false},
    {"mirostat_tau", always},
    {"mirostat_eta", always},
    {"repeat_last_n", [](const Json& value) { return value == -1; }},
    {"penalize_nl", is_false},
    {"samplers", is_empty_container},
    {"min_keep", is_off},
    {"adaptive_target", is_off},
    {"adaptive_decay", always},
    {"n_probs", is_off},
    {"post_sampling_probs", is_false},
    {"n_keep", is_off},
    {"n_discard", is_off},
    {"n_indent", is_off},
    {"t_max_predict_ms", is_off},
    {"return_tokens", is_false},
    {"response_fields", is_empty_container},
    {"cache_prompt", is_true},
    {"reasoning_format", [](const Json& value) { return value == "auto"; }},
    {"lora", is_empty_container},
    {"image_data", is_empty_container},
    {"grammar_lazy", is_false},
    {"grammar_triggers", is_empty_container},
    {"thinking_forced_open", is_false},
    {"input_prefix", is_zero_text},
    {"input_suffix", is_zero_text},
});

}  // namespace

std::vector<std::string> refuse_unserved(FieldReader& reader, UnservedRule rule,
                                         std::span<const std::string_view> served) {
  std::vector<std::string> ignored;
  for (const Unserved& one : kUnserved) {
    const Json* value = reader.find(one.field);
    if (value == nullptr || one.harmless(*value) || std::ranges::count(served, one.field) > 0) continue;
    if (rule == UnservedRule::kRefuse) {
      reader.fail(one.field, fmt::format("is not supported; leave it out (got {})", json_excerpt(*value)));
      break;
    }
    ignored.emplace_back(one.field);
  }
  return ignored;
}

std::span<const std::string_view> unserved_field_names() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kUnserved.size()> names;
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = kUnserved[i].field;
    return names;
  }();
  return kNames;
}

}  // namespace loci
