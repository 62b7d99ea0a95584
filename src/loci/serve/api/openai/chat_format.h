// SPDX-License-Identifier: Apache-2.0
// Replies of /v1/chat/completions.
#pragma once

#include <string>
#include <vector>

#include "loci/serve/api/openai/reply_head.h"
#include "loci/serve/generation/reply_format.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Thread-compatible.
class ChatFormat final : public ReplyFormat {
 public:
  explicit ChatFormat(ReplyHead head) : head_(std::move(head)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  std::string chunk(std::uint32_t index, Json delta, const std::vector<LogprobEntry>* logprobs);

  ReplyHead head_;
  std::vector<std::uint32_t> calls_;  // of each choice, so far
};

}  // namespace loci
