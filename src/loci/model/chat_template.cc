// SPDX-License-Identifier: Apache-2.0
#include "loci/model/chat_template.h"

#include "loci/model/tokenizer_state.h"

namespace loci {

struct ChatTemplate::State {
  TextTemplate handle;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.state_->vocabulary;
  const auto text_of = [&](const std::optional<TokenId>& id) {
    return id ? text_view(vocabulary.tokens[id->value]) : loci_text_view{nullptr, 0};
  };
  loci_text_template* handle = nullptr;
  loci_text_bytes error{};
  if (loci_text_template_create(text_view(source), tokenizer.state_->handle.get(), text_of(vocabulary.bos),
                                text_of(vocabulary.eos), &handle, &error) != 0)
    return take_error(error, "tokenizer.chat_template");
  auto state = std::make_unique<State>();
  state->handle.reset(handle);
  return ChatTemplate(std::move(state));
}

Result<std::vector<TokenId>> ChatTemplate::encode(std::string_view context_json) const {
  loci_text_ids ids{};
  loci_text_bytes error{};
  if (loci_text_template_encode(state_->handle.get(), text_view(context_json), &ids, &error) != 0)
    return take_error(error, "messages");
  return take_tokens(ids);
}

Result<std::vector<ChatSegment>> ChatTemplate::render_segments(std::string_view context_json) const {
  loci_text_segments rendered{};
  loci_text_bytes error{};
  if (loci_text_template_segments(state_->handle.get(), text_view(context_json), &rendered, &error) != 0)
    return take_error(error, "messages");
  std::vector<ChatSegment> segments;
  segments.reserve(rendered.size);
  const char* text = reinterpret_cast<const char*>(rendered.text.data);
  for (std::size_t i = 0; i < rendered.size; ++i) {
    const loci_text_segment& segment = rendered.data[i];
    segments.push_back({.text = std::string(text, segment.text_size), .control = {}});
    if (segment.control >= 0) segments.back().control = TokenId(static_cast<std::uint32_t>(segment.control));
    text += segment.text_size;
  }
  loci_text_segments_free(rendered);
  return segments;
}

Result<std::string> ChatTemplate::render(std::string_view context_json) const {
  loci_text_bytes text{};
  loci_text_bytes error{};
  if (loci_text_template_render(state_->handle.get(), text_view(context_json), &text, &error) != 0)
    return take_error(error, "messages");
  return take_text(text);
}

}  // namespace loci
