// SPDX-License-Identifier: Apache-2.0
// `loci bench URL`: multi-turn conversations with any OpenAI-compatible server, and what its client sees.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/units.h"
#include "loci/cli/bench_client/bench_report.h"
#include "loci/cli/bench_client/bench_run.h"
#include "loci/cli/bench_client/bench_svg.h"
#include "loci/cli/bench_client/dialogue.h"
#include "loci/cli/bench_client/objective.h"
#include "loci/cli/bench_client/trace_dialogues.h"
#include "loci/cli/commands.h"
#include "loci/cli/help.h"
#include "loci/cli/option_checks.h"
#include "loci/cli/result_file.h"
#include "loci/cli/status_text.h"
#include "loci/serve/files/text_file.h"
#include "loci/sim/trace_source.h"

namespace loci {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct BenchFlags {
  std::string url, compare, dialogues, json, svg;
  std::string objective_text;
  sim::TraceSource trace;
  Objective objective;
  WorkloadOptions workload;
  RequestOptions request;
  ScheduleOptions schedule{.concurrency = 4};
  std::uint32_t warm_ups = 1;
  double timeout_seconds = 600;
  double wait_seconds = 120;
};

Result<std::string> read_input(const std::string& path) {
  const Result<std::string> text = path == "-"
                                       ? read_text(STDIN_FILENO, "standard input")
                                       : read_text_file(path, std::numeric_limits<std::size_t>::max());
  if (text.ok()) return text;
  return invalid_argument(text.status().message(), "--dialogues");
}

// Of a trace's field: from_s is --trace-from.
std::string option_of(std::string_view field) {
  return fmt::format("--trace-{}", field.substr(0, field.find('_')));
}

Status check(const CLI::App& command, const BenchFlags& flags) {
  for (const auto& [field, format] : sim::kTraceFieldsOfFormats) {
    const std::string option = option_of(field);
    if (command.count(option) > 0 && flags.trace.format != format)
      return invalid_argument(
          fmt::format("expected --trace-format {} beside it, found {}", format, flags.trace.format), option);
  }
  if (flags.compare.empty()) return {};
  if (flags.schedule.rate) return invalid_argument("cannot be combined with --compare", "--rate");
  if (flags.schedule.think_seconds > 0)
    return invalid_argument("cannot be combined with --compare", "--think-time");
  if (!flags.trace.file.empty()) return invalid_argument("cannot be combined with --compare", "--trace");
  return {};
}

// The option of this command that a scenario calls trace.FIELD.
std::string option_of_trace(std::string_view field) {
  return field == "time_scale" ? "--time-scale" : option_of(field);
}

// By this command's option where a field of a scenario is at fault. Other messages name the file's line and
// field themselves.
Status of_trace(const Status& status) {
  constexpr std::string_view kScenarios = "trace.";
  const std::string& field = status.field();
  if (!field.starts_with(kScenarios)) return {status.code(), status.message(), "--trace"};
  std::string message = status.message();
  if (const std::size_t named = message.find(field + ": "); named != std::string::npos)
    message.erase(named, field.size() + 2);
  return {status.code(), std::move(message),
          option_of_trace(std::string_view(field).substr(kScenarios.size()))};
}

// The requests of a trace, and when they are due.
Result<std::vector<Dialogue>> read_trace(BenchFlags& flags) {
  flags.trace.seed = flags.workload.seed;
  const Result<sim::Trace> read = sim::read_source(flags.trace);
  if (!read.ok()) return of_trace(read.status());
  const sim::Trace& trace = *read;
  for (const std::string& note : trace.notes) fmt::print(stderr, "trace: {}\n", note);
  LOCI_ASSIGN_OR_RETURN(TraceDialogues load, dialogues_of(trace));
  if (load.cancels > 0)
    fmt::print(stderr, "{} requests of the trace were left by their clients; here they go on to their ends\n",
               load.cancels);
  flags.schedule.times = std::move(load.times);
  return std::move(load.dialogues);
}

Result<std::vector<Dialogue>> read_requests(BenchFlags& flags) {
  if (!flags.trace.file.empty()) return read_trace(flags);
  std::vector<Dialogue> dialogues;
  if (!flags.dialogues.empty()) {
    LOCI_ASSIGN_OR_RETURN(const std::string text, read_input(flags.dialogues));
    LOCI_ASSIGN_OR_RETURN(dialogues, read_dialogues(text, flags.dialogues));
  }
  return make_workload(std::move(dialogues), flags.workload);
}

const char* api_name(BenchApi api) {
  return api == BenchApi::kChat ? "chat" : api == BenchApi::kResponses ? "responses" : "completions";
}

OrderedJson workload_json(const BenchFlags& flags, const std::vector<Dialogue>& dialogues) {
  std::size_t turns = 0;
  for (const Dialogue& dialogue : dialogues) turns += dialogue.turns.size();
  const ScheduleOptions& schedule = flags.schedule;
  OrderedJson out = {{"dialogues", flags.dialogues.empty() ? "generated" : flags.dialogues},
                     {"conversations", dialogues.size()},
                     {"turns", turns},
                     {"private_prefix_tokens", flags.workload.private_prefix_tokens},
                     {"seed", flags.workload.seed},
                     {"ignore_eos", flags.request.ignore_eos},
                     {"temperature", flags.request.temperature},
                     {"api", api_name(flags.request.api)},
                     {"think_seconds", schedule.think_seconds}};
  if (!flags.trace.file.empty()) {
    out["trace"] = flags.trace.file;
    out["trace_format"] = flags.trace.format;
    out["time_scale"] = flags.trace.time_scale;
    return out;
  }
  out["max_tokens"] = flags.request.max_tokens;
  if (flags.dialogues.empty()) out["turn_tokens"] = flags.workload.prompt_tokens;
  if (schedule.rate) {
    out["rate"] = *schedule.rate;
  } else {
    out["concurrency"] = schedule.concurrency;
    out["order"] = schedule.order == TurnOrder::kTurns ? "turns" : "sessions";
  }
  return out;
}

std::string describe(const BenchFlags& flags, const std::vector<Dialogue>& dialogues) {
  std::size_t turns = 0;
  for (const Dialogue& dialogue : dialogues) turns += dialogue.turns.size();
  std::string load = fmt::format("{} at a time, in the order of {}", flags.schedule.concurrency,
                                 flags.schedule.order == TurnOrder::kTurns ? "turns" : "sessions");
  if (!flags.trace.file.empty()) {
    return fmt::format(
        "{} conversations, {} turns of {}, due at {:g} times its times; replies {} as long as its own",
        format_count(dialogues.size()), format_count(turns), flags.trace.file, flags.trace.time_scale,
        flags.request.ignore_eos ? "exactly" : "at most");
  }
  if (flags.schedule.rate) load = fmt::format("{} conversations/s", *flags.schedule.rate);
  const std::string document = flags.workload.private_prefix_tokens > 0
                                   ? fmt::format(", each behind a document of about {} tokens",
                                                 format_count(flags.workload.private_prefix_tokens))
                                   : std::string();
  return fmt::format("{} conversations, {} turns{}; {}; replies of {} {} tokens; seed {}",
                     format_count(dialogues.size()), format_count(turns), document, load,
                     flags.request.ignore_eos ? "exactly" : "at most", format_count(flags.request.max_tokens),
                     flags.workload.seed);
}

void print_progress(const BenchProgress& now) {
  const double seconds = static_cast<double>(now.elapsed) / kNanosPerSecond;
  const double rate = seconds > 0 ? static_cast<double>(now.output_tokens) / seconds : 0;
  std::string failed = now.failed > 0 ? fmt::format(" · {} failed", now.failed) : std::string();
  fmt::print(stderr, "\r{}/{} requests · {} in flight{} · {:.0f} s · {:.0f} output tokens/s\x1b[K", now.ended,
             now.in_all, now.in_flight, failed, seconds, rate);
  std::fflush(stderr);
}

std::string json_text(const OrderedJson& json) {
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Whether every turn has its reply.
bool is_whole(const BenchResult& result) {
  for (const ServerRun& run : result.servers) {
    if (run.skipped > 0 || throughput_of(run).requests != run.turns.size()) return false;
  }
  return !result.interrupted;
}

Result<bool> run(BenchFlags flags) {
  if (!flags.objective_text.empty()) {
    LOCI_ASSIGN_OR_RETURN(flags.objective, parse_objective(flags.objective_text));
  }
  LOCI_ASSIGN_OR_RETURN(const std::vector<Dialogue> dialogues, read_requests(flags));
  const bool prints_json = flags.json == "-";
  LOCI_ASSIGN_OR_RETURN(ResultFile json,
                        ResultFile::open(prints_json ? std::string() : flags.json, "--json"));
  LOCI_ASSIGN_OR_RETURN(ResultFile svg, ResultFile::open(flags.svg, "--svg"));
  flags.schedule.seed = flags.workload.seed;
  flags.request.timeout = static_cast<Nanos>(flags.timeout_seconds * kNanosPerSecond);
  BenchOptions options{.urls = {flags.url},
                       .request = flags.request,
                       .schedule = flags.schedule,
                       .warm_ups = flags.warm_ups,
                       .patience = static_cast<Nanos>(flags.wait_seconds * kNanosPerSecond)};
  if (!flags.compare.empty()) options.urls.push_back(flags.compare);
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const SystemClock clock;
  LOCI_ASSIGN_OR_RETURN(const BenchResult result,
                        run_bench(options, dialogues, clock, terminal ? print_progress : ProgressListener()));
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  // The table goes where the JSON does not.
  if (!prints_json) {
    fmt::print("{}\n{}{}", describe(flags, dialogues),
               result.interrupted ? "interrupted: what had ended\n" : "",
               format_report(result, options, flags.objective));
  }
  if (!flags.json.empty()) {
    const std::string text =
        json_text(report_json(result, options, flags.objective, workload_json(flags, dialogues)));
    if (prints_json) fmt::print("{}", text);
    LOCI_RETURN_IF_ERROR(json.write(text));
  }
  if (!flags.svg.empty())
    LOCI_RETURN_IF_ERROR(svg.write(bench_svg(result, options, describe(flags, dialogues))));
  return is_whole(result);
}

void add_workload_options(CLI::App& command, BenchFlags& flags) {
  WorkloadOptions& workload = flags.workload;
  command
      .add_option("--dialogues", flags.dialogues,
                  "take the users' turns from a file of JSON lines, described below; - is standard input")
      ->default_str("generated")
      ->type_name("FILE");
  command.add_option("--conversations", workload.conversations, "the number of conversations")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--turns", workload.turns, "the number of turns in each conversation")
      ->check(CLI::Range(1, 10'000))
      ->default_str("as the file has, else 4");
  command
      .add_option("--turn-tokens", workload.prompt_tokens,
                  "the length of a user's turn in tokens, roughly, if turns are generated")
      ->excludes(command.get_option("--dialogues"))
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command
      .add_option("--private-prefix-tokens", workload.private_prefix_tokens,
                  "begin each conversation with a document of its own of about so many tokens")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  command.add_option("--seed", workload.seed, "the seed of texts, choices and times")
      ->check(whole_number())
      ->capture_default_str();
}

CLI::Option* add_trace_options(CLI::App& command, BenchFlags& flags) {
  auto* trace =
      command
          .add_option(
              "--trace", flags.trace.file,
              "open loop: send the requests of a trace (docs/traces.md) at its times, with generated text")
          ->type_name("FILE");
  command.add_option("--trace-format", flags.trace.format, "the format of the trace's file")
      ->check(
          CLI::IsMember(std::vector<std::string>(sim::trace_formats().begin(), sim::trace_formats().end())))
      ->capture_default_str()
      ->needs(trace);
  command.add_option("--trace-requests", flags.trace.requests, "send only so many requests, the first ones")
      ->check(CLI::Range(std::uint64_t{1}, sim::kTraceRequestsMax))
      ->default_str("all")
      ->needs(trace);
  command
      .add_option("--time-scale", flags.trace.time_scale,
                  "multiply the trace's times by this: 0.5 is twice as fast")
      ->check(number_from(1e-9, 1e9))
      ->capture_default_str()
      ->needs(trace);
  command.add_option("--trace-rate", flags.trace.rate, "of weka: so many sessions begin in a second")
      ->check(number_from(1e-9, 1e9))
      ->capture_default_str()
      ->needs(trace);
  command.add_option("--trace-from", flags.trace.from_s, "of servegen: begin at this second of the data")
      ->check(number_from(0.0, 1e9))
      ->capture_default_str()
      ->needs(trace);
  command.add_option("--trace-model", flags.trace.model, "of servegen: only the clients of this model")
      ->type_name("NAME")
      ->default_str("all")
      ->needs(trace);
  return trace;
}

void add_load_options(CLI::App& command, BenchFlags& flags) {
  ScheduleOptions& schedule = flags.schedule;
  auto* trace = add_trace_options(command, flags);
  for (const char* name :
       {"--dialogues", "--conversations", "--turns", "--turn-tokens", "--private-prefix-tokens"})
    command.get_option(name)->excludes(trace);
  auto* concurrency = command
                          .add_option("--concurrency", schedule.concurrency,
                                      "closed loop: the number of requests in flight at a time")
                          ->check(CLI::Range(1, 100'000))
                          ->capture_default_str()
                          ->excludes(trace);
  auto* rate =
      command
          .add_option(
              "--rate", schedule.rate,
              "open loop: so many conversations begin in a second, at random times (a Poisson process)")
          ->check(number_from(1e-9, 1e9))
          ->excludes(concurrency)
          ->excludes(trace);
  const std::map<std::string, TurnOrder> orders = {{"turns", TurnOrder::kTurns},
                                                   {"sessions", TurnOrder::kSessions}};
  command
      .add_option("--order", schedule.order,
                  "turns: turn 1 of all conversations, then turn 2 of all, and so on; sessions: each "
                  "conversation to its end, then the next")
      ->excludes(trace)
      ->excludes(rate)
      ->transform(choice_from(orders))
      ->type_name("turns|sessions")
      ->default_str("turns");
  command
      .add_option("--think-time", schedule.think_seconds,
                  "the mean number of seconds between a reply and the next turn")
      ->check(number_from(0, 1e9))
      ->capture_default_str()
      ->excludes(trace);
  command.add_option("--warmup", flags.warm_ups, "the number of requests before those that are measured")
      ->capture_default_str();
}

void add_request_options(CLI::App& command, BenchFlags& flags) {
  RequestOptions& request = flags.request;
  const std::map<std::string, BenchApi> apis = {{"chat", BenchApi::kChat},
                                                {"completions", BenchApi::kCompletions},
                                                {"responses", BenchApi::kResponses}};
  command
      .add_option("--api", request.api,
                  "chat: each request has all messages; completions: all turns as plain text; responses: "
                  "each turn alone, with previous_response_id")
      ->transform(choice_from(apis))
      ->type_name("chat|completions|responses")
      ->default_str("chat");
  command.add_option("--model", request.model, "the name of the model, as the server knows it")
      ->default_str("its first");
  command.add_option("--api-key", request.api_key, "the API key, sent as a bearer token")
      ->check(sendable_key())
      ->envname("LOCI_API_KEY");
  command.add_option("--tls-ca", request.tls_ca, kTlsCaHelp)->type_name("FILE");
  command.add_option("--max-tokens", request.max_tokens, "the most tokens of a reply")
      ->excludes(command.get_option("--trace"))  // whose replies have their lengths
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command.add_flag("--ignore-eos", request.ignore_eos,
                   "make every reply exactly --max-tokens long (servers that can: Loci, llama.cpp, vLLM)");
  command
      .add_option("--temperature", request.temperature,
                  "how freely tokens are drawn; 0 always takes the likeliest one")
      ->check(number_from(0, 100))
      ->capture_default_str();
  command.add_option("--timeout", flags.timeout_seconds, "how many seconds a request may take")
      ->check(number_from(0.001, 86'400.0))
      ->capture_default_str();
  command
      .add_option("--wait", flags.wait_seconds, "how many seconds to wait while the server loads its model")
      ->check(number_from(0.0, 86'400.0))
      ->capture_default_str();
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "measure a server by holding conversations with it");
  command->group(kMeasureGroup);
  auto flags = std::make_shared<BenchFlags>();
  command->add_option("URL", flags->url, "the server; any that speaks OpenAI's API")->required();
  command
      ->add_option("--compare", flags->compare,
                   "a second server, which gets the same requests in pairs with the first")
      ->type_name("URL2");
  add_workload_options(*command, *flags);
  add_load_options(*command, *flags);
  add_request_options(*command, *flags);
  command
      ->add_option(
          "--objective", flags->objective_text,
          "also count the turns that keep these limits (goodput), such as ttft=500ms,tbt=50ms,latency=10s")
      ->type_name("LIMITS");
  command
      ->add_option("--json", flags->json, "write all figures and every request as JSON; - is standard output")
      ->type_name("FILE");
  command->add_option("--svg", flags->svg, "draw the times into FILE: distributions, and over turns or time")
      ->type_name("FILE");
  command->footer(
      "A line of --dialogues is {\"messages\": [{\"role\", \"content\"}]}, {\"conversations\": [{\"from\", "
      "\"value\"}]} or\n{\"turns\": [\"...\"]}; what the user says in it is said, the replies are the "
      "server's own.\n\nExamples:\n"
      "  loci bench http://127.0.0.1:8080\n"
      "  loci bench http://127.0.0.1:8080 --dialogues mt-bench-101.jsonl --turns 6 "
      "--private-prefix-tokens 1000 --ignore-eos\n"
      "  loci bench http://127.0.0.1:8080 --rate 2 --think-time 5 --json result.json\n"
      "  loci bench http://127.0.0.1:8080 --trace requests.jsonl --time-scale 0.5 --objective "
      "ttft=2s,tbt=100ms\n"
      "  loci bench http://127.0.0.1:8080 --compare http://127.0.0.1:9000");
  command->callback([command, flags, &exit_code] {
    const Status fits = check(*command, *flags);
    const Result<bool> whole = fits.ok() ? run(*flags) : fits;
    if (whole.ok()) {
      exit_code = *whole ? 0 : 1;
      return;
    }
    const Status& status = whole.status();
    fmt::print(stderr, "loci bench: {}\n", for_people(status));
    const bool wrong_input = status.code() == StatusCode::kInvalidArgument ||
                             status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDataLoss;
    exit_code = wrong_input ? 2 : 1;
  });
}

}  // namespace loci
