// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_compute.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/cli/device_flags.h"
#include "loci/cli/option_checks.h"
#include "loci/compute/touch_slots.h"
#include "loci/model/model.h"

namespace loci {

namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

struct Sequence {
  std::vector<SlotId> blocks;
  std::uint32_t length = 0;
};

// Sequences over a backend. Their tokens are given, as llama-bench's are: to choose one by the logits is the
// sampler's work.
class Runner {
 public:
  Runner(Backend& backend, std::uint32_t sequences, std::uint32_t tokens_each) : backend_(backend) {
    const std::uint32_t blocks = (tokens_each + kBlockTokens - 1) / kBlockTokens;
    for (std::uint32_t s = 0; s < sequences; ++s) {
      Sequence sequence;
      for (std::uint32_t b = 0; b < blocks; ++b) sequence.blocks.emplace_back(s * blocks + b);
      sequences_.push_back(std::move(sequence));
    }
  }

  void restart() {
    for (Sequence& sequence : sequences_) sequence.length = 0;
  }

  // The prompts of all sequences, `batch` tokens a pass.
  void prefill(std::uint32_t prompt, std::uint32_t batch) {
    for (std::uint32_t done = 0; done < prompt * sequences_.size();) {
      Pass pass;
      std::uint32_t room = batch;
      for (std::size_t s = 0; s < sequences_.size() && room > 0; ++s) {
        Sequence& sequence = sequences_[s];
        const std::uint32_t count = std::min(room, prompt - sequence.length);
        if (count == 0) continue;
        std::vector<TokenId> tokens;
        for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(token(s, sequence.length + i));
        add_span(pass, sequence, std::move(tokens),
                 sequence.length == prompt - count ? LogitsWanted::kLast : LogitsWanted::kNone);
        room -= count;
        done += count;
      }
      run_pass(backend_, std::move(pass), results_);
    }
  }

  void decode_step() {
    Pass pass;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      add_span(pass, sequences_[s], {token(s, sequences_[s].length)}, LogitsWanted::kLast);
    }
    run_pass(backend_, std::move(pass), results_);
  }

 private:
  TokenId token(std::size_t sequence, std::uint32_t position) const {
    return TokenId(static_cast<std::uint32_t>((position + 7 * sequence) * 7919 % backend_.info().vocabulary));
  }

  void add_span(Pass& pass, Sequence& sequence, std::vector<TokenId> tokens, LogitsWanted logits) {
    Span span;
    span.position = sequence.length;
    span.layers = {0, backend_.info().layers};
    span.tables.assign(backend_.info().groups.size(), BlockTable{.blocks = sequence.blocks});
    span.logits = logits;
    sequence.length += static_cast<std::uint32_t>(tokens.size());
    span.tokens = std::move(tokens);
    pass.spans.push_back(std::move(span));
  }

  Backend& backend_;
  std::vector<Sequence> sequences_;
  std::vector<SpanResult> results_;
};

// Blocks whose memory is there before the clock starts, as it is in a server that has run for a while (and
// as llama.cpp's is).
Status allocate_touched(Backend& backend, std::uint32_t blocks) {
  for (std::uint32_t g = 0; g < backend.info().groups.size(); ++g) {
    LOCI_RETURN_IF_ERROR(backend.allocate_blocks(g, blocks));
    touch_slots(backend, g, blocks);
  }
  return {};
}

const char* test_name(ComputeTest test) {
  switch (test) {
    case ComputeTest::kDecode: return "decode";
    case ComputeTest::kPrefill: return "prefill";
    case ComputeTest::kStreams: return "streams";
  }
  return "";
}

// One round; returns the seconds that count.
double measure(Runner& runner, const BenchComputeOptions& options) {
  runner.restart();
  SteadyClock::time_point begin = SteadyClock::now();
  runner.prefill(options.prompt, options.max_batch_tokens);
  if (options.test == ComputeTest::kPrefill) return seconds_since(begin);
  if (options.test == ComputeTest::kDecode) begin = SteadyClock::now();
  for (std::uint32_t i = 0; i < options.generate; ++i) runner.decode_step();
  return seconds_since(begin);
}

}  // namespace

