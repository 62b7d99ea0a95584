// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/request/response_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "loci/serve/request/json_text.h"

namespace loci {
namespace {

using json = nlohmann::json;

struct Read {
  Status status;
  std::optional<ConstraintSpec> spec;
};

Read read(const json& request) {
  Read out;
  FieldReader reader(request);
  read_constraint(reader, out.spec);
  out.status = reader.status();
  return out;
}

ConstraintSpec accepted_format(const json& request) {
  const Read out = read(request);
  EXPECT_TRUE(out.status.ok()) << out.status.to_string() << " " << request.dump();
  EXPECT_TRUE(out.spec.has_value()) << request.dump();
  return out.spec.value_or(ConstraintSpec{});
}

void refused_format(const json& request, const std::string& field, const std::string& message = {}) {
  const Status status = read(request).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << request.dump();
  EXPECT_EQ(status.field(), field);
  EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
}

TEST(ResponseFormat, ReadsWhatEachApiCallsAConstraint) {
  const json schema = {{"type", "object"}};
  const auto expect = [](const json& request, GrammarKind kind, const std::string& field,
                         const std::string& text) {
    const ConstraintSpec spec = accepted_format(request);
    EXPECT_EQ(spec.source.kind, kind) << request.dump();
    EXPECT_EQ(spec.field, field);
    EXPECT_EQ(spec.source.text, text);
  };
  expect({{"response_format", {{"type", "json_object"}}}}, GrammarKind::kJsonObject, "response_format", "");
  expect(
      {{"response_format",
        {{"type", "json_schema"}, {"json_schema", {{"name", "a"}, {"schema", schema}, {"strict", true}}}}}},
      GrammarKind::kJsonSchema, "response_format.json_schema.schema", schema.dump());
  expect({{"response_format", {{"type", "json_object"}, {"schema", schema}}}}, GrammarKind::kJsonSchema,
         "response_format.schema", schema.dump());
  expect({{"json_schema", schema}}, GrammarKind::kJsonSchema, "json_schema", schema.dump());
  expect({{"guided_json", schema}}, GrammarKind::kJsonSchema, "guided_json", schema.dump());
  expect({{"guided_json", "{\"a\": 1}"}}, GrammarKind::kJsonSchema, "guided_json", "{\"a\": 1}");
  expect({{"guided_regex", "[a-z]+"}}, GrammarKind::kRegex, "guided_regex", "[a-z]+");
  expect({{"guided_choice", {"a", "b"}}}, GrammarKind::kChoice, "guided_choice", "[\"a\",\"b\"]");
  expect({{"guided_grammar", "start: \"x\""}}, GrammarKind::kLark, "guided_grammar", "start: \"x\"");
  expect({{"grammar", "root ::= \"x\""}}, GrammarKind::kGbnf, "grammar", "root ::= \"x\"");
  expect({{"grammar", "start: \"a ::= b\""}}, GrammarKind::kLark, "grammar", "start: \"a ::= b\"");
  expect({{"structured_outputs", {{"json", schema}}}}, GrammarKind::kJsonSchema, "structured_outputs.json",
         schema.dump());
  expect({{"structured_outputs", {{"choice", {"a"}}}}}, GrammarKind::kChoice, "structured_outputs.choice",
         "[\"a\"]");
  expect({{"structured_outputs", {{"json_object", true}}}}, GrammarKind::kJsonObject,
         "structured_outputs.json_object", "");
}

TEST(ResponseFormat, NothingAskedForIsNoConstraint) {
  for (const json& request :
       {json::object(), json{{"response_format", {{"type", "text"}}}}, json{{"response_format", nullptr}},
        json{{"grammar", ""}}, json{{"json_schema", json::object()}},
        json{{"structured_outputs", json::object()}},
        json{{"structured_outputs", {{"json_object", false}}}}}) {
    const Read out = read(request);
    EXPECT_TRUE(out.status.ok()) << out.status.to_string();
    EXPECT_FALSE(out.spec.has_value()) << request.dump();
  }
}

TEST(ResponseFormat, ErrorsNameTheField) {
  refused_format({{"response_format", "json"}}, "response_format", "JSON object");
  refused_format({{"response_format", json::object()}}, "response_format.type", "json_schema");
  refused_format({{"response_format", {{"type", "xml"}}}}, "response_format.type", "got \"xml\"");
  refused_format({{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema", "required");
  refused_format({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "a"}}}}}},
                 "response_format.json_schema.schema", "required");
  refused_format({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", 5}}}}}},
                 "response_format.json_schema.schema", "got 5");
  refused_format(
      {{"response_format",
        {{"type", "json_schema"}, {"json_schema", {{"schema", json::object()}, {"strict", "yes"}}}}}},
      "response_format.json_schema.strict");
  refused_format({{"guided_choice", json::array()}}, "guided_choice");
  refused_format({{"guided_choice", {"a", 1}}}, "guided_choice[1]", "a string");
  refused_format({{"guided_regex", 1}}, "guided_regex");
  refused_format({{"structured_outputs", {{"structural_tag", "x"}}}}, "structured_outputs.structural_tag");
  refused_format({{"structured_outputs", {{"disable_any_whitespace", true}}}},
                 "structured_outputs.disable_any_whitespace");
  refused_format({{"guided_regex", "a"}, {"response_format", {{"type", "json_object"}}}}, "guided_regex",
                 "can't be combined with response_format");
}

TEST(ResponseFormat, TheFlatShapeOfResponses) {
  const json text = {{"format", {{"type", "json_schema"}, {"name", "a"}, {"schema", {{"type", "object"}}}}}};
  FieldReader reader(text, "text");
  std::optional<ConstraintSpec> spec;
  read_format(reader, "format", FormatShape::kFlat, spec);
  ASSERT_TRUE(reader.ok() && spec);
  EXPECT_EQ(spec->field, "text.format.schema");
}

TEST(ResponseFormat, KeepsTheOrderOfTheSchemasMembers) {
  const std::string body =
      R"({"response_format" : {"type":"json_schema","json_schema":{"schema":0,"name":"s",)"
      R"( "sch\u0065ma" : {"z":{"y":1,"a":[2,"}\""]}, "b": 3} }} ,"model":"m"})";
  ConstraintSpec spec = accepted_format(json::parse(body));
  keep_order(body, spec);
  EXPECT_EQ(spec.source.text, R"({"z":{"y":1,"a":[2,"}\""]}, "b": 3})");
}

