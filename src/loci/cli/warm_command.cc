// SPDX-License-Identifier: Apache-2.0
// `loci warm FILE --public`, `--list`, `--release NAME`: public prefixes of a running server.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "loci/base/json_reader.h"
#include "loci/cli/chat_client.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/status_text.h"
#include "loci/serve/api/loci/warm_prefix.h"
#include "loci/serve/files/text_file.h"
#include "loci/serve/http/http_call.h"
#include "loci/serve/tenants/keys_file.h"

namespace loci {
namespace {

namespace http = boost::beast::http;

constexpr Nanos kWarmTimeout = 24 * 3600 * kNanosPerSecond;  // all of a prefix is computed meanwhile

struct WarmFlags {
  std::string file, url = "http://127.0.0.1:8080", tls_ca, name, release;
  bool is_public = false;
  bool list = false;
};

// The server, and the prefix's name where one is made public.
struct WarmTarget {
  ServerAddress address;
  std::string name;
};

Result<WarmTarget> target_of(const WarmFlags& flags) {
  WarmTarget out;
  LOCI_ASSIGN_OR_RETURN(out.address, parse_server_url(flags.url, flags.tls_ca));
  if (const char* key = std::getenv("LOCI_OPERATOR_KEY"); key != nullptr) out.address.key = key;
  if (flags.list) return out;
  if (!flags.release.empty()) {
    LOCI_RETURN_IF_ERROR(check_name(flags.release, "--release"));
    return out;
  }
  if (flags.file.empty()) return invalid_argument("expected a file, --list or --release NAME", "FILE");
  // What would be warmed for one tenant alone is what its first request does by itself.
  if (!flags.is_public)
    return invalid_argument(
        "expected this flag, by which you say that all tenants may share the prefix; found none", "--public");
  out.name = flags.name.empty() ? std::filesystem::path(flags.file).stem().string() : flags.name;
  LOCI_RETURN_IF_ERROR(check_name(out.name, "--name"));
  return out;
}

Result<nlohmann::json> request_json(const WarmFlags& flags, const WarmTarget& target, http::verb method,
                                    const std::string& path, std::string body) {
  const HttpAnswer answer = call_and_wait(
      target.address, {.method = method, .path = path, .body = std::move(body), .timeout = kWarmTimeout});
  if (!answer.status.ok())
    return Status(answer.status.code(), fmt::format("{}: {}", flags.url, answer.status.message()));
  if (answer.code != 200) return invalid_argument(error_message(answer.code, answer.body));
  nlohmann::json json = read_json<nlohmann::json>(answer.body, {}).value;
  if (!json.is_object()) return internal_error("the server's answer is not JSON");
  return json;
}

std::string describe(const nlohmann::json& prefix) {
  return fmt::format("{}: {} tokens, {} blocks", prefix.value("name", "?"), prefix.value("tokens", 0),
                     prefix.value("blocks", 0));
}

Status run_warm(const WarmFlags& flags, const WarmTarget& target) {
  if (flags.list) {
    LOCI_ASSIGN_OR_RETURN(const nlohmann::json answer,
                          request_json(flags, target, http::verb::get, "/v1/loci/warm", ""));
    for (const nlohmann::json& prefix : answer.value("data", nlohmann::json::array())) {
      fmt::print("{}\n", describe(prefix));
    }
    return {};
  }
  if (!flags.release.empty()) {
    LOCI_ASSIGN_OR_RETURN(const nlohmann::json answer, request_json(flags, target, http::verb::delete_,
                                                                    "/v1/loci/warm/" + flags.release, ""));
    fmt::print("released {}\n", describe(answer));
    return {};
  }
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text_file(flags.file));
  LOCI_ASSIGN_OR_RETURN(
      const nlohmann::json answer,
      request_json(flags, target, http::verb::post, "/v1/loci/warm", warm_body(target.name, text)));
  fmt::print("public: {}\n", describe(answer));
  return {};
}

}  // namespace

void add_warm_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("warm", "compute a prefix ahead that all tenants of a server share");
  command->group(kManyGroup);
  auto flags = std::make_shared<WarmFlags>();
  command->add_option(
      "FILE", flags->file,
      "the prefix: a file of text, or of JSON (chat messages, or an object with \"messages\")");
  command->add_flag("--public", flags->is_public, "share it with all tenants, until it is released");
  command->add_option("--name", flags->name, "the prefix's name")->default_str("the file's");
  command->add_flag("--list", flags->list, "show what is public");
  command->add_option("--release", flags->release, "stop sharing this prefix")->type_name("NAME");
  command->add_option("--url", flags->url, "the server")->capture_default_str();
  command->add_option("--tls-ca", flags->tls_ca, kTlsCaHelp)->type_name("FILE");
  command->footer(
      "If the server has keys, set LOCI_OPERATOR_KEY to an operator's key.\n\nExamples:\n  loci warm "
      "system.txt --public\n  loci warm messages.json --public --name support\n  loci warm --list\n  loci "
      "warm --release support");
  command->callback([flags, &exit_code] {
    const Result<WarmTarget> target = target_of(*flags);
    refuse_unless_ok(target.status());
    const Status status = run_warm(*flags, *target);
    if (status.ok()) return;
    fmt::print(stderr, "loci warm: {}\n", for_people(status));
    exit_code = 1;
  });
}

}  // namespace loci
