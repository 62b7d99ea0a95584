// From a request's body to tokens: the part of a generation that is done on a worker. No networking.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/serve/api_error.h"
#include "loci/serve/generation_fields.h"
#include "loci/serve/response_json.h"
#include "loci/serve/served_model.h"

namespace loci {

struct PreparedGeneration {
  ApiShape shape = ApiShape::kChat;
  GenerationFields fields;
  std::vector<std::vector<TokenId>> prompts;  // each fits the context with at least one new token
  std::vector<TokenId> stop_tokens;           // what ends a reply
};

// Thread-safe.
std::variant<PreparedGeneration, ApiError> prepare_chat(std::string_view body, const ServedModel& served);
std::variant<PreparedGeneration, ApiError> prepare_completion(std::string_view body,
                                                              const ServedModel& served);

// The answers of /tokenize and /detokenize.
std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served);
std::variant<std::string, ApiError> detokenize(std::string_view body, const ServedModel& served);

}  // namespace loci
