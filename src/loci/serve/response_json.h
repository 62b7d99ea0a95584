// The replies' JSON, in the shapes of OpenAI's API. Every function returns one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/choice.h"

namespace loci {

enum class ApiShape : std::uint8_t { kChat, kCompletion };

// What all chunks of one reply have in common.
struct ReplyHead {
  ApiShape shape = ApiShape::kChat;
  std::string id;            // "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;     // system_fingerprint
  bool include_usage = false;  // chunks carry "usage": null, the last one the numbers
};

struct ReplyUsage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t completion_tokens = 0;
};

struct ReplyChoice {
  std::uint32_t index = 0;
  Delta content;
  std::string finish_reason;
};

std::string reply_json(const ReplyHead& head, const std::vector<ReplyChoice>& choices, bool logprobs,
                       const ReplyUsage& usage);

// --- chunks of a stream ---

// A chat's first chunk of each choice: the role.
std::string role_chunk_json(const ReplyHead& head, std::uint32_t index);
std::string delta_chunk_json(const ReplyHead& head, std::uint32_t index, const Delta& delta, bool logprobs);
std::string finish_chunk_json(const ReplyHead& head, std::uint32_t index, std::string_view finish_reason);
std::string usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage);

}  // namespace loci