TEST(JsonText, FindsMembersAsTheyAreWritten) {
  const auto find = [](std::string_view text, std::string_view path) {
    return std::string(json_member_text(text, path).value_or("(none)"));
  };
  EXPECT_EQ(find(R"({"a":1})", "a"), "1");
  EXPECT_EQ(find(R"( { "a" : -1.5e3 , "b":true})", "a"), "-1.5e3");
  EXPECT_EQ(find(R"({"a":{"b":[{"c":1}]}})", "a.b"), R"([{"c":1}])");
  EXPECT_EQ(find(R"({"a":"x","a":"\\\"y"})", "a"), R"("\\\"y")");
  EXPECT_EQ(find("\xef\xbb\xbf{\"a\":null}", "a"), "null");
  EXPECT_EQ(find(R"({"b":{"a":1}})", "a"), "(none)");
  EXPECT_EQ(find(R"({})", "a"), "(none)");
  EXPECT_EQ(find(R"({"a":[]})", "a.b"), "(none)");
  // Against a parser: every member of a nested object.
  const std::string text = R"({"k0":[1,{"x":2}],"k1":{"k2":{"k3":"a,}]\\"},"k4":[[],{}]},"k5":0})";
  const json parsed = json::parse(text);
  for (const char* path : {"k0", "k1", "k1.k2", "k1.k2.k3", "k1.k4", "k5"}) {
    std::string pointer = "/" + std::string(path);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    EXPECT_EQ(json::parse(find(text, path)), parsed[json::json_pointer(pointer)]) << path;
  }
}

}  // namespace
}  // namespace loci
