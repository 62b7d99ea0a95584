#include "loci/cli/serve_flags.h"

#include <CLI/CLI.hpp>
#include <functional>

#include "loci/base/units.h"

namespace loci {
namespace {

// An option whose text goes through a parser that returns a Result.
template <class T, class Parser>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, Parser parser, std::function<void(T)> set,
                        const std::string& help, const std::string& type, const std::string& shown_default) {
  const auto take = [name, parser, set](const std::string& text) {
    const Result<T> value = parser(text, name);
    if (!value.ok()) throw CLI::ValidationError(name, value.status().message());
    set(*value);
  };
  return command.add_option_function<std::string>(name, take, help)
      ->type_name(type)
      ->default_str(shown_default);
}

void add_duration(CLI::App& command, const std::string& name, Nanos& out, const std::string& help) {
  add_parsed<std::int64_t>(
      command, name, &parse_duration, [&out](std::int64_t value) { out = value; }, help, "TIME",
      format_duration(out))
      ->group("Limits");
}

void add_network_flags(CLI::App& command, ServeFlags& flags) {
  HttpLimits& limits = flags.http.limits;
  command.add_option("--host", flags.http.host, "address to listen on; 0.0.0.0: every interface")
      ->capture_default_str()
      ->group("Network");
  command.add_option("--port", flags.http.port, "port to listen on; 0: one that is free, printed at start")
      ->capture_default_str()
      ->group("Network");
  command.add_option("--cors-origin", flags.cors_origin, "web pages that may use the API; '' for none")
      ->capture_default_str()
      ->group("Network");
  add_parsed<std::uint64_t>(
      command, "--max-body", &parse_bytes, [&limits](std::uint64_t bytes) { limits.body_bytes_max = bytes; },
      "largest body of a request", "SIZE", format_bytes(limits.body_bytes_max))
      ->group("Limits");
  add_parsed<std::uint64_t>(
      command, "--max-header", &parse_bytes,
      [&limits](std::uint64_t bytes) {
        limits.header_bytes_max =
            static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes, 1024, 16 << 20));
      },
      "largest header of a request", "SIZE", format_bytes(limits.header_bytes_max))
      ->group("Limits");
  command.add_option("--max-connections", limits.connections_max, "connections at once; beyond: 503")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group("Limits");
  add_duration(command, "--header-timeout", limits.header_timeout, "time for a request's header to arrive");
  add_duration(command, "--body-timeout", limits.body_timeout, "time for a request's body to arrive");
  add_duration(command, "--idle-timeout", limits.idle_timeout,
               "how long a connection without requests is kept");
  add_duration(command, "--write-timeout", limits.write_timeout,
               "how long a client may take nothing before it is cut off");
  add_parsed<std::int64_t>(
      command, "--request-timeout", &parse_duration,
      [&flags](std::int64_t value) {
        flags.request_timeout = value > 0 ? std::optional<Nanos>(value) : std::nullopt;
      },
      "time for a whole reply; 0: no limit", "TIME", format_duration(*flags.request_timeout))
      ->group("Limits");
  add_duration(command, "--drain-timeout", flags.drain_timeout,
               "how long running replies may go on after a stop");
}

void add_engine_flags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--threads", flags.threads, "compute threads; 0: one for each physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group("Compute");
  command
      .add_option_function<std::string>(
          "--cpu",
          [&flags](const std::string& name) {
            for (const InstructionSet set :
                 {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512,
                  InstructionSet::kAmx, InstructionSet::kNeon}) {
              if (instruction_set_name(set) == name) flags.instruction_set = set;
            }
          },
          "instruction set: plain, avx2, avx512, amx or neon; all give the same bits")
      ->check(CLI::IsMember({"plain", "avx2", "avx512", "amx", "neon"}))
      ->type_name("SET")
      ->default_str("the best there is")
      ->group("Compute");
  add_parsed<std::uint64_t>(
      command, "--device-memory", &parse_bytes,
      [&flags](std::uint64_t bytes) { flags.device_memory = bytes; },
      "memory for conversations' state, e.g. 4GiB", "SIZE", "most of what is free")
      ->group("Compute");
  command
      .add_option("--context", flags.context_tokens,
                  "most tokens of prompt and reply together; 0: the model's")
      ->capture_default_str()
      ->group("Compute");
  command.add_option("--max-batch-tokens", flags.max_batch_tokens, "tokens in one pass through the model")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group("Scheduling");
  command.add_option("--max-running", flags.max_running, "requests in the batch")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group("Scheduling");
  command.add_option("--max-queued", flags.max_queued, "requests that wait; beyond: 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group("Scheduling");
  command
      .add_option("--eviction", flags.eviction, "whose state goes when memory is full: lru, fifo or random")
      ->check(CLI::IsMember({"lru", "fifo", "random"}))
      ->type_name("POLICY")
      ->capture_default_str()
      ->group("Scheduling");
  command.add_option("--seed", flags.seed, "of random eviction")->capture_default_str()->group("Scheduling");
  command
      .add_option("--event-log", flags.event_log, "write every event and decision to FILE, for `loci replay`")
      ->type_name("FILE")
      ->group("Scheduling");
}

void add_store_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option_function<std::string>(
          "--store", [&flags](const std::string& where) { flags.store = where; },
          "where conversations are stored: a file, or postgresql://...; '' for nowhere")
      ->type_name("FILE|URL")
      ->default_str("in the user's state folder")
      ->group("Store");
  add_parsed<std::int64_t>(
      command, "--store-age", &parse_duration,
      [&flags](std::int64_t value) {
        flags.store_age = value > 0 ? std::optional<Nanos>(value) : std::nullopt;
      },
      "conversations at rest for longer are deleted; 0: never", "TIME", "30d")
      ->group("Store");
  add_parsed<std::uint64_t>(
      command, "--store-size", &parse_bytes,
      [&flags](std::uint64_t bytes) {
        flags.store_size = bytes > 0 ? std::optional<std::uint64_t>(bytes) : std::nullopt;
      },
      "beyond, the conversations longest at rest are deleted; 0: no limit", "SIZE",
      format_bytes(*flags.store_size))
      ->group("Store");
}

}  // namespace

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("MODEL,--model", flags.model,
                  "a GGUF file (of a split one the first part), a Hugging Face directory, or `default` (what "
                  "`make model` fetches)")
      ->required();
  add_parsed<TensorType>(
      command, "--quantize", [](std::string_view text, std::string_view) { return parse_quantize(text); },
      [&flags](TensorType type) { flags.load.quantize = type; },
      "encode a directory's matrices while loading: q8_0, q4_0 or q4_k", "TYPE", "as published")
      ->group("Compute");
  add_network_flags(command, flags);
  add_engine_flags(command, flags);
  add_store_flags(command, flags);
  command.add_option("--workers", flags.workers, "threads that tokenise")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group("Compute");
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->type_name("LEVEL")
      ->capture_default_str();
}

}  // namespace loci
