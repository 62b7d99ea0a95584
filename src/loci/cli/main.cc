// SPDX-License-Identifier: Apache-2.0
// The one binary: `loci COMMAND ...`.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/version.h"
#include "loci/cli/commands.h"
#include "loci/cli/foreign_names.h"
#include "loci/cli/help.h"
#include "loci/cli/options/option_table.h"

namespace {

// "--port: value 70000 ...", without CLI11's line ends and the repeated list of options, and in our words.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  constexpr std::string_view kOften = "At Most 1 required but received ";
  const std::size_t often = text.find(kOften);
  if (often == std::string::npos) return text;
  return text.substr(0, often) + "expected once, found " + text.substr(often + kOften.size()) + " times";
}

// The command that was chosen last: of `loci keys add`, add.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

std::string meant(const std::string& name, const std::vector<std::string>& names) {
  if (const std::string_view here = loci::said_here(name); !here.empty())
    return fmt::format("; here it is: {}", here);
  const std::string near = loci::nearest_name(name, names);
  return near.empty() ? "" : fmt::format("; is {} meant?", near);
}

// What is wrong with the arguments, and the nearest name where one is unknown.
std::string fault(const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = command.remaining();
  if (unknown.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
      command.get_parent() == nullptr)
    return "expected a command";
  if (unknown.empty()) return one_line(error.what());
  const std::string& word = unknown.front();
  std::vector<std::string> names;
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return fmt::format("{}: there is no option of that name{}", flag, meant(flag, names));
  }
  const auto commands = command.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty()) return one_line(error.what());
  for (const CLI::App* one : commands) names.push_back(one->get_name());
  return fmt::format("there is no command {}{}", word, meant(word, names));
}

int run(int argc, char** argv) {
  CLI::App app{"Loci: a language-model server that remembers.", "loci"};
  app.set_version_flag("--version", loci::kVersion);
  app.require_subcommand(1);
  int exit_code = 0;
  loci::add_serve_command(app, exit_code);
  loci::add_chat_command(app, exit_code);
  loci::add_options_command(app, exit_code);
  loci::add_pull_commands(app, exit_code);
  loci::add_inspect_command(app, exit_code);
  loci::add_forget_command(app, exit_code);
  loci::add_keys_command(app, exit_code);
  loci::add_warm_command(app, exit_code);
  loci::add_cluster_command(app, exit_code);
  loci::add_route_command(app, exit_code);
  loci::add_profile_command(app, exit_code);
  loci::add_bench_command(app, exit_code);
  loci::add_bench_compute_command(app, exit_code);
  loci::add_sim_command(app, exit_code);
  loci::add_replay_command(app, exit_code);
  // After the commands, which would have inherited it.
  app.formatter_fn(
      [](const CLI::App* one, const std::string&, CLI::AppFormatMode) { return loci::loci_help(*one); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const CLI::App& command = innermost(app);
    const std::string name = full_name(command);
    fmt::print(stderr, "{}: {} (see {} --help)\n", name, fault(command, error), name);
    return 2;
  }
  return exit_code;
}

// The exit code, once all that was printed is where it should be: of a command that could not print its
// result it is 1, not 0.
int after_printing(int exit_code) {
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written || exit_code != 0) return exit_code;
  std::fprintf(stderr, "loci: standard output could not be written: %s\n",
               errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return 1;
}

// Where whoever starts the program has closed one of them, the next file that is opened would take its place,
// and what is printed or logged would be written to it.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) != stream) std::_Exit(1);  // the lowest number that is free is this one
  }
}

// What reads a mapped file beyond its end, or from a disk that fails, is ended by this signal: with a word.
void say_lost_file(int) {
  constexpr std::string_view kWhy =
      "loci: a file in use, the model's as a rule, has become shorter or cannot be read: put another one in "
      "its place by renaming it, and start again\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWhy.data(), kWhy.size());
}

void watch_lost_files() {
  struct sigaction action{};
  action.sa_handler = say_lost_file;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the access is tried again, and ends the process
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // A write beyond the limit of a file's size (ulimit -f) is then an error of that file alone, not the end of
  // the process.
  std::signal(SIGXFSZ, SIG_IGN);
  watch_lost_files();
  try {
    return after_printing(run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loci: %s\n", error.what());
    return 1;
  }
}
