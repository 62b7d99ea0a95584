// Replies of /v1/completions: text as the model wrote it.
#pragma once

#include <string>
#include <vector>

#include "loci/serve/reply/json_parts.h"
#include "loci/serve/reply/reply_format.h"

namespace loci {

// Thread-compatible.
class CompletionFormat final : public ReplyFormat {
 public:
  explicit CompletionFormat(ReplyHead head) : head_(std::move(head)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  ReplyHead head_;
};

}  // namespace loci
