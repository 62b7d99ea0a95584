// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/output_syntax.h"

#include <algorithm>
#include <array>

namespace loci {
namespace {

constexpr std::size_t kCalledNameBytesMax = 256;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \n\r\t") - first + 1);
}

std::string_view before(std::string_view text, std::string_view what) {
  return text.substr(0, text.find(what));
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

ToolDialect find_dialect(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  if (has("<|channel|>") && has("<|message|>")) return ToolDialect::kHarmony;
  if (has("<|tool_call>")) return ToolDialect::kGemma4;
  if (has("[TOOL_CALLS]")) return ToolDialect::kMistral;
  if (has("<｜tool▁calls▁begin｜>")) return ToolDialect::kDeepSeek;
  if (has("<|tool_call_begin|>")) return ToolDialect::kKimi;
  if (has("<|START_ACTION|>")) return ToolDialect::kCommandR7b;
  if (has("Action: ```json") || has("Write 'Action:'") || has("Write \\'Action:\\'"))
    return ToolDialect::kCommandR;
  if (has("<function=") && has("<parameter=")) return ToolDialect::kQwenXml;
  if (has("<function=")) return ToolDialect::kFunctionary;
  // GLM and its like: their arguments are neither JSON nor <parameter=...>.
  if (has("<arg_key>")) return ToolDialect::kGeneric;
  if (has("<tool_call>")) return ToolDialect::kHermes;
  if (has("<|tool|>")) return ToolDialect::kPhi4;
  if (has("<|tool_call|>")) return ToolDialect::kGranite;
  if (has("tools") && (has("<|python_tag|>") || has("\"parameters\": dictionary")))
    return ToolDialect::kBareJson;
  return ToolDialect::kGeneric;
}

void set_reasoning(OutputSyntax& out, std::string_view source,
                   const std::function<bool(std::string_view)>& in_vocabulary) {
  static constexpr std::array<std::array<std::string_view, 2>, 4> kMarks = {{
      {"<think>", "</think>"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"[THINK]", "[/THINK]"},
      {"<|channel>thought\n", "<channel|>"},
  }};
  if (out.harmony()) return;
  for (const auto& [open, close] : kMarks) {
    const bool gemma = open.starts_with("<|channel>");
    const bool written = source.find(gemma ? "<|channel>" : open) != std::string_view::npos;
    const bool tokens = !gemma && in_vocabulary(open) && in_vocabulary(close);
    if (!written && !tokens) continue;
    out.reasoning_open = open;
    out.reasoning_close = close;
    return;
  }
}

void set_calls(OutputSyntax& out) {
  switch (out.dialect) {
    case ToolDialect::kGeneric:
    case ToolDialect::kBareJson:
      out.call_open = {"```json"};
      out.call_close = {"```", ";", ","};
      if (out.dialect == ToolDialect::kBareJson) out.call_open.emplace_back("<|python_tag|>");
      break;
    case ToolDialect::kHermes:
      out.call_open = {"<tool_call>"};
      out.call_close = {"</tool_call>"};
      break;
    case ToolDialect::kQwenXml:
      out.call_open = {"<function="};
      out.wrappers = {"<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"};
      out.body = CallBody::kNameXml;
      break;
    case ToolDialect::kMistral:
      out.call_open = {"[TOOL_CALLS]"};
      out.body = CallBody::kEither;
      break;
    case ToolDialect::kDeepSeek:
      out.call_open = {"<｜tool▁call▁begin｜>"};
      out.wrappers = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"};
      out.call_close = {"```", "<｜tool▁call▁end｜>"};
      out.body = CallBody::kNameJson;
      break;
    case ToolDialect::kGemma4:
      out.call_open = {"<|tool_call>"};
      out.call_close = {"<tool_call|>"};
      out.body = CallBody::kNameGemma4;
      break;
    case ToolDialect::kPhi4:
      out.call_open = {"<|tool_call|>", "functools"};
      out.call_close = {"<|/tool_call|>"};
      break;
    case ToolDialect::kGranite: out.call_open = {"<|tool_call|>", "<tool_call>"}; break;
    case ToolDialect::kCommandR7b:
      out.call_open = {"<|START_ACTION|>"};
      out.call_close = {"<|END_ACTION|>"};
      out.ignored = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"};
      break;
    case ToolDialect::kCommandR:
      out.call_open = {"Action: ```json", "Action:```json", "Action:\n```json"};
      out.call_close = {"```"};
      break;
    case ToolDialect::kFunctionary:
      out.call_open = {"<function="};
      out.call_close = {"</function>"};
      out.body = CallBody::kNameJson;
      break;
    case ToolDialect::kKimi:
      out.call_open = {"<|tool_call_begin|>"};
      out.wrappers = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
      out.call_close = {"<|tool_call_end|>"};
      out.body = CallBody::kNameJson;
      break;
    case ToolDialect::kHarmony:
      out.ignored = {"<|start|>",   "<|end|>",       "<|return|>", "<|call|>",
                     "<|channel|>", "<|constrain|>", "<|message|>"};
      out.body = CallBody::kNameJson;
      break;
  }
}

}  // namespace

std::string_view dialect_name(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kGeneric: return "generic";
    case ToolDialect::kBareJson: return "llama3-json";
    case ToolDialect::kHermes: return "hermes";
    case ToolDialect::kQwenXml: return "qwen3-coder";
    case ToolDialect::kMistral: return "mistral";
    case ToolDialect::kHarmony: return "harmony";
    case ToolDialect::kDeepSeek: return "deepseek";
    case ToolDialect::kGemma4: return "gemma4";
    case ToolDialect::kPhi4: return "phi4-mini";
    case ToolDialect::kGranite: return "granite";
    case ToolDialect::kCommandR7b: return "command-r7b";
    case ToolDialect::kCommandR: return "command-r";
    case ToolDialect::kFunctionary: return "functionary";
    case ToolDialect::kKimi: return "kimi-k2";
  }
  return "generic";
}

