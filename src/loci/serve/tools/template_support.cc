// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tools/template_support.h"

#include <nlohmann/json.hpp>

namespace loci {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kShortId = "abcdefghi";

class Probe {
 public:
  explicit Probe(const RenderTemplate& render) : render_(render) {}

  // What is rendered, "" where the template refuses.
  std::string render(OrderedJson messages, OrderedJson extra = OrderedJson::object()) const {
    OrderedJson context = std::move(extra);
    context["messages"] = std::move(messages);
    context["add_generation_prompt"] = true;
    const Result<std::string> text = render_(context.dump());
    return text.ok() ? *text : std::string();
  }
  bool writes(std::string_view what, OrderedJson messages, OrderedJson extra = OrderedJson::object()) const {
    return render(std::move(messages), std::move(extra)).find(what) != std::string::npos;
  }

 private:
  const RenderTemplate& render_;
};

OrderedJson message(const char* role, OrderedJson content) {
  return {{"role", role}, {"content", std::move(content)}};
}

OrderedJson function() {
  return {{"name", "probe_tool"},
          {"description", "probe"},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"probe_key", {{"type", "string"}, {"description", "probe"}}}}},
            {"required", {"probe_key"}}}}};
}

OrderedJson tools() {
  return {{"tools", OrderedJson::array({{{"type", "function"}, {"function", function()}}})}};
}

OrderedJson call(const char* name, const char* id, OrderedJson arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

OrderedJson calling(OrderedJson content, OrderedJson calls) {
  OrderedJson out = message("assistant", std::move(content));
  out["tool_calls"] = std::move(calls);
  return out;
}

OrderedJson result(const char* id) {
  OrderedJson out = message("tool", "probe_result");
  out["tool_call_id"] = id;
  out["name"] = "probe_call";
  return out;
}

// The call stands there, its arguments neither quoted once more nor as Python's literals.
bool shows_call(std::string_view text) {
  const auto has = [&](std::string_view what) { return text.find(what) != std::string_view::npos; };
  return has("probe_call") && has("probe value") && !has("\\\"probe_key") && !has("'probe_key'");
}

void find_tools(const Probe& probe, TemplateSupport& out) {
  const OrderedJson user = OrderedJson::array({message("user", "probe_user")});
  out.tools = probe.writes("probe_tool", user, tools());
  if (out.tools) return;
  out.xml_tools = probe.writes("probe_tool", user, {{"xml_tools", OrderedJson::array({function()})}});
  if (!out.xml_tools) {
    OrderedJson system = message("system", "probe_system");
    system["tools"] = "probe_tool";
    out.message_tools =
        probe.writes("probe_tool", OrderedJson::array({system, message("user", "probe_user")}));
  }
  out.tools = out.xml_tools || out.message_tools;
}

void find_calls(const Probe& probe, TemplateSupport& out) {
  const OrderedJson arguments = {{"probe_key", "probe value"}};
  const OrderedJson user = message("user", "probe_user");
  out.calls = false;
  for (const bool text : {false, true}) {
    for (const bool null : {false, true}) {
      const OrderedJson calls = OrderedJson::array(
          {call("probe_call", kShortId, text ? OrderedJson(arguments.dump()) : arguments)});
      const OrderedJson asking = calling(null ? OrderedJson(nullptr) : OrderedJson(""), calls);
      if (out.calls ||
          !shows_call(probe.render(OrderedJson::array({user, asking, result(kShortId)}), tools())))
        continue;
      out.calls = true;
      out.text_arguments = text;
      out.null_content = null;
    }
  }
  if (!out.calls) {
    out.results = probe.writes(
        "probe_result", OrderedJson::array({user, message("assistant", "probe_call"), result(kShortId)}));
    return;
  }
  const OrderedJson value = out.text_arguments ? OrderedJson(arguments.dump()) : arguments;
  const OrderedJson content = out.null_content ? OrderedJson(nullptr) : OrderedJson("");
  const auto conversation = [&](const char* id) {
    return OrderedJson::array(
        {user, calling(content, OrderedJson::array({call("probe_call", id, value)})), result(id)});
  };
  out.results = probe.writes("probe_result", conversation(kShortId), tools());
  out.short_ids = !probe.writes("probe_call", conversation("call_0123456789abcdef"), tools());
  const OrderedJson two =
      OrderedJson::array({call("probe_call", kShortId, value), call("probe_other", "jklmnopqr", value)});
  out.several_calls = probe.writes(
      "probe_other", OrderedJson::array({user, calling(content, two), result(kShortId), result("jklmnopqr")}),
      tools());
}

}  // namespace

ChatSyntax find_chat_syntax(std::string_view template_source,
                            const std::function<bool(std::string_view)>& in_vocabulary,
                            const RenderTemplate& render) {
  ChatSyntax out;
  out.output = find_output_syntax(template_source, in_vocabulary);
  const Probe probe(render);
  out.support.system = probe.writes(
      "probe_system", OrderedJson::array({message("system", "probe_system"), message("user", "probe_user")}));
  find_tools(probe, out.support);
  find_calls(probe, out.support);
  return out;
}

}  // namespace loci
