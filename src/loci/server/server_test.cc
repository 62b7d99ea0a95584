// SPDX-License-Identifier: Apache-2.0
// A whole server in this process: a tiny random model on the CPU, asked over HTTP, drained.
#include "loci/server/server.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/model/random_model_testing.h"
#include "loci/serve/http/http_call.h"
#include "loci/server/unanswered_moves.h"

namespace loci {
namespace {

constexpr Nanos at(int second) { return (100 + second) * kNanosPerSecond; }

TEST(UnansweredMoves, AreThoseOfAStopOfWhichNoneEnds) {
  UnansweredMoves unanswered;
  MoverStats stats{.queued = 900};
  // A sound disk that has much to save.
  for (int second = 0; second < 10; ++second, --stats.queued, ++stats.disk_save.moves_total)
    EXPECT_EQ(unanswered.look(false, stats, at(second)), 0u) << second;
  EXPECT_EQ(unanswered.look(false, stats, at(10)), 0u);
  EXPECT_EQ(unanswered.look(false, stats, at(12)), 890u);
  // Of requests that run on, and of a peer that takes nothing, nothing is said.
  EXPECT_EQ(unanswered.look(true, stats, at(13)), 0u);
  stats.serves_queued = stats.queued;
  for (int second = 13; second < 20; ++second)
    EXPECT_EQ(unanswered.look(false, stats, at(second)), 0u) << second;
  stats.serves_queued -= 2;
  EXPECT_EQ(unanswered.look(false, stats, at(20)), 0u);
  ++stats.peer_serve.moves_total;
  EXPECT_EQ(unanswered.look(false, stats, at(21)), 2u);
}

class ServerLife : public testing::Test {
 protected:
  void SetUp() override {
    const Result<GgufWriter> model = make_random_model({.layers = 2, .context_length = 256});
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    ASSERT_TRUE(model->write_file(folder_ + "/tiny.gguf").ok());
  }

  // All of its files are in this test's folder.
  ServerConfig config() const {
    ServerConfig config;
    config.http.port = 0;
    config.threads = 1;
    config.device_memory = 8 << 20;
    config.disk = {{.path = folder_ + "/state", .bytes = 4 << 20}};
    config.store = folder_ + "/conversations.db";
    config.folders = {.state = folder_ + "/state", .profiles = folder_ + "/profiles"};
    config.profile = "none";
    config.drain_timeout = 60 * kNanosPerSecond;
    return config;
  }
  static std::shared_ptr<spdlog::logger> log() {
    return std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  }
  FindModel find_model() const {
    return [this](const auto&) { return Result<std::string>(folder_ + "/tiny.gguf"); };
  }
  static HttpAnswer ask(const Server& server, const std::string& path, const std::string& body = "") {
    const ServerAddress address{
        .host = "127.0.0.1", .port = std::to_string(server.port()), .key = {}, .tls = nullptr};
    return call_and_wait(
        address, {.method = body.empty() ? boost::beast::http::verb::get : boost::beast::http::verb::post,
                  .path = path,
                  .body = body,
                  .timeout = 60 * kNanosPerSecond});
  }
  static bool keep_waiting(std::chrono::milliseconds time) {
    std::this_thread::sleep_for(time);
    return false;
  }

