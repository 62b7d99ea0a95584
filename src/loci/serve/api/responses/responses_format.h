// SPDX-License-Identifier: Apache-2.0
// Replies of /v1/responses: the response object, and the events of its stream, each with its name and number.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/serve/api/responses/response_object.h"
#include "loci/serve/generation/reply_format.h"
#include "loci/serve/wire/json.h"

namespace loci {

// A response and how it ended. The end is made once, from what the model said; the store, the stream's last
// event and the body all show that one. Thread-compatible: the turn is
// committed before the reply's end is written.
class ResponseRecord {
 public:
  explicit ResponseRecord(ResponseHead head) : head_(std::move(head)) {}

  const ResponseHead& head() const { return head_; }
  // The first call makes the end; later ones return it. A turn that is finished and cannot be stored fails,
  // or is cancelled, after that.
  const ResponseEnd& finish(const FinishedChoice& choice, const ReplyUsage& usage);
  const ResponseEnd& fail(const ApiError& error);
  const ResponseEnd& cancel();
  // Null: not yet.
  const ResponseEnd* ended() const { return end_ ? &*end_ : nullptr; }
  // The store has the finished turn.
  void stored() { is_stored_ = true; }
  bool is_stored() const { return is_stored_; }

 private:
  ResponseHead head_;
  std::optional<ResponseEnd> end_;
  bool is_stored_ = false;
};

// The stream's last event of a response whose generation was refused; `number` is its sequence number.
std::string failed_event(const ResponseHead& head, const ResponseEnd& end, std::uint64_t number);

// Thread-compatible. There is one choice.
class ResponsesFormat final : public ReplyFormat {
 public:
  explicit ResponsesFormat(std::shared_ptr<ResponseRecord> record) : record_(std::move(record)) {}

  // The first events of a response that waits: its stream begins before the engine has taken it.
  std::string queued();

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  enum class Kind : std::uint8_t { kNone, kText, kReasoning, kCall };

  // One event. Its sequence number stands after its type.
  std::string event(std::string_view type, Json fields);
  std::string response_event(std::string_view type, Json response);
  // An event of the open item.
  std::string call_event(std::string_view type, Json fields);
  std::string part_event(std::string_view type, Json fields);
  std::string open(Kind kind, ToolCall call);
  std::string close(const std::string& status, bool last);
  std::string text_delta(Kind kind, const std::string& text);
  std::string piece(const OutputPiece& piece);
  Item open_item(const std::string& status) const;

  std::shared_ptr<ResponseRecord> record_;
  std::uint64_t sequence_ = 0;
  bool begun_ = false;
  // The open item.
  Kind kind_ = Kind::kNone;
  std::size_t items_ = 0;  // so far, the open one included
  std::string item_id_;
  std::string text_;  // of a message, of reasoning
  ToolCall call_;
  std::vector<LogprobEntry> item_logprobs_;  // of a message that ends
  std::vector<LogprobEntry> logprobs_;       // of the whole reply, as far as it is shown
  std::vector<LogprobEntry> waiting_;        // for the text that is shown next
};

}  // namespace loci
