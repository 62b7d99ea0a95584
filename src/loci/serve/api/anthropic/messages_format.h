// SPDX-License-Identifier: Apache-2.0
// Replies of Anthropic's /v1/messages: one message of content blocks, whole or as named events.
//
// A stream is message_start, ping, then for each block content_block_start, content_block_delta ...,
// content_block_stop, then message_delta (why it ended, the usage) and message_stop; or an error event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/generation/reply_format.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Thread-compatible. A reply has one choice.
class MessagesFormat final : public ReplyFormat {
 public:
  // `id`: "msg_...".
  MessagesFormat(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  enum class Block : std::uint8_t { kNone, kText, kThinking, kToolUse };

  Json message() const;
  // Ends the open block and begins one, which is of `kind` and looks like `json`.
  std::string start_block(Block kind, Json json);
  std::string block_delta(Json json) const;
  std::string end_block();

  std::string id_;
  std::string model_;
  Block open_ = Block::kNone;
  std::uint32_t next_block_ = 0;
};

// "end_turn", "stop_sequence", "max_tokens" or "tool_use".
std::string_view stop_reason_name(ReplyFinish finish);

}  // namespace loci
