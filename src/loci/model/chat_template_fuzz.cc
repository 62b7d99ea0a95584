// SPDX-License-Identifier: Apache-2.0
// Fuzzes chat templates: the input, up to its first NUL byte, is the template, the rest the text of a
// message. An input that begins with 0xff names fragments of templates byte by byte instead, which gets
// past the parser more often. Anything may be refused, nothing may crash, hang or grow without bound, and a
// template that writes no "<" gives no control token.
#include <array>
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

constexpr std::array kFragments = {
    "{% for m in messages %}",
    "{% for i in range(99999) %}",
    "{% endfor %}",
    "{% for x in ns.a recursive %}",
    "{{ loop(x) }}",
    "{{ loop.index }}",
    "{% break %}",
    "{% continue %}",
    "{% if m %}",
    "{% if ns.a == ns.b %}",
    "{% elif ns.a in ns.b %}",
    "{% else %}",
    "{% endif %}",
    "{% set ns = namespace(a=[1], b='x', c={}) %}",
    "{% set ns.a = [ns.a, ns.a] %}",
    "{% set ns.a = ns.a + ns.a %}",
    "{% set ns.b = ns.b ~ ns.b %}",
    "{% set ns.b = ns.b * 99 %}",
    "{% set ns.c = {'k': ns.c, 'l': ns.a} %}",
    "{% set ns.a = ns %}",
    "{% set ns.a = ns.a[1:] %}",
    "{% set ns.a = ns.a[::-1] %}",
    "{% set ns.a = ns.a|map('string') %}",
    "{% set ns.a = ns.c.items() %}",
    "{% set ns.a = ns.a|list %}",
    "{% set ns.a = ns.a|batch(2, ns.b) %}",
    "{% set ns.b = ns.a|join(ns.b) %}",
    "{% set ns.b = ns.a|tojson(indent=9) %}",
    "{% set ns.b = ns.a|string %}",
    "{% set ns.b = ns.b|replace('x', ns.b) %}",
    "{% set ns.b = ns.b.join(ns.a) %}",
    "{% set ns.b %}",
    "{{ ns.b }}",
    "{% endset %}",
    "{% macro f(a, b=1) %}",
    "{{ f(ns.a, b=ns.b) }}",
    "{{ f(a) }}",
    "{% endmacro %}",
    "{% call f(1) %}",
    "{{ caller() }}",
    "{% endcall %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% with a = ns.a, b = a %}",
    "{% endwith %}",
    "{% autoescape true %}",
    "{% endautoescape %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% block z %}",
    "{{ self.z() }}",
    "{% endblock %}",
    "{% raw %}",
    "{% endraw %}",
    "{{ m.content }}",
    "{{ m.content[0].text ~ m.content[1].text }}",
    "{{ m }}",
    "{{ ns.a|sort|unique|list }}",
    "{{ ns.b.split('x')|length }}",
    "{{ '%s'|format(ns.b) }}",
    "{{ '{}'.format(ns.a) }}",
    "{{ ns.a|sum(start=[]) }}",
    "{{ ns.a|groupby('x') }}",
    "{{ ns.a|min }}",
    "{{ ns.b|indent(99) }}",
    "{{ ns.b|title|capitalize|escape }}",
    "{{ ns.a|select('in', ns.a)|list }}",
    "{{ tools|tojson }}",
    "{{ dict(a=ns.c)|dictsort }}",
    "{{ ns.b[99] }}",
    "{{ 9 ** 99 }}",
    "{{ 7 // 0 }}",
    "{{ -1 * ns.b }}",
    "{{ ns.a * 3 }}",
    "{{ raise_exception(ns.b) }}",
    "{{ ns.a is iterable }}",
    " ",
    "\n",
    "text",
};

std::string source_of(std::string_view bytes) {
  if (!bytes.starts_with('\xff')) return std::string(bytes);
  std::string source;
  for (const char byte : bytes.substr(1))
    source += kFragments[static_cast<unsigned char>(byte) % kFragments.size()];
  return source;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find('\0');
  const std::string source = source_of(input.substr(0, split));
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
