// Fuzzes chat templates: the input, up to its first NUL byte, is the template, the rest the text of a
// message. Anything may be refused, nothing may crash, hang or grow without bound, and a template that
// writes no "<" gives no control token.
#include <cstdint>

#include "loci/model/chat_template.h"
#include "loci/model/text_testing.h"
#include "loci/model/utf8.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

const loci::Tokenizer& tokenizer() {
  static const loci::Tokenizer made =
      std::move(loci::tokenizer_from(loci::byte_level_writer({"<tool>"}, {"<think>"}, 500))).value();
  return made;
}

std::string context_of(std::string_view bytes) {
  std::string text;
  loci::append_utf8_final(bytes, text);
  const nlohmann::ordered_json message = {{"role", "user"}, {"content", text}};
  const nlohmann::ordered_json parts = {
      {"role", text}, {"content", {{{"type", "text"}, {"text", "<|im_"}}, {{"text", text}}}}};
  return nlohmann::ordered_json{{"messages", {message, parts}}, {"tools", {{{text, text}}}}}.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find('\0');
  const std::string_view source = input.substr(0, split);
  const std::string_view text =
      split == std::string_view::npos ? std::string_view() : input.substr(split + 1);
  const auto chat = loci::ChatTemplate::parse(source, tokenizer());
  if (!chat.ok()) {
    expect(!chat.status().message().empty());
    return 0;
  }
  const std::string context = context_of(text);
  const auto rendered = chat->render(context);
  const auto tokens = chat->encode(context);
  if (!rendered.ok() || !tokens.ok()) return 0;
  const bool is_timed = source.find("strftime") != std::string_view::npos;
  if (!is_timed) expect(tokenizer().decode(*tokens, loci::ControlText::kAsControl).value() == *rendered);
  // Without these a template can write no "<" of its own.
  const bool is_innocent = source.find_first_of("<\\") == std::string_view::npos &&
                           source.find("_token") == std::string_view::npos;
  if (is_innocent)
    for (const loci::TokenId token : *tokens) expect(!tokenizer().is_control(token));
  return 0;
}
