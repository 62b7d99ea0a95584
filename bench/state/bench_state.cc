// SPDX-License-Identifier: Apache-2.0
// What a type of state (--state-type) costs: perplexity of texts in windows of some lengths, by each type on
// the CPU, and how often its likeliest token is f16's. Windows follow one another in a text; each is computed
// alone, every type reads the same ones, and differences are of pairs.
//
//   bench_state MODEL TEXT... [--contexts 512,4096] [--windows 8] [--threads 0]
//
// Prints one line a text, context and type.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/model/model.h"

namespace loci {
namespace {

constexpr StateType kTypes[] = {StateType::kF16, StateType::kQ8};
constexpr std::uint32_t kChunkTokens = 128;  // of a pass: its logits are in memory

struct Options {
  std::string model;
  std::vector<std::string> texts;
  std::vector<std::uint32_t> contexts = {512, 4096};
  std::uint32_t windows = 8;  // of each text and context, at most
  std::uint32_t threads = 0;
};

// Of each prediction in a window.
struct Predictions {
  std::vector<double> costs;  // -ln of the probability of the token that follows
  std::vector<std::uint32_t> likeliest;
};

double cost_of(std::span<const float> logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[token.value];
}

Predictions predict(Backend& backend, std::span<const TokenId> window) {
  const auto predictions = static_cast<std::uint32_t>(window.size() - 1);
  const std::uint32_t vocabulary = backend.info().vocabulary;
  Predictions out{std::vector<double>(predictions), std::vector<std::uint32_t>(predictions)};
  BlockTable table;
  for (std::uint32_t i = 0; i * kBlockTokens < window.size(); ++i) table.blocks.emplace_back(i);
  std::vector<SpanResult> results;
  for (std::uint32_t done = 0; done < predictions;) {
    const std::uint32_t count = std::min(kChunkTokens, predictions - done);
    Pass pass;
    Span& span = pass.spans.emplace_back();
    span.tokens.assign(window.begin() + done, window.begin() + done + count);
    span.position = done;
    span.layers = {0, backend.info().layers};
    span.tables.assign(backend.info().groups.size(), table);
    span.logits = LogitsWanted::kAll;
    run_pass(backend, std::move(pass), results);
    backend.run_tasks(count, [&](std::uint32_t row) {
      const auto logits = results[0].logits.subspan(std::size_t{row} * vocabulary, vocabulary);
      out.costs[done + row] = cost_of(logits, window[done + row + 1]);
      out.likeliest[done + row] =
          static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    });
    done += count;
  }
  return out;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value / static_cast<double>(values.size());
  return sum;
}

Status measure(const std::vector<std::unique_ptr<Backend>>& backends, const std::string& path,
               const std::vector<TokenId>& tokens, std::uint32_t context, std::uint32_t most) {
  const auto windows = static_cast<std::uint32_t>(std::min<std::size_t>(most, tokens.size() / context));
  if (windows == 0) {
    return invalid_argument(fmt::format("{} has {} tokens; expected {}", path, tokens.size(), context));
  }
  std::vector<std::vector<double>> costs(backends.size());  // [type][window], means
  std::vector<double> same(backends.size());
  for (std::uint32_t i = 0; i < windows; ++i) {
    const auto window = std::span(tokens).subspan(std::size_t{i} * context, context);
    Predictions first;
    for (std::size_t type = 0; type < backends.size(); ++type) {
      Predictions found = predict(*backends[type], window);
      costs[type].push_back(mean(found.costs));
      if (type == 0) first = found;
      for (std::size_t t = 0; t < found.likeliest.size(); ++t)
        same[type] += found.likeliest[t] == first.likeliest[t] ? 1.0 / found.likeliest.size() / windows : 0;
    }
  }
  for (std::size_t type = 0; type < backends.size(); ++type) {
    const double difference = mean(costs[type]) - mean(costs[0]);
    double squares = 0;
    for (std::uint32_t i = 0; i < windows; ++i)
      squares += std::pow(costs[type][i] - costs[0][i] - difference, 2);
    const double error = windows > 1 ? std::sqrt(squares / (windows - 1) / windows) : 0;
    fmt::print(
        "{} context {} windows {} {}: perplexity {:.4f}, {:+.3f} % (standard error {:.3f}), likeliest token "
        "as "
        "f16's {:.2f} %\n",
        path.substr(path.rfind('/') + 1), context, windows, state_type_name(kTypes[type]),
        std::exp(mean(costs[type])), 100 * std::expm1(difference), 100 * error, 100 * same[type]);
  }
  std::fflush(stdout);
  return {};
}

Result<std::vector<TokenId>> read_tokens(const Tokenizer& tokenizer, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(fmt::format("{} cannot be read", path));
  std::ostringstream text;
  text << file.rdbuf();
  return tokenizer.encode(text.str(), ControlText::kAsText);
}

Status run(const Options& options) {
  LOCI_ASSIGN_OR_RETURN(const Model model, load_model(options.model, {}));
  const std::uint32_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  if (longest > model.spec.context_length || longest < 2) {
    return invalid_argument(fmt::format("expected from 2 to {}", model.spec.context_length), "--contexts");
  }
  std::vector<std::unique_ptr<Backend>> backends;
  for (const StateType type : kTypes) {
    LOCI_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                          make_cpu_backend(model.spec, {.threads = options.threads, .state_type = type}));
    for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group)
      LOCI_RETURN_IF_ERROR(backend->allocate_blocks(group, (longest + kBlockTokens - 1) / kBlockTokens));
    backends.push_back(std::move(backend));
  }
  for (const std::string& path : options.texts) {
    LOCI_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, read_tokens(model.tokenizer, path));
    for (const std::uint32_t context : options.contexts)
      LOCI_RETURN_IF_ERROR(measure(backends, path, tokens, context, options.windows));
  }
  return {};
}

}  // namespace
}  // namespace loci

int main(int count, char** arguments) {
  loci::Options options;
  CLI::App app("What a type of state costs in perplexity.");
  app.add_option("model", options.model, "a GGUF file or a Hugging Face directory")->required();
  app.add_option("text", options.texts, "text files")->required();
  app.add_option("--contexts", options.contexts, "tokens of a window")->delimiter(',')->capture_default_str();
  app.add_option("--windows", options.windows, "of each text and context, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads, "0: one for each physical core")->capture_default_str();
  CLI11_PARSE(app, count, arguments);
  const loci::Status status = loci::run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_state: {}\n", status.to_string());
  return 1;
}