  const TestFolder test_folder_;
  const std::string folder_ = test_folder_.path();
};

constexpr const char* kQuestion =
    R"({"prompt": "What one server computes", "max_tokens": 12, "temperature": 0, "seed": 1})";

std::string text_of(const HttpAnswer& answer) {
  const auto json = nlohmann::json::parse(answer.body, nullptr, false);
  return json.is_object() && json.contains("choices") ? json["choices"][0]["text"].dump() : answer.body;
}

TEST_F(ServerLife, OpensLoadsAnswersAndDrains) {
  Result<std::unique_ptr<Server>> opened = Server::open(config(), log());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  Server& server = **opened;
  EXPECT_EQ(ask(server, "/v1/completions", kQuestion).code, 503) << "the model is not loaded yet";
  ASSERT_TRUE(server.load(find_model()).ok());

  const HttpAnswer answer = ask(server, "/v1/completions", kQuestion);
  ASSERT_EQ(answer.code, 200) << answer.status.to_string() << answer.body;
  EXPECT_EQ(text_of(ask(server, "/v1/completions", kQuestion)), text_of(answer));

  const ServerReport& report = server.report();
  EXPECT_EQ(report.url, "http://127.0.0.1:" + std::to_string(server.port()));
  const auto row = [&](const char* name) {
    return *std::find_if(report.rows.begin(), report.rows.end(),
                         [&](const ReportRow& r) { return r.name == name; });
  };
  EXPECT_EQ(row("context").value, "256 tokens");
  EXPECT_EQ(row("context").options, std::vector<std::string>{"context"});
  EXPECT_NE(row("disk").value.find(folder_ + "/state"), std::string::npos) << row("disk").value;

  EXPECT_EQ(server.drain(keep_waiting), ServerEnd::kDrained);
  EXPECT_FALSE(ask(server, "/v1/models").status.ok()) << "nobody listens any more";
}

TEST_F(ServerLife, AnotherServerOpensTheSameFoldersAndSaysTheSame) {
  std::string first;
  {
    const std::unique_ptr<Server> server = std::move(Server::open(config(), log())).value();
    ASSERT_TRUE(server->load(find_model()).ok());
    first = text_of(ask(*server, "/v1/completions", kQuestion));
    EXPECT_EQ(server->drain(keep_waiting), ServerEnd::kDrained);
  }
  const std::unique_ptr<Server> server = std::move(Server::open(config(), log())).value();
  ASSERT_TRUE(server->load(find_model()).ok());
  EXPECT_EQ(text_of(ask(*server, "/v1/completions", kQuestion)), first);
}

TEST_F(ServerLife, ErrorsNameTheOptionAtFault) {
  ServerConfig wrong = config();
  wrong.http.host = "no.such.address.invalid";
  EXPECT_EQ(Server::open(wrong, log()).status().field(), "host");
  const auto load_error = [&](const ServerConfig& of) {
    return std::move(Server::open(of, log())).value()->load(find_model()).field();
  };
  wrong = config();
  wrong.context_tokens = 257;
  EXPECT_EQ(load_error(wrong), "context");
  wrong = config();
  wrong.device_memory = 1;
  EXPECT_EQ(load_error(wrong), "device_memory");
  wrong = config();
  wrong.host_memory = 1;
  EXPECT_EQ(load_error(wrong), "host_memory");
  wrong = config();
  wrong.shared = "redis://127.0.0.1:1";
  EXPECT_EQ(load_error(wrong), "cluster_secret") << "a shared store needs one";
  wrong = config();
  std::filesystem::create_directories(folder_ + "/a");
  std::ofstream(folder_ + "/a/file") << "x";
  wrong.disk = {{.path = folder_ + "/a/file/below", .bytes = 4 << 20}};
  EXPECT_EQ(load_error(wrong), "disk");
  wrong = config();
  wrong.store = folder_ + "/a/file/below/conversations.db";
  EXPECT_EQ(Server::open(wrong, log()).status().field(), "store");
}

TEST_F(ServerLife, AFileThatIsNotThereIsNamedWithItsOption) {
  const std::string absent = folder_ + "/absent/file";
  const std::vector<std::pair<std::string, std::function<void(ServerConfig&)>>> options = {
      {"tls_cert", [&](ServerConfig& of) { of.http.tls = {.certificate = absent, .key = absent}; }},
      {"api_keys", [&](ServerConfig& of) { of.keys.file = absent; }},
      {"public", [&](ServerConfig& of) { of.public_prefix = absent; }},
      {"profile", [&](ServerConfig& of) { of.profile = absent; }},
      {"event_log", [&](ServerConfig& of) { of.event_log = absent; }},
      {"cluster_secret", [&](ServerConfig& of) { of.cluster_secret = absent; }}};
  for (const auto& [option, set] : options) {
    ServerConfig wrong = config();
    set(wrong);
    auto server = Server::open(wrong, log());
    const Status status = server.ok() ? (*server)->load(find_model()) : server.status();
    EXPECT_EQ(status.field(), option) << status.to_string();
    EXPECT_NE(status.message().find(absent), std::string::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace loci
