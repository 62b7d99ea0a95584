// SPDX-License-Identifier: Apache-2.0
// `loci chat [URL]`: a conversation with a server, in a terminal or from a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/cli/chat_client.h"
#include "loci/cli/chat_history.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/line_reader.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/paths.h"
#include "loci/cli/status_text.h"

namespace loci {
namespace {

struct ChatFlags {
  std::string url = "http://127.0.0.1:8080";
  std::string system;
  std::string api_key;
  std::string tls_ca;
  std::optional<float> temperature, top_p;  // absent: the server's
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint64_t> seed;
  unsigned wait_seconds = 120;
};

constexpr const char* kHelp =
    "  /regenerate    draw the last reply again\n"
    "  /fork [N]      go on from N turns ago (1); what was said since is kept as a fork of its own\n"
    "  /forks         list the forks; /forks N goes to the Nth\n"
    "  /state         where the last prompt's state came from: device, host memory, disk, shared store, or\n"
    "                 computed\n"
    "  /reset         forget this conversation\n"
    "  /system TEXT   begin a new one with TEXT as the system's message\n"
    "  /help          this list\n"
    "  /quit          leave (so does Ctrl-D)\n"
    "  Ctrl-C stops a reply. A line that ends in \\ goes on in the next one.\n";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags, ServerAddress address)
      : flags_(flags),
        client_(std::move(address)),
        history_(flags.system),
        shows_(isatty(STDOUT_FILENO) == 1),
        terminal_(shows_ && isatty(STDIN_FILENO) == 1) {}

  int run();

 private:
  bool wait_for_server();
  std::optional<std::string> read_message(LineReader& reader);
  // False: leave.
  bool handle_command(const std::string& line);
  void reply();
  void regenerate();
  void fork(const std::string& turns);
  void show_forks(const std::string& number);
  void show_state() const;
  void print_status(const ChatStream& stream, const ChatClient::Outcome& outcome) const;
  std::string request_body() const;
  // Of the chat itself: on a terminal beside the replies, else to standard error.
  void say(const std::string& text) const;
  // Says why a command does nothing.
  void refuse(const std::string& why);
  std::string dim(const std::string& text) const { return terminal_ ? "\x1b[2m" + text + "\x1b[0m" : text; }

  const ChatFlags& flags_;
  ChatClient client_;
  ChatHistory history_;
  bool shows_;     // standard output is a terminal
  bool terminal_;  // so is standard input
  bool failed_ = false;
  std::vector<std::pair<std::string, std::uint64_t>> sources_;  // of the last prompt
};

// The number that `text` is; `otherwise` where it is empty, absent where it is something else.
std::optional<std::size_t> read_count(const std::string& text, std::size_t otherwise) {
  if (text.empty()) return otherwise;
  if (text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return static_cast<std::size_t>(std::stoul(text));
}

// While a server loads its model it answers 503; before it listens nobody answers.
bool Chat::wait_for_server() {
  constexpr std::array<const char*, 10> kFrames = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
  constexpr auto kAbsentMax = std::chrono::seconds(3);
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - begin; };
  bool spun = false;
  ChatClient::Health health;
  for (std::size_t i = 0;; ++i) {
    // The spinner turns faster than the server is asked.
    if (i % 2 == 0) health = client_.health();
    if (health.state != ServerHealth::kLoading && health.state != ServerHealth::kBusy &&
        health.state != ServerHealth::kAbsent)
      break;
    if (health.state == ServerHealth::kAbsent && waited() > kAbsentMax) break;
    if (waited() > std::chrono::seconds(flags_.wait_seconds)) break;
    if (terminal_) {
      const char* what = health.state == ServerHealth::kLoading ? "the server is loading its model"
                                                                : "waiting for the server";
      fmt::print("\r\x1b[2m{} {}\x1b[0m\x1b[K", kFrames[i % kFrames.size()], what);
      std::fflush(stdout);
      spun = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }
  if (spun) fmt::print("\r\x1b[K");
  if (health.state == ServerHealth::kReady) return true;
  std::string why = "does not answer: start one with `loci serve default`";
  if (health.state == ServerHealth::kDraining) why = "is stopping";
  if (health.state == ServerHealth::kLoading) why = "is still loading its model; try again later";
  const std::string reason = printable(health.reason, LineEnds::kKeep);
  if (health.state == ServerHealth::kBusy || health.state == ServerHealth::kFailed)
    why = "cannot answer: " + reason;
  if (health.state == ServerHealth::kUnsuited) why = "does not speak the API that chat needs: " + reason;
  fmt::print(stderr, "loci chat: the server at {} {}\n", flags_.url, why);
  return false;
}

std::optional<std::string> Chat::read_message(LineReader& reader) {
  std::optional<std::string> line = reader.read("> ");
  while (line && line->ends_with('\\')) {
    line->back() = '\n';
    const std::optional<std::string> more = reader.read(". ");
    if (!more) break;
    *line += *more;
  }
  return line;
}

bool Chat::handle_command(const std::string& line) {
  const std::string name = line.substr(0, line.find(' '));
  const std::string rest = name.size() < line.size() ? line.substr(name.size() + 1) : "";
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/help") {
    fmt::print(terminal_ ? stdout : stderr, "{}", kHelp);
  } else if (name == "/regenerate") {
    regenerate();
  } else if (name == "/fork") {
    fork(rest);
  } else if (name == "/forks") {
    show_forks(rest);
  } else if (name == "/state") {
    show_state();
  } else if (name == "/reset") {
    history_.restart();
    say("the conversation is forgotten");
  } else if (name == "/system") {
    history_.restart(rest);
    say(rest.empty() ? "a new conversation without a system's message"
                     : "a new conversation with that system's message");
  } else {
    refuse(fmt::format("there is no {}; /help lists what there is", name));
  }
  std::fflush(stdout);
  return true;
}

