// SPDX-License-Identifier: Apache-2.0
// Lines of the log in both forms, with values that are made to break them.
#include "loci/serve/telemetry/log_line.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace loci {
namespace {

class LogTest : public testing::Test {
 protected:
  // What a line looks like.
  std::string written(LogFormat format, const std::function<void(spdlog::logger&)>& write) {
    std::ostringstream out;
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
    logger.set_formatter(log_formatter(format));
    logger.set_level(spdlog::level::debug);
    write(logger);
    return out.str();
  }
  static LogLine example() {
    return std::move(LogLine("access")
                         .text("request_id", "7f")
                         .text("path", "/a b\"=\n")
                         .count("status", 200)
                         .number("rate", 12.25)
                         .duration("first", 26'900'000));
  }
};

TEST_F(LogTest, TextHasOneLineWithTheFields) {
  const std::string line =
      written(LogFormat::kText, [](spdlog::logger& to) { log(to, spdlog::level::info, example()); });
  EXPECT_EQ(line.substr(24),
            "info access request_id=7f path=\"/a b\\\"=\\x0a\" status=200 rate=12.2 first=26.9ms\n");
}

TEST_F(LogTest, TextEscapesWhatATerminalWouldObey) {
  // A control character of eight bits (CSI), one in UTF-8, a mark that turns the text around.
  const auto write = [](spdlog::logger& to) {
    log(to, spdlog::level::info,
        LogLine("access").text("path",
                               "/\x9b"
                               "2J\xc2\x9b"
                               "2J\u202e"));
  };
  EXPECT_EQ(written(LogFormat::kText, write).substr(24),
            "info access path=/\\x9b2J\\xc2\\x9b2J\\xe2\\x80\\xae\n");
}

TEST_F(LogTest, JsonHasTypedFields) {
  const std::string line =
      written(LogFormat::kJson, [](spdlog::logger& to) { log(to, spdlog::level::warn, example()); });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object["time"].get<std::string>().size(), std::string("2026-03-01T12:00:00.000Z").size());
  object.erase("time");
  EXPECT_EQ(object, nlohmann::json::parse(R"({"level": "warning", "message": "access", "request_id": "7f",
      "path": "/a b\"=\n", "status": 200, "rate": 12.25, "first_ms": 26.9})"));
}

TEST_F(LogTest, AnyBytesGiveOneValidLine) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 3 == 0) bytes.insert(0, "\x1f");
    for (const bool structured : {false, true}) {
      const auto write = [&](spdlog::logger& to) {
        if (structured)
          log(to, spdlog::level::info, LogLine(bytes).text("value", bytes));
        else
          to.info(bytes);
      };
      const std::string json = written(LogFormat::kJson, write);
      EXPECT_EQ(json.find('\n'), json.size() - 1);
      const nlohmann::json object = nlohmann::json::parse(json, nullptr, false);
      ASSERT_FALSE(object.is_discarded()) << json;
      EXPECT_EQ(object.size(), structured ? 4u : 3u) << json;
      EXPECT_TRUE(object["message"].is_string());
      const std::string text = written(LogFormat::kText, write);
      EXPECT_TRUE(std::none_of(text.begin(), text.end() - 1, [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      })) << text;
    }
  }
}

TEST_F(LogTest, AMessageCannotPassForALineWithFields) {
  const std::string payload = LogLine("x").payload();
  const std::string guessed =
      "\x1f"
      "0000000000000000"
      "\x1f" +
      payload.substr(18);
  const std::string line = written(LogFormat::kJson, [&](spdlog::logger& to) { to.info(guessed); });
  EXPECT_EQ(nlohmann::json::parse(line)["message"], guessed);
}

TEST_F(LogTest, KeepsToTheLevel) {
  const std::string line =
      written(LogFormat::kText, [](spdlog::logger& to) { log(to, spdlog::level::trace, LogLine("hidden")); });
  EXPECT_EQ(line, "");
}

}  // namespace
}  // namespace loci
