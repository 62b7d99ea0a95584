#include "loci/serve/history/token_history.h"

namespace loci {

Result<std::vector<TokenId>> TokenHistory::encode(const Model& model, std::string_view,
                                                  std::string_view template_context) {
  if (!model.chat_template) {
    return invalid_argument("this model has no chat template; use /v1/completions", "messages");
  }
  Result<std::vector<TokenId>> tokens = model.chat_template->encode(template_context);
  if (tokens.ok()) return tokens;
  const Status status = tokens.status();
  return Status(status.code(), "the model's chat template: " + status.message(),
                status.field().empty() ? "messages" : status.field());
}

void TokenHistory::remember(std::string_view, std::span<const TokenId>, std::span<const TokenId>) {}

}  // namespace loci