void Chat::say(const std::string& text) const {
  // A command may be pasted text, whose control characters must not act on the terminal.
  fmt::print(terminal_ ? stdout : stderr, "{}\n", dim(printable(text, LineEnds::kKeep)));
}

void Chat::refuse(const std::string& why) {
  say(why);
  failed_ = true;
}

std::string Chat::request_body() const {
  nlohmann::json body = {{"messages", history_.messages()},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}},
                         {"loci", {{"explain", true}}}};
  // As shortest they read the same: 0.7, not 0.69999999.
  const auto number = [](float value) { return nlohmann::json::parse(fmt::format("{}", value)); };
  if (flags_.temperature) body["temperature"] = number(*flags_.temperature);
  if (flags_.top_p) body["top_p"] = number(*flags_.top_p);
  if (flags_.max_tokens) body["max_tokens"] = *flags_.max_tokens;
  if (flags_.seed) body["seed"] = *flags_.seed;
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Chat::regenerate() {
  if (!history_.ask_again()) return refuse("there is no reply to draw again");
  reply();
}

// Goes back by so many turns, each a message with its reply. The server still has the state of those before.
void Chat::fork(const std::string& turns) {
  const std::optional<std::size_t> back = read_count(turns, 1);
  const std::size_t there = history_.turns();
  if (!back || !history_.fork(*back)) {
    return refuse(there == 0 ? "there is no turn to go back to"
                             : fmt::format("expected 1 to {} turns to go back; got '{}'", there, turns));
  }
  say(fmt::format("going on after turn {}; what was left is fork {} (/forks {})", there - *back,
                  history_.forks(), history_.forks()));
}

void Chat::show_forks(const std::string& number) {
  if (!number.empty()) {
    const std::optional<std::size_t> wanted = read_count(number, 0);
    if (!wanted || !history_.go_to(*wanted))
      return refuse(fmt::format("there are {} forks", history_.forks()));
    return say(fmt::format("fork {} goes on; this conversation has its place", *wanted));
  }
  if (history_.forks() == 0) return say("there are no forks; /fork makes one");
  for (std::size_t i = 1; i <= history_.forks(); ++i) {
    const nlohmann::json& messages = history_.fork_messages(i);
    const std::string last = messages.empty() ? "" : messages.back()["content"].get<std::string>();
    const std::string line = printable(last.substr(0, last.find('\n')), LineEnds::kReplace);
    say(fmt::format("{}: {} messages, the last: {}", i, messages.size(), line));
  }
}

void Chat::show_state() const {
  if (sources_.empty()) return say("nothing was asked yet, or the server does not say");
  std::string line;
  for (const auto& [source, tokens] : sources_)
    line += fmt::format("{}{} {}", line.empty() ? "prompt tokens by where their state came from: " : ", ",
                        source, format_count(tokens));
  say(line);
}