Result<BenchComputeResult> bench_compute(const BenchComputeOptions& options) {
  if (options.prompt == 0) return invalid_argument("expected at least one token", "prompt");
  if (options.max_batch_tokens == 0)
    return invalid_argument("expected at least one token", "max-batch-tokens");
  LOCI_ASSIGN_OR_RETURN(const OpenedSource opened, open_model_source(options.model, options.load));
  LOCI_ASSIGN_OR_RETURN(ModelSpec spec, read_model_spec(*opened.source));
  const SteadyClock::time_point begin = SteadyClock::now();
  const std::uint32_t sequences = options.test == ComputeTest::kStreams ? options.streams : 1;
  const std::uint32_t generated = options.test == ComputeTest::kPrefill ? 0 : options.generate;
  const std::uint32_t each = options.prompt + generated;
  BackendOptions wanted = options.backend;
  wanted.cuda.max_batch_tokens = std::max(options.max_batch_tokens, sequences);
  wanted.cuda.max_spans = wanted.cuda.max_batch_tokens;
  wanted.cuda.context_tokens = each;
  LOCI_ASSIGN_OR_RETURN(MadeBackend made, make_backend(spec, wanted));
  const std::unique_ptr<Backend> backend = std::move(made.backend);
  BenchComputeResult result;
  result.load_seconds = seconds_since(begin);
  result.device = made.chosen;
  LOCI_RETURN_IF_ERROR(allocate_touched(*backend, sequences * ((each + kBlockTokens - 1) / kBlockTokens)));
  Runner runner(*backend, sequences, each);
  result.seconds = measure(runner, options);
  for (std::uint32_t i = 1; i < options.repeats; ++i)
    result.seconds = std::min(result.seconds, measure(runner, options));
  result.test = test_name(options.test);
  result.backend = backend->info().description;
  result.weight_bytes = backend->info().weight_bytes;
  result.tokens = options.test == ComputeTest::kDecode ? generated : std::uint64_t{sequences} * each;
  result.tokens_per_second = static_cast<double>(result.tokens) / result.seconds;
  return result;
}

std::string format_bench_compute(const BenchComputeOptions& options, const BenchComputeResult& result) {
  if (options.json) {
    const nlohmann::json line = {{"test", result.test},
                                 {"model", options.model},
                                 {"device", result.device},
                                 {"backend", result.backend},
                                 {"prompt", options.prompt},
                                 {"generate", options.test == ComputeTest::kPrefill ? 0 : options.generate},
                                 {"streams", options.test == ComputeTest::kStreams ? options.streams : 1},
                                 {"tokens", result.tokens},
                                 {"seconds", result.seconds},
                                 {"tokens_per_second", result.tokens_per_second},
                                 {"weight_bytes", result.weight_bytes},
                                 {"load_seconds", result.load_seconds}};
    return line.dump();
  }
  return fmt::format("{} on {}: {:.1f} tokens/s ({} tokens in {:.3f} s; weights {}, packed in {:.2f} s)",
                     result.test, result.backend, result.tokens_per_second, result.tokens, result.seconds,
                     format_bytes(result.weight_bytes), result.load_seconds);
}

int run_bench_compute(int count, const char* const* arguments) {
  BenchComputeOptions options;
  std::optional<InstructionSet> set;
  CLI::App app("Measures the backend alone: no server, scheduler or sampler.", "loci bench-compute");
  app.add_option("--model", options.model, "GGUF file or Hugging Face directory")->required();
  const auto set_quantize = [&options](const std::string& name) {
    const Result<TensorType> type = parse_quantize(name);
    if (!type.ok()) throw CLI::ValidationError("--quantize", type.status().message());
    options.load.quantize = *type;
  };
  app.add_option_function<std::string>("--quantize", set_quantize,
                                       "encode a directory's matrices: q8_0, q4_0, q4_k");
  add_device_flags(app, options.backend);
  app.add_option("--threads", options.backend.cpu.threads, "compute threads of a CPU (0: one a core)");
  const std::map<std::string, InstructionSet> sets = {{"plain", InstructionSet::kPlain},
                                                      {"avx2", InstructionSet::kAvx2},
                                                      {"avx512", InstructionSet::kAvx512},
                                                      {"amx", InstructionSet::kAmx},
                                                      {"neon", InstructionSet::kNeon}};
  app.add_option("--cpu", set, "instruction set (default: the best)")
      ->transform(choice_from(sets))
      ->type_name("plain|avx2|avx512|amx|neon");
  const std::map<std::string, ComputeTest> tests = {{"decode", ComputeTest::kDecode},
                                                    {"prefill", ComputeTest::kPrefill},
                                                    {"streams", ComputeTest::kStreams}};
  app.add_option("--test", options.test, "what is measured")
      ->transform(choice_from(tests))
      ->type_name("decode|prefill|streams");
  app.add_option("--prompt", options.prompt, "tokens of the prompt, of each stream")->capture_default_str();
  app.add_option("--generate", options.generate, "tokens that follow it")->capture_default_str();
  app.add_option("--streams", options.streams, "sequences")->capture_default_str();
  app.add_option("--max-batch-tokens", options.max_batch_tokens, "tokens of a pass")->capture_default_str();
  app.add_option("--repeats", options.repeats, "rounds, of which the best counts")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON line");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "loci bench-compute: {} (see loci bench-compute --help)\n",
               printable(error.what(), LineEnds::kReplace));
    return 2;
  }
  options.backend.cpu.instruction_set = set;
  const Result<BenchComputeResult> result = bench_compute(options);
  if (!result.ok()) {
    const Status status = result.status();
    const std::string field = status.field().empty() ? "" : status.field() + ": ";
    fmt::print(stderr, "loci bench-compute: {}\n", printable(field + status.message(), LineEnds::kReplace));
    return 1;
  }
  fmt::print("{}\n", format_bench_compute(options, *result));
  return 0;
}

}  // namespace loci
