// SPDX-License-Identifier: Apache-2.0
// The table of options, the layers that values come from, and what is printed of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "loci/cli/options/configuration.h"
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/cli/options/toml_file.h"
#include "loci/policy/baselines.h"
#include "loci/server/baseline.h"

namespace loci {
namespace {

Result<Configuration> from_file(const std::string& text) {
  return make_configuration({.flags = {}, .environment = {}, .file_text = text, .file_name = "loci.toml"});
}

void expect_refused(const Result<Configuration>& result, const std::string& field,
                    const std::string& message) {
  ASSERT_FALSE(result.ok()) << field;
  EXPECT_EQ(result.status().field(), field);
  EXPECT_NE(result.status().message().find(message), std::string::npos) << result.status().message();
}

TEST(OptionTable, NamesAreUniqueAndMechanical) {
  std::set<std::string> names;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(option.environment()).second) << option.environment();
    EXPECT_FALSE(option.help.empty()) << option.flag;
    EXPECT_FALSE(option.type.empty()) << option.flag;
    EXPECT_EQ(find_option(option.key()), &option);
  }
  const Option* body = find_option("network.max_body");
  ASSERT_NE(body, nullptr);
  EXPECT_EQ(body->environment(), "LOCI_MAX_BODY");
  EXPECT_EQ(body->flag, "--max-body");
}

TEST(OptionTable, DefaultsAreAcceptedAndGiveThemselves) {
  for (const Option& option : option_table()) {
    ServerConfig flags;
    const std::optional<std::string> text = option.get(flags);
    if (!text) {
      EXPECT_FALSE(option.default_note.empty()) << option.flag << " shows no default";
      continue;
    }
    const Status status = option.set(flags, *text);
    EXPECT_TRUE(status.ok()) << option.flag << " " << status.to_string();
    EXPECT_EQ(option.get(flags), text) << option.flag;
  }
}

