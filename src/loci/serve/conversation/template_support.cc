// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/template_support.h"

#include "loci/serve/wire/json.h"

namespace loci {
namespace {

constexpr const char* kShortId = "abcdefghi";

class Probe {
 public:
  explicit Probe(const RenderTemplate& render) : render_(render) {}

  // What is rendered, "" where the template refuses.
  std::string render(Json messages, Json extra = Json::object()) const {
    Json context = std::move(extra);
    context["messages"] = std::move(messages);
    context["add_generation_prompt"] = true;
    const Result<std::string> text = render_(dump_json(context));
    return text.ok() ? *text : std::string();
  }
  bool writes(std::string_view what, Json messages, Json extra = Json::object()) const {
    return render(std::move(messages), std::move(extra)).find(what) != std::string::npos;
  }

 private:
  const RenderTemplate& render_;
};

Json message(const char* role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }

Json function() {
  return {{"name", "probe_tool"},
          {"description", "probe"},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"probe_key", {{"type", "string"}, {"description", "probe"}}}}},
            {"required", {"probe_key"}}}}};
}

Json tools() { return {{"tools", Json::array({{{"type", "function"}, {"function", function()}}})}}; }

Json call(const char* name, const char* id, Json arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json calling(Json content, Json calls) {
  Json out = message("assistant", std::move(content));
  out["tool_calls"] = std::move(calls);
  return out;
}

Json result(const char* id) {
  Json out = message("tool", "probe_result");
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
  const Json user = Json::array({message("user", "probe_user")});
  out.tools = probe.writes("probe_tool", user, tools());
  if (out.tools) return;
  out.xml_tools = probe.writes("probe_tool", user, {{"xml_tools", Json::array({function()})}});
  if (!out.xml_tools) {
    Json system = message("system", "probe_system");
    system["tools"] = "probe_tool";
    out.message_tools = probe.writes("probe_tool", Json::array({system, message("user", "probe_user")}));
  }
  out.tools = out.xml_tools || out.message_tools;
}

void find_calls(const Probe& probe, TemplateSupport& out) {
  const Json arguments = {{"probe_key", "probe value"}};
  const Json user = message("user", "probe_user");
  out.calls = false;
  for (const bool text : {false, true}) {
    for (const bool null : {false, true}) {
      const Json calls =
          Json::array({call("probe_call", kShortId, text ? Json(dump_json(arguments)) : arguments)});
      const Json asking = calling(null ? Json(nullptr) : Json(""), calls);
      if (out.calls || !shows_call(probe.render(Json::array({user, asking, result(kShortId)}), tools())))
        continue;
      out.calls = true;
      out.text_arguments = text;
      out.null_content = null;
    }
  }
  if (!out.calls) {
    out.results = probe.writes("probe_result",
                               Json::array({user, message("assistant", "probe_call"), result(kShortId)}));
    return;
  }
  const Json value = out.text_arguments ? Json(dump_json(arguments)) : arguments;
  const Json content = out.null_content ? Json(nullptr) : Json("");
  const auto conversation = [&](const char* id) {
    return Json::array({user, calling(content, Json::array({call("probe_call", id, value)})), result(id)});
  };
  out.results = probe.writes("probe_result", conversation(kShortId), tools());
  out.short_ids = !probe.writes("probe_call", conversation("call_0123456789abcdef"), tools());
  const Json two =
      Json::array({call("probe_call", kShortId, value), call("probe_other", "jklmnopqr", value)});
  out.several_calls = probe.writes(
      "probe_other", Json::array({user, calling(content, two), result(kShortId), result("jklmnopqr")}),
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
      "probe_system", Json::array({message("system", "probe_system"), message("user", "probe_user")}));
  find_tools(probe, out.support);
  find_calls(probe, out.support);
  return out;
}

}  // namespace loci