std::vector<std::string> OutputSyntax::marks() const {
  std::vector<std::string> all = ignored;
  for (const auto* list : {&call_open, &wrappers, &call_close})
    all.insert(all.end(), list->begin(), list->end());
  if (!reasoning_open.empty()) all.push_back(reasoning_open);
  if (!reasoning_close.empty()) all.push_back(reasoning_close);
  return all;
}

std::string OutputSyntax::name_in_header(std::string_view header) const {
  std::string_view name = trimmed(header);
  switch (dialect) {
    case ToolDialect::kMistral: name = before(before(name, "[CALL_ID]"), "[ARGS]"); break;
    case ToolDialect::kDeepSeek: {
      // "function<sep>name\n```json" (V3, R1) or "name<sep>" (V3.1).
      static constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
      const std::string_view left = before(name, kSeparator);
      const std::string_view right = left.size() == name.size()
                                         ? std::string_view()
                                         : trimmed(name.substr(left.size() + kSeparator.size()));
      name = right.empty() ? left : before(right, "\n");
      break;
    }
    case ToolDialect::kKimi:
      name = before(name, "<|tool_call_argument_begin|>");
      name = name.substr(0, name.rfind(':'));
      [[fallthrough]];
    case ToolDialect::kHarmony:
      if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
      break;
    case ToolDialect::kGemma4:
      if (name.starts_with("call:")) name.remove_prefix(std::string_view("call:").size());
      break;
    default: name = before(name, ">"); break;
  }
  name = trimmed(name);
  const bool valid =
      name.size() <= kCalledNameBytesMax && std::all_of(name.begin(), name.end(), is_name_byte);
  return valid ? std::string(name) : std::string();
}

OutputSyntax find_output_syntax(std::string_view template_source,
                                const std::function<bool(std::string_view)>& in_vocabulary) {
  OutputSyntax out;
  out.dialect = find_dialect(template_source);
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  out.call_ids = has("[CALL_ID]");
  out.later_form = out.dialect == ToolDialect::kMistral ? has("[ARGS]") : !has("```json");
  set_reasoning(out, template_source, in_vocabulary);
  set_calls(out);
  return out;
}

}  // namespace loci