TEST(OptionTable, ExactTextsAreReadBackExactly) {
  for (const std::uint64_t bytes :
       {0ull, 1ull, 1023ull, 1024ull, 1536ull, 8ull << 20, 3ull << 30, (1ull << 40) + 1}) {
    EXPECT_EQ(*parse_bytes(exact_bytes(bytes), ""), bytes) << exact_bytes(bytes);
  }
  for (const std::int64_t time :
       {0ll, 1ll, 999ll, 1'500ll, 250'000'000ll, 75'000'000'000ll, 86'400'000'000'000ll}) {
    EXPECT_EQ(*parse_duration(exact_duration(time), ""), time) << exact_duration(time);
  }
  EXPECT_EQ(exact_bytes(8 << 20), "8MiB");
  EXPECT_EQ(exact_duration(75'000'000'000), "75s");
}

TEST(OptionTable, FindsTheNearestName) {
  const std::vector<std::string> names = {"network.port", "network.host", "compute.threads"};
  EXPECT_EQ(nearest_name("network.prot", names), "network.port");
  EXPECT_EQ(nearest_name("network.threads", names), "compute.threads");
  EXPECT_EQ(nearest_name("something.else", names), "");
  EXPECT_EQ(nearest_name("ps", {"rm"}), "");
  EXPECT_EQ(nearest_name("lst", {"rm", "list"}), "list");
}

TEST(OptionBuilders, ListsAndSwitches) {
  ServerConfig flags;
  std::vector<std::string> list;
  const Option many = list_option({"store", "--many", "h"}, "A", [&list](auto&) -> auto& { return list; });
  EXPECT_TRUE(many.set(flags, "a,b c").ok());
  EXPECT_EQ(list, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(many.get(flags), "a,b c");
  EXPECT_FALSE(many.set(flags, "a,,b").ok());
  EXPECT_FALSE(many.set(flags, "a,").ok());
  EXPECT_TRUE(many.set(flags, "").ok());
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(toml_value(many, "a,b c"), R"(["a", "b c"])");
  EXPECT_EQ(toml_value(many, ""), "[]");
  bool is_on = false;
  const Option one = switch_option({"store", "--one", "h"}, [&is_on](auto&) -> auto& { return is_on; });
  EXPECT_TRUE(one.set(flags, "on").ok());
  EXPECT_TRUE(is_on);
  EXPECT_FALSE(one.set(flags, "yes").ok());
  EXPECT_TRUE(is_on);
}

TEST(OptionTable, ThePeerPortIsANumberOrNone) {
  const Option* option = find_option("cluster.peer_port");
  ASSERT_NE(option, nullptr);
  const auto port = [](const std::string& value) {
    return from_file("[cluster]\npeer_port = " + value + "\n")->server.peer_port;
  };
  const auto printed = [&](const std::string& value) {
    const Configuration read = from_file("[cluster]\npeer_port = " + value + "\n").value();
    return toml_value(*option, option->get(read.server).value());
  };
  EXPECT_EQ(from_file("")->server.peer_port, std::optional<std::uint16_t>(0)) << "one that is free";
  for (const std::string value : {"7000", "\"7000\""}) {
    EXPECT_EQ(port(value), std::optional<std::uint16_t>(7000));
    EXPECT_EQ(port(printed(value)), std::optional<std::uint16_t>(7000)) << "what is printed reads back";
  }
  EXPECT_EQ(port("\"none\""), std::nullopt);
  EXPECT_EQ(port(printed("\"none\"")), std::nullopt) << "what is printed reads back";
  expect_refused(from_file("[cluster]\npeer_port = 65536\n"), "loci.toml:2: cluster.peer_port",
                 "expected none, or a number up to 65535, found \"65536\"");
  expect_refused(from_file("[cluster]\npeer_port = \"some\"\n"), "loci.toml:2: cluster.peer_port",
                 "found \"some\"");
}

TEST(Configuration, FlagsGoBeforeEnvironmentBeforeFileBeforeDefault) {
  ConfigurationSources sources{.flags = {},
                               .environment = {},
                               .file_text = "[network]\nport = 1\n[scheduling]\nmax_running = 7\n",
                               .file_name = "loci.toml"};
  const auto port = [&sources] { return make_configuration(sources)->server.http.port; };
  EXPECT_EQ(port(), 1);
  sources.environment = {"PATH=/bin", "LOCI_PORT=2", "LOCI_HOST="};
  EXPECT_EQ(port(), 2);
  sources.flags = {{"--port", "3"}};
  EXPECT_EQ(port(), 3);
  const Configuration all = make_configuration(sources).value();
  EXPECT_EQ(all.server.max_running, 7u);
  EXPECT_EQ(all.server.http.host, "127.0.0.1") << "an empty variable counts as not set";
  EXPECT_TRUE(all.warnings.empty());
  for (const Setting& setting : all.settings) {
    const std::string key = setting.option->key();
    EXPECT_EQ(setting.source, key == "network.port"             ? "--port"
                              : key == "scheduling.max_running" ? "loci.toml:4"
                                                                : "default")
        << key;
  }
}

TEST(Configuration, ErrorsNameTheirSource) {
  ConfigurationSources sources;
  sources.flags = {{"--port", "70000"}};
  expect_refused(make_configuration(sources), "--port",
                 "expected an integer from 0 to 65535, found \"70000\"");
  sources.flags = {{"--io-limit", "0"}};
  expect_refused(make_configuration(sources), "--io-limit", "expected a size from 1MiB to");
  sources.flags = {{"--host", ""}};
  expect_refused(make_configuration(sources), "--host", "by which a server would listen on every interface");
  sources.flags = {{"--advertise", "0.0.0.0:80"}};
  expect_refused(make_configuration(sources), "--advertise", "found one to listen on");
  for (const char* name : {"b.example:80", " b.example", "b.example.", "*.example", "http://b.example"}) {
    sources.flags = {{"--allowed-host", name}};
    expect_refused(make_configuration(sources), "--allowed-host", "expected host names");
  }
  sources.flags = {{"--port", "80"}};
  sources.environment = {"LOCI_PORT=eighty"};
  EXPECT_TRUE(make_configuration(sources).ok()) << "the flag decides, so nobody looks at the variable";
  sources.flags = {};
  expect_refused(make_configuration(sources), "LOCI_PORT", "found \"eighty\"");
  sources.environment = {"LOCI_EVICTION=best"};
  expect_refused(make_configuration(sources), "LOCI_EVICTION", "expected one of lru, fifo, random");
  sources.environment = {"LOCI_MAX_HEADER=12"};
  expect_refused(make_configuration(sources), "LOCI_MAX_HEADER", "from 1KiB to 16MiB");
  expect_refused(from_file("\n[network]\nport = -1\n"), "loci.toml:3: network.port", "found \"-1\"");
  expect_refused(from_file("[network]\nport = [80]\n"), "loci.toml:2: network.port", "expected an integer");
  expect_refused(from_file("[network]\nhost = 80\n"), "loci.toml:2: network.host",
                 "expected a string, found 80");
  expect_refused(from_file("network = 1\n"), "loci.toml:1: network", "expected a table");
  expect_refused(from_file("[network]\nport = \n"), "loci.toml:2", "not valid TOML: ");
  expect_refused(from_file("[network]\nport = 1\nport = 2\n"), "loci.toml:3", "not valid TOML");
}

TEST(Configuration, ErrorsSayWhatIsAllowedAndFound) {
  struct Case {
    std::string flag, value, message;
  };
  const std::vector<Case> cases = {
      {"--join", "postgrsql://ann:secret@db/loci",
       "expected postgresql://..., found something else, which is not shown as it may have a password"},
      {"--advertise", "here", "expected HOST:PORT, as other machines reach this one, found \"here\""},
      {"--cors-origin", "a,,b", "expected values with commas between them, found \"a,,b\""},
      {"--max-body", "0", "expected a size from 1 to 4294967296GiB, found \"0\""},
      {"--max-bodies", "0", "expected a size from 1 to 4294967296GiB, found \"0\""},
      {"--cors-origin", "https://a.example,chat.example",
       "expected * or origins such as https://chat.example, without a path, found \"chat.example\""},
      {"--cors-origin", "https://chat.example/",
       "expected * or origins such as https://chat.example, without a path, found \"https://chat.example/\""},
      {"--temperature", "-1", "expected a number from 0 to 100, found \"-1\""},
      {"--preload", "some", "expected one of off, buffer, unbounded, found \"some\""},
      {"--lenient", "yes", "expected one of on, off, found \"yes\""},
      {"--disk", "/data:much", "expected DIR or DIR:SIZE (/data/loci:64GiB), found \"/data:much\""},
      {"--disk", "none,/data", "expected `none` alone or directories, found both (a directory: ./none)"},
      {"--disk", "off", "expected `none` or a directory, found \"off\" (a directory: ./off)"},
      {"--disk", "/data,/data", "expected different directories, found /data twice"},
      {"--api-keys", "", "expected a file, found an empty text; leave the flag out to serve without"},
      {"--tls-cert", "", "expected a file, found an empty text; leave the flag out to serve without"},
      {"--store", "off", "expected `none` or a place, found \"off\" (a file: ./off)"},
      {"--event-log", "false", "expected `none` or a place, found \"false\" (a file: ./false)"},
  };
  for (const auto& [flag, value, message] : cases) {
    ConfigurationSources sources;
    sources.flags = {{flag, value}};
    const Status status = make_configuration(sources).status();
    EXPECT_EQ(status.field(), flag) << value;
    EXPECT_EQ(status.message(), message) << flag << " " << value;
  }
}

TEST(Configuration, ABaselineSetsAPapersPolicies) {
  ConfigurationSources sources;
  sources.flags = {{"--baseline", "pensieve"}, {"--host-memory", "1GiB"}, {"--eviction", "retention"}};
  const Configuration pensieve = make_configuration(sources).value();
  EXPECT_EQ(pensieve.server.policies, find_baseline("pensieve")->policies);
  EXPECT_EQ(pensieve.server.host_memory, std::uint64_t{1} << 30) << "the operator's";
  ASSERT_TRUE(pensieve.server.disk.has_value());
  EXPECT_TRUE(pensieve.server.disk->empty()) << "Pensieve has no disk";
  EXPECT_FALSE(pensieve.server.pass_time.has_value());
  const std::vector<std::string_view> decides = make_server_baseline("pensieve")->options;
  for (const Setting& setting : pensieve.settings) {
    const std::string flag = setting.option->flag;
    const bool decided = std::ranges::any_of(decides, [&](std::string_view name) {
      return setting.option->key() == setting.option->group + "." + std::string(name);
    });
    const bool given = flag == "--host-memory" || flag == "--eviction";
    EXPECT_EQ(setting.source == "--baseline", flag == "--baseline" || (decided && !given)) << flag;
    EXPECT_TRUE(setting.source != "--baseline" || (flag != "--max-running" && flag != "--state-ttl")) << flag;
  }
  const std::string text = print_configuration(pensieve);
  EXPECT_EQ(from_file(text)->server.policies, pensieve.server.policies) << text;

  const Configuration store = from_file("[scheduling]\nbaseline = \"attentionstore\"\n").value();
  EXPECT_EQ(store.server.context_overflow, "truncate");
  EXPECT_EQ(store.server.policies.save, "through");
  EXPECT_FALSE(store.server.disk.has_value()) << "the operator's, or the default";
  sources.flags = {{"--baseline", "stateless"}};
  const Configuration none = make_configuration(sources).value();
  EXPECT_FALSE(none.server.policies.reuse);
  EXPECT_EQ(none.server.host_memory, 0u);
}

TEST(Configuration, ABaselineRefusesWhatContradictsIt) {
  ConfigurationSources sources;
  sources.flags = {{"--baseline", "vllm"}};
  expect_refused(make_configuration(sources), "--baseline",
                 "expected one of pensieve, attentionstore, berkeley-lru, stateless, found \"vllm\"");
  sources.flags = {{"--baseline", "pensieve"}, {"--eviction", "lru"}};
  expect_refused(make_configuration(sources), "--eviction",
                 "expected \"retention\", which pensieve has, found \"lru\"");
  sources.flags = {{"--baseline", "pensieve"}, {"--disk", "/tmp"}};
  expect_refused(make_configuration(sources), "--disk", "expected \"none\"");
  sources.flags = {{"--baseline", "berkeley-lru"}};
  sources.environment = {"LOCI_SAVE=ahead"};
  expect_refused(make_configuration(sources), "LOCI_SAVE", "expected \"through\"");
  sources.environment.clear();
  sources.file_name = "loci.toml";
  sources.file_text = "[scheduling]\nadmission = \"fcfs\"\n";
  expect_refused(make_configuration(sources), "loci.toml:2: scheduling.admission", "expected \"fpf\"");
}

TEST(Configuration, RefusesUnknownKeysWithTheNearestKnown) {
  expect_refused(from_file("[network]\nprot = 80\n"), "loci.toml:2: network.prot", "is network.port meant?");
  expect_refused(from_file("[network]\nthreads = 2\n"), "loci.toml:2: network.threads",
                 "is compute.threads meant?");
  expect_refused(from_file("[netwrk]\nport = 80\n"), "loci.toml:1: netwrk", "is network meant?");
  expect_refused(from_file("port = 80\n"), "loci.toml:1: port", "is network.port meant?");
}

TEST(Configuration, WarnsOfUnknownVariables) {
  const ConfigurationSources sources{
      .flags = {},
      .environment = {"LOCI_PROT=1", "LOCI_CONFIG=x", "LOCI_WORLD_SEEDS=1", "LOC_X=1"},
      .file_text = {},
      .file_name = {}};
  const Configuration configuration = make_configuration(sources).value();
  ASSERT_EQ(configuration.warnings.size(), 1u);
  EXPECT_EQ(configuration.warnings[0], "LOCI_PROT: there is no option of that name; is LOCI_PORT meant?");
}

TEST(Configuration, IsSilentAboutVariablesOfOtherCommandsAndOfTests) {
  const ConfigurationSources sources{
      .flags = {},
      .environment = {"LOCI_API_KEY=x", "LOCI_POLICY=session", "LOCI_HANDOVER=always", "LOCI_TLS_CA=ca.pem",
                      "LOCI_TEMPLATES=x", "LOCI_CUDA_ARCHITECTURES=90a", "LOCI_SIMULATED_SEED=1"},
      .file_text = {},
      .file_name = {}};
  EXPECT_TRUE(make_configuration(sources)->warnings.empty());
}

TEST(Configuration, TypesOfTomlThatFit) {
  const Configuration configuration =
      from_file(
          "[network]\nmax_body = 1048576\nidle_timeout = 2.5\nbody_timeout = \"10m\"\n"
          "[compute]\ncpu = \"plain\"\ndevice_memory = \"1GiB\"\n"
          "[scheduling]\nseed = \"18446744073709551615\"\n")
          .value();
  EXPECT_EQ(configuration.server.http.limits.body_bytes_max, 1u << 20);
  EXPECT_EQ(configuration.server.http.limits.idle_timeout, 2'500 * kNanosPerMilli);
  EXPECT_EQ(configuration.server.http.limits.body_timeout, 600 * kNanosPerSecond);
  EXPECT_EQ(configuration.server.instruction_set, InstructionSet::kPlain);
  EXPECT_EQ(configuration.server.device_memory, std::uint64_t{1} << 30);
  EXPECT_EQ(configuration.server.seed, UINT64_MAX);
}

TEST(Configuration, SamplingIsWrittenInNumbers) {
  const auto read = [](const std::string& text) { return from_file("[sampling]\n" + text); };
  const Configuration numbers =
      read("temperature = 0.7\ntop_p = 1\nmin_p = 1e-2\nrepeat_penalty = \"1.1\"\n").value();
  EXPECT_EQ(numbers.server.sampling.temperature, 0.7f);
  EXPECT_EQ(numbers.server.sampling.top_p, 1.0f);
  EXPECT_EQ(numbers.server.sampling.min_p, 0.01f);
  EXPECT_EQ(numbers.server.sampling.repeat_penalty, 1.1f) << "a string, as before";
  const std::string printed = print_configuration(numbers);
  for (const char* line :
       {"\ntemperature = 0.7  # ", "\ntop_p = 1  # ", "\nmin_p = 0.01  # ", "\nrepeat_penalty = 1.1  # "})
    EXPECT_NE(printed.find(line), std::string::npos) << printed;
  const Configuration again = from_file(printed).value();
  for (const Option& option : option_table())
    EXPECT_EQ(option.get(again.server), option.get(numbers.server)) << option.key();
  const Configuration smallest = read("top_p = 0.000001\n").value();
  EXPECT_EQ(from_file(print_configuration(smallest))->server.sampling.top_p, smallest.server.sampling.top_p);
  expect_refused(read("temperature = true\n"), "loci.toml:2: sampling.temperature",
                 "expected a number, found true");
  expect_refused(read("temperature = nan\n"), "loci.toml:2: sampling.temperature",
                 "expected a number from 0 to 100");
  expect_refused(read("top_p = 2\n"), "loci.toml:2: sampling.top_p", "found \"2\"");
}

TEST(Configuration, ADeviceIsChosenByName) {
  const Configuration standard = make_configuration({}).value();
  EXPECT_EQ(standard.server.device, DeviceChoice{});
  EXPECT_FALSE(standard.server.deterministic);
  EXPECT_FALSE(standard.server.host_memory.has_value()) << "what it is depends on the device";

  ConfigurationSources sources;
  sources.flags = {{"--device", "cuda:1"}, {"--deterministic", "on"}, {"--host-memory", "0"}};
  const Configuration given = make_configuration(sources).value();
  EXPECT_EQ(given.server.device, (DeviceChoice{.kind = DeviceKind::kCuda, .ordinal = 1}));
  EXPECT_TRUE(given.server.deterministic);
  EXPECT_EQ(given.server.host_memory, std::uint64_t{0});

  sources.flags = {{"--device", "gpu"}};
  const Status refused = make_configuration(sources).status();
  EXPECT_EQ(refused.field(), "--device");
  EXPECT_EQ(refused.message(), "expected auto, cpu or cuda:N (the first GPU is cuda:0), found \"gpu\"");
}

TEST(Configuration, WhatIsPrintedIsReadBack) {
  ConfigurationSources sources;
  sources.flags = {{"--host", "a \"quoted\"\tname\\ \x7f ü"},
                   {"--seed", "18446744073709551615"},
                   {"--quantize", "q4_k"},
                   {"--request-timeout", "0"},
                   {"--idle-timeout", "1.5s"},
                   {"--model", "m"}};
  const Configuration first = make_configuration(sources).value();
  const std::string text = print_configuration(first);
  const Result<Configuration> second = from_file(text);
  ASSERT_TRUE(second.ok()) << second.status().to_string() << "\n" << text;
  for (const Option& option : option_table()) {
    EXPECT_EQ(option.get(second->server), option.get(first.server)) << option.key();
  }
  EXPECT_NE(text.find("idle_timeout = \"1500ms\"  # --idle-timeout"), std::string::npos) << text;
  EXPECT_NE(text.find("port = 8080  # default"), std::string::npos) << text;
  EXPECT_NE(text.find("# device_memory: half of what is free"), std::string::npos) << text;
}

// Who wants nothing written must not find all of it in a file of that name.
TEST(Configuration, NoneIsNoFile) {
  ConfigurationSources sources;
  sources.flags = {{"--store", "none"}, {"--event-log", "none"}};
  const Configuration configuration = make_configuration(sources).value();
  EXPECT_EQ(configuration.server.store, "");
  EXPECT_EQ(configuration.server.event_log, "");
  ConfigurationSources file;
  file.flags = {{"--store", "./none"}};
  EXPECT_EQ(make_configuration(file).value().server.store, "./none");
}

TEST(Configuration, PasswordsInUrlsAreNotPrinted) {
  ConfigurationSources sources;
  sources.flags = {{"--shared", "redis://ann:secret@cache:7000/1"},
                   {"--store", "postgresql://ann:secret@db/talks"},
                   {"--join", "postgresql://ann:secret@db/loci"}};
  const std::string text = print_configuration(make_configuration(sources).value());
  EXPECT_EQ(text.find("secret@"), std::string::npos) << text;
  EXPECT_NE(text.find("shared = \"redis://ann:***@cache:7000/1\"  # --shared"), std::string::npos) << text;
}

TEST(Configuration, SecretsAreNeitherPrintedNorQuoted) {
  std::string key;
  Option option =
      text_option({"tenants", "--secret-key", "h"}, "KEY", [&key](auto&) -> auto& { return key; });
  option.secret = true;
  Configuration configuration;
  ASSERT_TRUE(option.set(configuration.server, "sk-hidden").ok());
  configuration.settings.push_back({.option = &option, .source = "LOCI_SECRET_KEY"});
  const std::string text = print_configuration(configuration);
  EXPECT_EQ(text.find("sk-hidden"), std::string::npos) << text;
  EXPECT_NE(text.find("# secret_key: secret, from LOCI_SECRET_KEY"), std::string::npos) << text;
}

TEST(Documentation, OptionsPageIsWhatTheTableGives) {
  const char* source = std::getenv("LOCI_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream in(std::string(source) + "/docs/options.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), options_markdown()) << "make it anew: loci options --markdown > docs/options.md";
}

}  // namespace
}  // namespace loci
