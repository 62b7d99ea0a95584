// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/served_model.h"

namespace loci {

ChatSyntax find_chat_syntax(const Model& model) {
  const auto source = model.source->get_string("tokenizer.chat_template");
  if (!model.chat_template || !source.ok()) return {};
  return find_chat_syntax(
      *source, [&](std::string_view text) { return model.tokenizer.find(text).has_value(); },
      [&](std::string_view context) { return model.chat_template->render(context); });
}

}  // namespace loci