void Chat::reply() {
  // Only programs get the reply as it is: on a terminal its control characters would act.
  PrintablePieces shown(LineEnds::kKeep);
  const auto show = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  ChatStream stream([&](std::string_view text) { show(shows_ ? shown.take(text) : std::string(text)); });
  const ChatClient::Outcome outcome = client_.chat(request_body(), stream);
  show(shown.finish());
  if (!stream.text().empty() && !stream.text().ends_with('\n')) fmt::print("\n");
  if (!outcome.status.ok()) {
    std::fflush(stdout);
    fmt::print(stderr, "loci chat: {}\n", printable(outcome.status.message(), LineEnds::kKeep));
    failed_ = true;
  }
  // What was said stays said, also where it was cut short, unless a whole reply is there that it was to
  // replace. A turn without any reply is taken back.
  const bool is_cut = outcome.interrupted || !outcome.status.ok();
  if (is_cut && (stream.text().empty() || (history_.asks_again() && !outcome.status.ok())))
    history_.give_up();
  else
    history_.answer(stream.text());
  if (!stream.sources().empty()) sources_ = stream.sources();
  if (outcome.status.ok()) print_status(stream, outcome);
  std::fflush(stdout);
}

void Chat::print_status(const ChatStream& stream, const ChatClient::Outcome& outcome) const {
  std::string line;
  const auto add = [&](const std::string& part) { line += (line.empty() ? "" : " · ") + part; };
  if (outcome.interrupted) add("interrupted");
  if (const std::uint64_t tokens = stream.completion_tokens(); tokens > 0) {
    add(fmt::format("{} tokens", format_count(tokens)));
    const Nanos rest = outcome.duration - outcome.first_text.value_or(0);
    if (tokens > 1 && rest > 0)
      add(fmt::format("{:.1f} tokens/s", static_cast<double>(tokens - 1) * 1e9 / static_cast<double>(rest)));
  }
  if (stream.prompt_tokens()) {
    add(fmt::format("{} of {} prompt tokens cached", format_count(stream.cached_tokens()),
                    format_count(*stream.prompt_tokens())));
  }
  if (outcome.first_text) add(fmt::format("first token after {}", format_duration(*outcome.first_text)));
  if (stream.finish_reason() == "length") add("cut off by the limit of tokens");
  if (line.empty()) return;
  // From a pipe the reply alone goes to standard output.
  if (terminal_)
    fmt::print("{}\n\n", dim(line));
  else
    fmt::print(stderr, "[{}]\n", line);
}

int Chat::run() {
  if (!wait_for_server()) return 1;
  if (terminal_) fmt::print("{}\n\n", dim(fmt::format("{} · /help lists the commands", flags_.url)));
  LineReader reader(terminal_, chat_history_path());
  while (const std::optional<std::string> message = read_message(reader)) {
    if (message->find_first_not_of(" \t\n") == std::string::npos) continue;
    if (message->starts_with('/')) {
      if (!handle_command(*message)) break;
    } else {
      history_.ask(*message);
      reply();
    }
  }
  if (terminal_) fmt::print("\n");
  return failed_ && !terminal_ ? 1 : 0;
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("chat", "talk with a model that a server serves");
  command->group(kTalkGroup);
  auto flags = std::make_shared<ChatFlags>();
  command->add_option("URL", flags->url, "where the server is")->capture_default_str();
  command->add_option("--system", flags->system, "the system's message");
  command->add_option("--api-key", flags->api_key, "the API key, where the server wants one")
      ->check(sendable_key())
      ->envname("LOCI_API_KEY")
      ->type_name("KEY");
  command->add_option("--tls-ca", flags->tls_ca, kTlsCaHelp)->type_name("FILE");
  command
      ->add_option(
          "--temperature", flags->temperature,
          "how freely tokens are drawn, 0 always takes the likeliest one (default: as the server is set)")
      ->check(number_from(0, 100));
  command
      ->add_option("--top-p", flags->top_p,
                   "draw from the likeliest tokens that together have this probability (default: as the "
                   "server is set)")
      ->check(number_from(0, 1));
  command->add_option("--max-tokens", flags->max_tokens, "the most tokens of a reply")
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--seed", flags->seed, "the seed of the drawing: the same seed gives the same replies")
      ->check(whole_number());
  command
      ->add_option("--wait", flags->wait_seconds,
                   "how many seconds to wait while the server loads its model, or can't answer otherwise")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  loci chat\n"
      "  loci chat http://127.0.0.1:9000 --system 'Answer in one sentence.'\n"
      "  LOCI_API_KEY=sk-... loci chat\n"
      "  echo 'What is the capital of France?' | loci chat --temperature 0");
  command->callback([flags, &exit_code] {
    Result<ServerAddress> address = parse_server_url(flags->url, flags->tls_ca);
    if (!address.ok()) {
      fmt::print(stderr, "loci chat: {}\n", for_people(address.status()));
      exit_code = 2;
      return;
    }
    address->key = flags->api_key;
    exit_code = Chat(*flags, std::move(*address)).run();
  });
}

}  // namespace loci
