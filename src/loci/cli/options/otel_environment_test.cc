// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/otel_environment.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "loci/cli/options/configuration.h"
#include "loci/server/trace_headers.h"

namespace loci {
namespace {

using Environment = std::vector<std::string>;

std::string header_error(std::string_view text) { return parse_otel_headers(text).status().message(); }

// --- lists ---

TEST(OtelHeaders, AreReadAsBaggage) {
  const auto read = [](std::string_view text) { return parse_otel_headers(text).value(); };
  EXPECT_EQ(read("x-honeycomb-team=abc"), (TraceHeaders{{"x-honeycomb-team", "abc"}}));
  EXPECT_EQ(read("Authorization=Basic%20c2VjcmV0Og==, x-team = a%2Cb%3dc%25 "),
            (TraceHeaders{{"Authorization", "Basic c2VjcmV0Og=="}, {"x-team", "a,b=c%"}}));
  EXPECT_EQ(read("Authorization=Basic c2VjcmV0"), (TraceHeaders{{"Authorization", "Basic c2VjcmV0"}}))
      << "a blank that somebody did not write as %20";
  EXPECT_EQ(read("a=1;b=2"), (TraceHeaders{{"a", "1;b=2"}})) << "properties of baggage are not known there";
  EXPECT_EQ(read("a=x+y"), (TraceHeaders{{"a", "x+y"}})) << "it is no form";
  EXPECT_EQ(read("a="), (TraceHeaders{{"a", ""}}));
  EXPECT_EQ(read("a=1,A=2,b=3"), (TraceHeaders{{"A", "2"}, {"b", "3"}})) << "the last of one name";
  for (const char* text : {"", ",", " , ,\t,"}) EXPECT_EQ(read(text), TraceHeaders()) << text;
  EXPECT_EQ(read(",a=1,,b=2,"), (TraceHeaders{{"a", "1"}, {"b", "2"}}));
}

TEST(OtelHeaders, ErrorsNameTheMemberAndShowNothingOfIt) {
  EXPECT_EQ(header_error("a=1,hidden"), "member 2: expected NAME=VALUE, found no '='");
  EXPECT_EQ(header_error(",,hidden"), "member 3: expected NAME=VALUE, found no '='");
  for (const char* text : {"a=hidden%", "a=hidden%4", "a=hidden%4x", "a=%hidden", "a=%%20", "a=hidden%2"})
    EXPECT_EQ(header_error(text), "member 1: expected two hexadecimal digits after each '%' (itself %25)")
        << text;
  for (const char* text : {"=hidden", "hidden name=x", "Authorization: Bearer hidden=", "hidd\xc3\xa9n=x",
                           "hid(den)=x", "hid\rden=x", "\"hidden\"=x"})
    EXPECT_TRUE(header_error(text).starts_with("member 1: expected a header's name")) << header_error(text);
  for (const char* text : {"a=hidden%0d%0aX-Injected:1", "a=hidden%0A", "a=hid%00den", "a=hid\nden",
                           "a=hid\r\nden", "a=%7fhidden", "a=hidden%C3%A9", "a=\x1b[2Jhidden"})
    EXPECT_TRUE(header_error(text).starts_with("member 1: expected a header's value")) << header_error(text);
  EXPECT_EQ(header_error("a=1,Content-Length=5"),
            "member 2: expected a header beside the exporter's own, found Content-Length");
  for (const char* text :
       {"hidden", "=hidden", "Authorization: Bearer hidden=", "a=hidden%0d%0a", "a=hidden%"})
    EXPECT_EQ(header_error(text).find("hidden"), std::string::npos) << header_error(text);
}

TEST(OtelHeaders, TheirLengthAndNumberAreBounded) {
  EXPECT_EQ(parse_otel_headers("a=" + std::string(kOtelListBytesMax - 2, 'x'))->size(), 1u);
  EXPECT_EQ(header_error("a=" + std::string(kOtelListBytesMax - 1, 'x')),
            "expected at most 8192 characters, found 8193");
  std::string text;
  for (std::size_t i = 0; i < kOtelMembersMax; ++i) text += "a" + std::to_string(i) + "=1,";
  EXPECT_EQ(parse_otel_headers(text)->size(), kOtelMembersMax);
  EXPECT_EQ(header_error(text + "b=1"), "member 65: expected at most 64");
}

// Whatever is read can be sent: no text makes a second header, or a request of its own.
TEST(OtelHeaders, OfRandomTextsOnlyHeadersAreRead) {
  const std::vector<std::string> pieces = {"a",
                                           "Key",
                                           "=",
                                           ",",
                                           "%",
                                           "%0d",
                                           "%0A",
                                           "%2",
                                           "20",
                                           "\r",
                                           "\n",
                                           " ",
                                           "\t",
                                           ":",
                                           ";",
                                           "%25",
                                           "-",
                                           std::string(1, '\0'),
                                           "é",
                                           "%C3",
                                           "%zz",
                                           "Host",
                                           "Content-Length",
                                           "%20"};
  std::mt19937 random(1);
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::size_t count = random() % 12; count > 0; --count) text += pieces[random() % pieces.size()];
    const Result<TraceHeaders> headers = parse_otel_headers(text);
    (headers.ok() ? read : refused) += 1;
    if (!headers.ok()) continue;
    for (const auto& [name, value] : *headers) {
      EXPECT_TRUE(check_trace_header(name, value).ok()) << text;
      EXPECT_EQ(value.find_first_of(std::string("\r\n\0", 3)), std::string::npos) << text;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(OtelAttributes, NamesHaveEscapesTooAndValuesMayBeAnyText) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const auto parsed =
      parse_otel_attributes("service.name=a%20b, k%2Cx=%0A,deployment.environment=prod,a=1,a=2");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed,
            (Pairs{{"service.name", "a b"}, {"k,x", "\n"}, {"deployment.environment", "prod"}, {"a", "2"}}));
  EXPECT_EQ(parse_otel_attributes("=1").status().message(), "member 1: expected a name before the '='");
  EXPECT_EQ(parse_otel_attributes("a=1,%4=1").status().message(), "member 2: expected a name before the '='");
  EXPECT_FALSE(parse_otel_attributes("a=%").ok());
  EXPECT_FALSE(parse_otel_attributes("a").ok());
}

// --- what becomes of them ---

struct Taken {
  Status status;
  TracesOptions traces;
  OtelNews news;
};

Taken take(const Environment& environment, const OtelTold& told = {}, TracesOptions traces = {}) {
  const Result<OtelNews> news = apply_otel_environment(environment, told, traces);
  return {.status = news.status(), .traces = traces, .news = news.ok() ? *news : OtelNews()};
}

// With what asks for spans.
Taken take_asked(Environment more) {
  more.insert(more.begin(), "OTEL_TRACES_EXPORTER=otlp");
  return take(more);
}

Taken take_told(const Environment& environment) {
  return take(environment, {.url = true}, {.url = "http://127.0.0.1:4318"});
}

TEST(OtelEnvironment, AnEndpointAloneBeginsNothing) {
  const Taken taken = take({"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_HEADERS=bad"});
  EXPECT_EQ(taken.traces.url, "");
  EXPECT_TRUE(taken.news.warnings.empty()) << "nobody looks at what is not used";
  EXPECT_EQ(taken.news.notes,
            (std::vector<std::string>{"OTEL_EXPORTER_OTLP_ENDPOINT alone does not make Loci send spans; "
                                      "OTEL_TRACES_EXPORTER=otlp beside it does"}));
  EXPECT_EQ(take({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/x"}).traces.url, "");
  EXPECT_TRUE(take({}).news.notes.empty());
  EXPECT_TRUE(take({"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "OTEL_SDK_DISABLED=true"}).news.notes.empty());
}

TEST(OtelEnvironment, TheExporterTurnsTracesOnAndOff) {
  EXPECT_EQ(take({"OTEL_TRACES_EXPORTER=otlp"}).traces.url, "http://localhost:4318/v1/traces");
  EXPECT_EQ(take({"OTEL_TRACES_EXPORTER=otlp"}).news.url_from, "OTEL_TRACES_EXPORTER");
  EXPECT_EQ(take({"OTEL_TRACES_EXPORTER= OTLP , console"}).traces.url, "http://localhost:4318/v1/traces");
  for (const Environment& off :
       {Environment{"OTEL_TRACES_EXPORTER=none"}, Environment{"OTEL_TRACES_EXPORTER="},
        Environment{"OTEL_TRACES_EXPORTER=otlp", "OTEL_SDK_DISABLED=TRUE"},
        Environment{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=always_off"}}) {
    EXPECT_EQ(take(off).traces.url, "");
    EXPECT_TRUE(take(off).news.warnings.empty());
  }
  EXPECT_NE(take_asked({"OTEL_SDK_DISABLED=false"}).traces.url, "");
}

TEST(OtelEnvironment, ABaseHasThePathAddedAndTheOneOfTracesIsUsedAsItIs) {
  const auto of_base = [](const std::string& url) {
    return take_asked({"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}).traces.url;
  };
  EXPECT_EQ(of_base("http://c:4318"), "http://c:4318/v1/traces");
  EXPECT_EQ(of_base("http://c:4318/"), "http://c:4318/v1/traces");
  EXPECT_EQ(of_base("https://c.example/otlp/"), "https://c.example/otlp/v1/traces");
  EXPECT_EQ(of_base("https://c.example/otlp?a=b#c"), "https://c.example/otlp/v1/traces?a=b");
  EXPECT_EQ(of_base("http://c#x"), "http://c/v1/traces");
  const auto own = [](const std::string& url) {
    return take_asked(
               {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + url, "OTEL_EXPORTER_OTLP_ENDPOINT=http://other"})
        .traces.url;
  };
  EXPECT_EQ(own("http://c:4318/x?a=b"), "http://c:4318/x?a=b");
  EXPECT_EQ(own("http://c:4318"), "http://c:4318/?") << "the root, not /v1/traces";
  EXPECT_EQ(own("http://c:4318/"), "http://c:4318/?");
  EXPECT_EQ(take_asked({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c/x"}).news.url_from,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
}

TEST(OtelEnvironment, GrpcIsNotSpoken) {
  const Taken grpc =
      take_asked({"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317"});
  EXPECT_TRUE(grpc.status.ok()) << "the variable is for all programs, so it keeps none from starting";
  EXPECT_EQ(grpc.traces.url, "");
  EXPECT_EQ(
      grpc.news.warnings,
      (std::vector<std::string>{
          "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/json, which is what Loci speaks (collectors take it at "
          "port 4318), found \"grpc\"; no spans are sent"}));
  const Taken own =
      take_asked({"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"});
  EXPECT_NE(own.traces.url, "") << "the variable of traces goes before that of all signals";
  EXPECT_TRUE(own.news.warnings.empty());
  const Taken protobuf = take_asked({"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"});
  EXPECT_NE(protobuf.traces.url, "") << "OpenTelemetry's Collector takes both at one place";
  EXPECT_EQ(protobuf.news.notes.size(), 1u);
  EXPECT_TRUE(take_told({"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}).status.ok()) << "it is not of that URL";
}

TEST(OtelEnvironment, SamplersBecomeAShareAsFarAsTheyAreOne) {
  const auto share = [](const char* sampler, const char* argument = "") {
    return take_asked(
        {std::string("OTEL_TRACES_SAMPLER=") + sampler, std::string("OTEL_TRACES_SAMPLER_ARG=") + argument});
  };
  EXPECT_EQ(take_asked({"OTEL_TRACES_SAMPLER_ARG=0.5"}).traces.share, 1)
      << "without a sampler it means nothing";
  EXPECT_EQ(share("parentbased_always_on").traces.share, 1);
  EXPECT_EQ(share("parentbased_always_off").traces.share, 0);
  EXPECT_EQ(share("parentbased_traceidratio", "0.25").traces.share, 0.25);
  EXPECT_EQ(share("parentbased_traceidratio").traces.share, 1);
  EXPECT_TRUE(share("parentbased_traceidratio", "0.25").news.notes.empty());
  EXPECT_EQ(share("ParentBased_TraceIdRatio", "0").traces.share, 0);
  EXPECT_EQ(share("traceidratio", "1e-2").traces.share, 0.01);
  EXPECT_EQ(share("traceidratio", "1e-2").news.notes,
            (std::vector<std::string>{"OTEL_TRACES_SAMPLER: traceidratio counts as parentbased_traceidratio, "
                                      "because Loci obeys the header traceparent"}));
  EXPECT_EQ(share("always_on").news.notes.size(), 1u);
  for (const char* wrong : {"jaeger_remote", "parentbased_jaeger_remote", "xray", "parentbased_", "on"}) {
    EXPECT_EQ(share(wrong).traces.url, "") << wrong;
    ASSERT_EQ(share(wrong).news.warnings.size(), 1u) << wrong;
    EXPECT_TRUE(share(wrong).news.warnings[0].starts_with("OTEL_TRACES_SAMPLER: expected parentbased_"));
  }
  for (const char* wrong : {"1.5", "-0.1", "half", "nan", "0.5x", "inf", "0,5"})
    EXPECT_EQ(share("traceidratio", wrong).news.warnings,
              (std::vector<std::string>{"OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, found \"" +
                                        std::string(wrong) + "\"; no spans are sent"}));
}

TEST(OtelEnvironment, NamesWhoSends) {
  const Environment both = {"OTEL_RESOURCE_ATTRIBUTES=service.name=a,team=x", "OTEL_SERVICE_NAME=b, c"};
  const Taken taken = take_told(both);
  EXPECT_EQ(taken.traces.service, "b, c");
  EXPECT_EQ(taken.traces.attributes, (TraceHeaders{{"team", "x"}}));
  EXPECT_EQ(take_told({both[0]}).traces.service, "a");
  EXPECT_EQ(take_told({}).traces.service, "loci");
  const Taken wrong = take_told({"OTEL_RESOURCE_ATTRIBUTES=service.name=a,team"});
  EXPECT_TRUE(wrong.status.ok());
  EXPECT_EQ(wrong.traces.service, "loci");
  EXPECT_EQ(wrong.news.warnings,
            (std::vector<std::string>{
                "OTEL_RESOURCE_ATTRIBUTES: member 2: expected NAME=VALUE, found no '='; none is sent"}));
}

TEST(OtelEnvironment, WhatIsWrongIsAnErrorWhereLociItselfWasToldToTrace) {
  const auto refused = [](const char* entry) {
    const Taken taken = take_told({entry});
    EXPECT_FALSE(taken.status.ok()) << entry;
    return std::string(taken.status.field());
  };
  EXPECT_EQ(refused("OTEL_EXPORTER_OTLP_HEADERS=hidden"), "OTEL_EXPORTER_OTLP_HEADERS");
  EXPECT_EQ(refused("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=%"), "OTEL_EXPORTER_OTLP_TRACES_HEADERS");
  EXPECT_EQ(refused("OTEL_TRACES_SAMPLER=x"), "OTEL_TRACES_SAMPLER");
  const Taken asked = take_asked({"OTEL_EXPORTER_OTLP_HEADERS=hidden"});
  EXPECT_EQ(asked.traces.url, "");
  EXPECT_EQ(
      asked.news.warnings,
      (std::vector<std::string>{"OTEL_EXPORTER_OTLP_HEADERS: member 1: expected NAME=VALUE, found no '='; "
                                "no spans are sent"}));
  for (const char* wrong :
       {"OTEL_EXPORTER_OTLP_ENDPOINT=c:4317", "OTEL_EXPORTER_OTLP_ENDPOINT=http://u:hidden@c",
        "OTEL_TRACES_EXPORTER=console", "OTEL_SDK_DISABLED=1"}) {
    const Taken taken = take({"OTEL_TRACES_EXPORTER=otlp", wrong});
    EXPECT_EQ(taken.traces.url, "") << wrong;
    ASSERT_EQ(taken.news.warnings.size(), 1u) << wrong;
    EXPECT_EQ(taken.news.warnings[0].find("hidden"), std::string::npos) << taken.news.warnings[0];
  }
}

TEST(OtelEnvironment, AKeyGoesToTheCollectorThatItIsOfAlone) {
  const std::string headers = "OTEL_EXPORTER_OTLP_HEADERS=a=hidden";
  EXPECT_EQ(take_told({headers}).traces.headers.size(), 1u) << "no other place is named";
  EXPECT_EQ(take_told({headers, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318/x"}).traces.headers.size(),
            1u);
  for (const char* other :
       {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=c",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4319"}) {
    const Taken taken = take_told({headers, other});
    EXPECT_TRUE(taken.traces.headers.empty()) << other;
    ASSERT_EQ(taken.news.warnings.size(), 1u) << other;
    EXPECT_TRUE(taken.news.warnings[0].starts_with("OTEL_EXPORTER_OTLP_HEADERS: not sent"))
        << taken.news.warnings[0];
  }
  const Taken own = take_asked({headers, "OTEL_EXPORTER_OTLP_TRACES_HEADERS=b=2"});
  EXPECT_EQ(own.traces.headers, (TraceHeaders{{"b", "2"}})) << "the variable of traces goes before the other";
  const Taken file = take({headers, "OTEL_TRACES_EXPORTER=otlp"}, {}, {.headers_file = "f"});
  EXPECT_TRUE(file.traces.headers.empty()) << "the option goes before the variable";
}

TEST(OtelEnvironment, WhatLociItselfWasToldGoesBeforeIt) {
  const Environment all = {"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c",
                           "OTEL_TRACES_SAMPLER=parentbased_always_off"};
  EXPECT_EQ(take_told(all).traces.url, "http://127.0.0.1:4318");
  EXPECT_EQ(take_told(all).traces.share, 0);
  EXPECT_EQ(take(all, {.share = true}, {.share = 0.5}).traces.share, 0.5);
  EXPECT_EQ(take(all, {.url = true}, {.url = ""}).traces.url, "") << "an empty URL turns traces off";
  const Taken disabled = take_told({"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"});
  EXPECT_EQ(disabled.traces.url, "http://127.0.0.1:4318");
  EXPECT_EQ(disabled.news.notes.size(), 2u);
}

// --- as `loci serve` has it ---

TEST(OtelEnvironment, ComesBehindFlagsVariablesAndFile) {
  ConfigurationSources sources;
  sources.environment = {"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318",
                         "OTEL_EXPORTER_OTLP_HEADERS=a=keepme",
                         "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.25"};
  const Configuration standard = make_configuration(sources).value();
  EXPECT_EQ(standard.server.traces.url, "http://c:4318/v1/traces");
  EXPECT_TRUE(standard.warnings.empty());
  const std::string text = print_configuration(standard);
  EXPECT_NE(text.find("traces = \"http://c:4318/v1/traces\"  # OTEL_EXPORTER_OTLP_ENDPOINT"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("trace_share = 0.25  # OTEL_TRACES_SAMPLER"), std::string::npos) << text;
  EXPECT_EQ(text.find("keepme"), std::string::npos) << text;

  sources.file_text = text;
  sources.file_name = "loci.toml";
  const Configuration again = make_configuration(sources).value();
  EXPECT_EQ(again.server.traces.url, standard.server.traces.url);
  EXPECT_EQ(again.server.traces.headers, standard.server.traces.headers) << "the key is of that place";
  sources.file_text = "[logging]\ntraces = \"http://file\"\n";
  EXPECT_EQ(make_configuration(sources)->server.traces.url, "http://file");
  sources.environment.push_back("LOCI_TRACES=http://variable");
  EXPECT_EQ(make_configuration(sources)->server.traces.url, "http://variable");
  sources.flags = {{"--traces", ""}};
  EXPECT_EQ(make_configuration(sources)->server.traces.url, "");

  sources.flags = {{"--traces", "http://flag"}};
  sources.environment = {"OTEL_EXPORTER_OTLP_HEADERS=hidden"};
  const Status refused = make_configuration(sources).status();
  EXPECT_EQ(refused.field(), "OTEL_EXPORTER_OTLP_HEADERS");
  EXPECT_EQ(refused.message(), "member 1: expected NAME=VALUE, found no '='");
}

}  // namespace
}  // namespace loci
