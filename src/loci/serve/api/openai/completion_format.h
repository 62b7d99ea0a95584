// SPDX-License-Identifier: Apache-2.0
// Replies of /v1/completions: text as the model wrote it.
#pragma once

#include <string>
#include <vector>

#include "loci/serve/api/openai/reply_head.h"
#include "loci/serve/generation/reply_format.h"

namespace loci {

// What a reply shows of what was generated.
struct CompletionShape {
  std::vector<std::string> echoed;  // each prompt's text, with which its choices begin; empty: none do
  std::uint32_t generated = 1;      // choices of each prompt
  std::uint32_t kept = 1;           // the likeliest of those, by the mean log-probability of a token; fewer
                                    // than `generated` only in a reply that is not streamed
};

// Thread-compatible.
class CompletionFormat final : public ReplyFormat {
 public:
  explicit CompletionFormat(ReplyHead head, CompletionShape shape = {})
      : head_(std::move(head)), shape_(std::move(shape)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  std::string echo(std::uint32_t index) const;

  ReplyHead head_;
  CompletionShape shape_;
};

}  // namespace loci
