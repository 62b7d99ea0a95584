// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/response_format.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

struct Read {
  Status status;
  std::optional<ConstraintSpec> spec;
};

Read read(const Json& request) {
  Read out;
  FieldReader reader(request);
  read_constraint(reader, out.spec);
  out.status = reader.status();
  return out;
}

ConstraintSpec accepted_format(const Json& request) {
  const Read out = read(request);
  EXPECT_TRUE(out.status.ok()) << out.status.to_string() << " " << request.dump();
  EXPECT_TRUE(out.spec.has_value()) << request.dump();
  return out.spec.value_or(ConstraintSpec{});
}

void refused_format(const Json& request, const std::string& field, const std::string& message = {}) {
  const Status status = read(request).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << request.dump();
  EXPECT_EQ(status.field(), field);
  EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
}

TEST(ResponseFormat, ReadsWhatEachApiCallsAConstraint) {
  const Json schema = {{"type", "object"}};
  const auto expect = [](const Json& request, GrammarKind kind, const std::string& field,
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
  expect({{"regex", "[a-z]+"}}, GrammarKind::kRegex, "regex", "[a-z]+");
  expect({{"ebnf", "root ::= \"x\""}}, GrammarKind::kGbnf, "ebnf", "root ::= \"x\"");
  expect({{"guided_choice", {"a", "b"}}}, GrammarKind::kChoice, "guided_choice", "[\"a\",\"b\"]");
  expect({{"guided_grammar", "start: \"x\""}}, GrammarKind::kLark, "guided_grammar", "start: \"x\"");
  expect({{"grammar", "root ::= \"x\""}}, GrammarKind::kGbnf, "grammar", "root ::= \"x\"");
  expect({{"grammar", "start: \"a ::= b\""}}, GrammarKind::kLark, "grammar", "start: \"a ::= b\"");
  expect({{"grammar", "# a comment ::=\nroot ::= \"x\""}}, GrammarKind::kGbnf, "grammar",
         "# a comment ::=\nroot ::= \"x\"");
  // One line that asks again and again whether it is a rule is read once.
  std::string long_line = "\"";
  for (int i = 0; i < 2'000'000; ++i) long_line += "::=";
  expect({{"grammar", long_line}}, GrammarKind::kLark, "grammar", long_line);
  expect({{"structured_outputs", {{"json", schema}}}}, GrammarKind::kJsonSchema, "structured_outputs.json",
         schema.dump());
  expect({{"structured_outputs", {{"choice", {"a"}}}}}, GrammarKind::kChoice, "structured_outputs.choice",
         "[\"a\"]");
  expect({{"structured_outputs", {{"json_object", true}}}}, GrammarKind::kJsonObject,
         "structured_outputs.json_object", "");
}

TEST(ResponseFormat, NothingAskedForIsNoConstraint) {
  for (const Json& request :
       {Json::object(), Json{{"response_format", {{"type", "text"}}}}, Json{{"response_format", nullptr}},
        Json{{"grammar", ""}}, Json{{"json_schema", Json::object()}},
        Json{{"structured_outputs", Json::object()}},
        Json{{"structured_outputs", {{"json_object", false}}}}}) {
    const Read out = read(request);
    EXPECT_TRUE(out.status.ok()) << out.status.to_string();
    EXPECT_FALSE(out.spec.has_value()) << request.dump();
  }
}

TEST(ResponseFormat, ErrorsNameTheField) {
  refused_format({{"response_format", "json"}}, "response_format", "JSON object");
  refused_format({{"response_format", Json::object()}}, "response_format.type", "json_schema");
  refused_format({{"response_format", {{"type", "xml"}}}}, "response_format.type", "got \"xml\"");
  refused_format({{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema", "required");
  refused_format({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "a"}}}}}},
                 "response_format.json_schema.schema", "required");
  refused_format({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", 5}}}}}},
                 "response_format.json_schema.schema", "got 5");
  refused_format(
      {{"response_format",
        {{"type", "json_schema"}, {"json_schema", {{"schema", Json::object()}, {"strict", "yes"}}}}}},
      "response_format.json_schema.strict");
  refused_format({{"guided_choice", Json::array()}}, "guided_choice");
  refused_format({{"guided_choice", {"a", 1}}}, "guided_choice[1]", "a string");
  refused_format({{"guided_regex", 1}}, "guided_regex");
  refused_format({{"ebnf", 1}}, "ebnf");
  refused_format({{"regex", "a"}, {"ebnf", "root ::= \"a\""}}, "ebnf", "can't be combined with regex");
  refused_format({{"structured_outputs", {{"structural_tag", "x"}}}}, "structured_outputs.structural_tag");
  refused_format({{"structured_outputs", {{"disable_any_whitespace", true}}}},
                 "structured_outputs.disable_any_whitespace");
  refused_format({{"guided_regex", "a"}, {"response_format", {{"type", "json_object"}}}}, "guided_regex",
                 "can't be combined with response_format");
}

TEST(ResponseFormat, MayBeSaidTwice) {
  const std::string grammar = "start: \"yes\" | \"no\"";
  const ConstraintSpec spec =
      accepted_format({{"guided_grammar", grammar}, {"structured_outputs", {{"grammar", grammar}}}});
  EXPECT_EQ(spec.source.text, grammar);
  EXPECT_EQ(spec.field, "guided_grammar");
  refused_format({{"guided_grammar", grammar}, {"structured_outputs", {{"grammar", grammar + " | \"oh\""}}}},
                 "structured_outputs.grammar", "can't be combined with guided_grammar");
  refused_format({{"guided_grammar", grammar}, {"structured_outputs", {{"regex", grammar}}}},
                 "structured_outputs.regex", "can't be combined with guided_grammar");
}

TEST(ResponseFormat, KeepsTheOrderOfTheSchemasMembers) {
  const std::string body =
      R"({"response_format" : {"type":"json_schema","json_schema":{"schema":0,"name":"s",)"
      R"( "sch\u0065ma" : {"z":{"y":1,"a":[2,"}\""]}, "b": 3} }} ,"model":"m"})";
  EXPECT_EQ(accepted_format(Json::parse(body)).source.text, R"({"z":{"y":1,"a":[2,"}\""]},"b":3})");
}

}  // namespace
}  // namespace loci
