// SPDX-License-Identifier: Apache-2.0
#include "bench_truncation.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <sstream>
#include <utility>

#include "loci/cli/device_flags.h"
#include "loci/model/model.h"

namespace loci {

namespace {

constexpr std::array<TruncationScheme, kTruncationSchemes> kSchemes = {{
    {KeptState::kRecomputed, true},
    {KeptState::kRecomputed, false},
    {KeptState::kRotated, true},
    {KeptState::kRotated, false},
    {KeptState::kNaive, true},
    {KeptState::kNaive, false},
}};

// One scheme's context: which tokens it holds, and in which slots (the same in every group).
struct Context {
  TruncationScheme scheme;
  std::vector<SlotId> blocks;
  std::vector<TokenId> tokens;  // whose state the blocks hold
};

// Where text ends up: the next token's probability after each token.
double negative_log_probability(std::span<const float> logits, TokenId next) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + static_cast<double>(largest - logits[next.value]);
}

class Runner {
 public:
  Runner(Backend& backend, const BenchTruncationOptions& options)
      : backend_(backend),
        chunk_(options.chunk_tokens),
        blocks_(options.window / kBlockTokens),
        dropped_(static_cast<std::uint32_t>(std::lround(blocks_ * options.ratio))) {
    for (std::uint32_t s = 0; s < kTruncationSchemes; ++s) {
      Context context{kSchemes[s], {}, {}};
      for (std::uint32_t b = 0; b < blocks_; ++b) context.blocks.emplace_back(s * blocks_ + b);
      contexts_.push_back(std::move(context));
    }
  }

  static std::uint32_t slots(const BenchTruncationOptions& options) {
    return kTruncationSchemes * (options.window / kBlockTokens);
  }
  // Tokens that a truncation makes room for.
  std::uint32_t room() const { return dropped_ * kBlockTokens; }

  // Fills the contexts with the text's first window, which is computed once; returns the sum of its tokens'
  // costs.
  double begin(std::span<const TokenId> text) {
    for (Context& context : contexts_) context.tokens.clear();
    const std::vector<std::size_t> first = {0};
    const double cost = extend(first, text, blocks_ * kBlockTokens)[0];
    for (std::size_t s = 1; s < contexts_.size(); ++s) {
      contexts_[s].tokens = contexts_[0].tokens;
      for (std::uint32_t b = 0; b < blocks_; ++b) {
        move_block(contexts_[0].blocks[b], contexts_[s].blocks[b], 0);
      }
    }
    return cost;
  }

  // Each context drops its oldest part; what its scheme keeps is at its new place afterwards.
  void truncate() {
    std::vector<std::size_t> recomputed;
    std::vector<std::vector<TokenId>> kept(contexts_.size());
    for (std::size_t s = 0; s < contexts_.size(); ++s) {
      Context& context = contexts_[s];
      const std::uint32_t from = context.scheme.first_block ? 1 : 0;
      std::vector<TokenId> tokens = context.tokens;
      tokens.erase(tokens.begin() + from * kBlockTokens, tokens.begin() + (from + dropped_) * kBlockTokens);
      if (context.scheme.state == KeptState::kRecomputed) {
        context.tokens.clear();
        kept[s] = std::move(tokens);
        recomputed.push_back(s);
        continue;
      }
      std::rotate(context.blocks.begin() + from, context.blocks.begin() + from + dropped_,
                  context.blocks.end());
      context.tokens = std::move(tokens);
      if (context.scheme.state == KeptState::kNaive) continue;
      const std::int32_t delta = -static_cast<std::int32_t>(room());
      for (std::uint32_t b = from; b + dropped_ < blocks_; ++b) {
        move_block(context.blocks[b], context.blocks[b], delta);
      }
    }
    compute_again(recomputed, kept);
  }

  // All contexts go on with the next room() tokens of the text; costs of what follows each of these, by
  // scheme.
  std::vector<double> go_on(std::span<const TokenId> text) {
    std::vector<std::size_t> all(contexts_.size());
    std::iota(all.begin(), all.end(), 0);
    return extend(all, text, room());
  }

 private:
  void move_block(SlotId from, SlotId to, std::int32_t delta) {
    for (std::uint32_t g = 0; g < backend_.info().groups.size(); ++g) {
      const LayerGroup& group = backend_.info().groups[g];
      const LayerRange all{0, static_cast<std::uint32_t>(group.layers.size())};
      part_.resize(group.block_bytes);
      const SavePiece saved{from, part_};
      backend_.save(g, all, {&saved, 1}, BytesHeld::kDuringCall);
      for (std::uint32_t i = 0; i < all.end; ++i) {
        backend_.rotate_keys(group.layers[i], delta,
                             std::span(part_).subspan(i * group.layer_slice_bytes, group.layer_slice_bytes));
      }
      const LoadPiece loaded{to, part_};
      backend_.load(g, all, {&loaded, 1}, BytesHeld::kDuringCall);
    }
  }

  void add_span(Pass& pass, Context& context, std::span<const TokenId> tokens, LogitsWanted logits) {
    Span span;
    span.tokens.assign(tokens.begin(), tokens.end());
    span.position = static_cast<std::uint32_t>(context.tokens.size());
    span.layers = {0, backend_.info().layers};
    span.tables.assign(backend_.info().groups.size(), BlockTable{.blocks = context.blocks});
    span.logits = logits;
    pass.spans.push_back(std::move(span));
    context.tokens.insert(context.tokens.end(), tokens.begin(), tokens.end());
  }

  void compute_again(const std::vector<std::size_t>& contexts,
                     const std::vector<std::vector<TokenId>>& tokens) {
    for (std::size_t done = 0; done < tokens[contexts.front()].size();) {
      const std::size_t count = std::min<std::size_t>(4 * chunk_, tokens[contexts.front()].size() - done);
      Pass pass;
      for (const std::size_t s : contexts) {
        add_span(pass, contexts_[s], std::span(tokens[s]).subspan(done, count), LogitsWanted::kNone);
      }
      run_pass(backend_, std::move(pass), results_);
      done += count;
    }
  }

  // The contexts take `count` tokens from the text's beginning; it holds one more.
  std::vector<double> extend(const std::vector<std::size_t>& contexts, std::span<const TokenId> text,
                             std::uint32_t count) {
    std::vector<double> costs(contexts.size());
    for (std::uint32_t done = 0; done < count;) {
      const std::uint32_t tokens = std::min(chunk_, count - done);
      Pass pass;
      for (const std::size_t s : contexts) {
        add_span(pass, contexts_[s], text.subspan(done, tokens), LogitsWanted::kAll);
      }
      run_pass(backend_, std::move(pass), results_);
      // Each row's cost in a place of its own, so that sums have one order.
      std::vector<double> rows(contexts.size() * tokens);
      backend_.run_tasks(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t i) {
        const std::uint32_t row = i % tokens, vocabulary = backend_.info().vocabulary;
        rows[i] = negative_log_probability(
            results_[i / tokens].logits.subspan(std::size_t{row} * vocabulary, vocabulary),
            text[done + row + 1]);
      });
      for (std::size_t i = 0; i < rows.size(); ++i) costs[i / tokens] += rows[i];
      done += tokens;
    }
    return costs;
  }

  Backend& backend_;
  const std::uint32_t chunk_;
  const std::uint32_t blocks_;   // of the window
  const std::uint32_t dropped_;  // by a truncation
  std::vector<Context> contexts_;
  std::vector<SpanResult> results_;
  std::vector<std::byte> part_;  // of a block
};

Status check_options(const BenchTruncationOptions& options) {
  if (options.window % kBlockTokens != 0 || options.window < 4 * kBlockTokens) {
    return invalid_argument(fmt::format("expected a multiple of {} from {}, found {}", kBlockTokens,
                                        4 * kBlockTokens, options.window),
                            "window");
  }
  const double blocks = options.window / kBlockTokens;
  if (!(std::lround(blocks * options.ratio) >= 1 && std::lround(blocks * options.ratio) + 2 <= blocks)) {
    return invalid_argument(
        fmt::format("expected a ratio at which at least one block is dropped and at least two stay, found {}",
                    options.ratio),
        "ratio");
  }
  if (options.truncations == 0) return invalid_argument("expected at least 1, found 0", "truncations");
  if (options.chunk_tokens == 0)
    return invalid_argument("expected at least 1 token, found 0", "chunk-tokens");
  return {};
}

Result<std::vector<TokenId>> read_tokens(const Tokenizer& tokenizer, const std::string& path,
                                         std::size_t wanted) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(fmt::format("{} cannot be read", path));
  std::ostringstream text;
  text << file.rdbuf();
  LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.encode(text.str(), ControlText::kAsText));
  if (tokenizer.add_bos() && tokenizer.bos()) tokens.insert(tokens.begin(), *tokenizer.bos());
  if (tokens.size() < wanted) {
    return invalid_argument(fmt::format("{} has {} tokens, and {} are needed", path, tokens.size(), wanted),
                            "truncations");
  }
  return tokens;
}

// Of each truncation the mean cost by scheme.
using Costs = std::vector<std::array<double, kTruncationSchemes>>;

std::vector<SchemeResult> summarise(const Costs& costs) {
  std::vector<SchemeResult> results;
  const auto n = static_cast<double>(costs.size());
  for (std::size_t s = 0; s < kTruncationSchemes; ++s) {
    const std::size_t baseline = kSchemes[s].first_block ? 0 : 1;
    double mean = 0, difference = 0, squares = 0;
    for (const auto& row : costs) mean += row[s] / n, difference += (row[s] - row[baseline]) / n;
    for (const auto& row : costs) squares += std::pow(row[s] - row[baseline] - difference, 2);
    const double error = costs.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
    results.push_back({kSchemes[s], std::exp(mean), difference, error});
  }
  return results;
}

Result<TextResult> measure(Runner& runner, const BenchTruncationOptions& options, const Tokenizer& tokenizer,
                           const std::string& path) {
  const std::size_t wanted = options.window + std::size_t{options.truncations} * runner.room() + 1;
  LOCI_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, read_tokens(tokenizer, path, wanted));
  std::span<const TokenId> text = tokens;
  TextResult result;
  result.text = path;
  result.window_perplexity = std::exp(runner.begin(text) / options.window);
  text = text.subspan(options.window);
  Costs costs;
  for (std::uint32_t i = 0; i < options.truncations; ++i, text = text.subspan(runner.room())) {
    runner.truncate();
    const std::vector<double> sums = runner.go_on(text);
    costs.emplace_back();
    for (std::size_t s = 0; s < kTruncationSchemes; ++s) costs.back()[s] = sums[s] / runner.room();
    result.tokens += runner.room();
    if (!options.progress) continue;
    std::string line = fmt::format("{} truncation {}:", path, i + 1);
    for (const SchemeResult& scheme : summarise(costs)) line += fmt::format(" {:.3f}", scheme.perplexity);
    options.progress(line);
  }
  result.schemes = summarise(costs);
  return result;
}

}  // namespace

std::string truncation_scheme_name(const TruncationScheme& scheme) {
  const char* const state = scheme.state == KeptState::kRecomputed ? "recomputed"
                            : scheme.state == KeptState::kRotated  ? "rotated"
                                                                   : "naive";
  return fmt::format("{}, first block {}", state, scheme.first_block ? "kept" : "dropped");
}

Result<std::vector<TextResult>> bench_truncation(const BenchTruncationOptions& options) {
  LOCI_RETURN_IF_ERROR(check_options(options));
  LOCI_ASSIGN_OR_RETURN(const Model model, load_model(options.model, options.load));
  if (options.window > model.spec.context_length) {
    return invalid_argument(fmt::format("expected up to the model's {} tokens, found {}",
                                        model.spec.context_length, options.window),
                            "window");
  }
  BackendOptions wanted = options.backend;
  wanted.cuda.max_batch_tokens = static_cast<std::uint32_t>(kTruncationSchemes) * options.chunk_tokens;
  wanted.cuda.max_spans = wanted.cuda.max_batch_tokens;
  LOCI_ASSIGN_OR_RETURN(MadeBackend made, make_backend(model.spec, wanted));
  const std::unique_ptr<Backend> backend = std::move(made.backend);
  if (backend->info().positions == Positions::kAbsolute) {
    return invalid_argument("its positions are absolute: a truncated context is always computed anew",
                            "model");
  }
  for (std::uint32_t group = 0; group < backend->info().groups.size(); ++group) {
    LOCI_RETURN_IF_ERROR(backend->allocate_blocks(group, Runner::slots(options)));
  }
  Runner runner(*backend, options);
  std::vector<TextResult> results;
  for (const std::string& text : options.texts) {
    LOCI_ASSIGN_OR_RETURN(TextResult result, measure(runner, options, model.tokenizer, text));
    results.push_back(std::move(result));
  }
  return results;
}

std::string format_bench_truncation(const BenchTruncationOptions& options,
                                    const std::vector<TextResult>& results) {
  std::string out;
  for (const TextResult& result : results) {
    nlohmann::json schemes = nlohmann::json::array();
    if (!options.json) {
      out += fmt::format("{}: {} tokens scored after {} truncations; {:.3f} before\n", result.text,
                         result.tokens, options.truncations, result.window_perplexity);
    }
    for (const SchemeResult& scheme : result.schemes) {
      const std::string name = truncation_scheme_name(scheme.scheme);
      if (options.json) {
        schemes.push_back({{"scheme", name},
                           {"perplexity", scheme.perplexity},
                           {"log_ratio_to_recomputed", scheme.log_ratio},
                           {"log_ratio_error", scheme.log_ratio_error}});
        continue;
      }
      out += fmt::format("  {:<32} {:>10.3f}  {:+.2f} % of recomputed (standard error {:.2f} %)\n", name,
                         scheme.perplexity, 100 * std::expm1(scheme.log_ratio), 100 * scheme.log_ratio_error);
    }
    if (!options.json) continue;
    const nlohmann::json line = {{"text", result.text},     {"window", options.window},
                                 {"ratio", options.ratio},  {"truncations", options.truncations},
                                 {"tokens", result.tokens}, {"window_perplexity", result.window_perplexity},
                                 {"schemes", schemes}};
    out += line.dump() + "\n";
  }
  return out;
}

int run_bench_truncation(int count, const char* const* arguments) {
  BenchTruncationOptions options;
  CLI::App app("Perplexity of texts that outgrow the context, by what becomes of the kept tokens' state.",
               "bench_truncation");
  app.add_option("--model", options.model, "GGUF file or Hugging Face directory")->required();
  app.add_option("--text", options.texts, "file of UTF-8 text; may be given several times")->required();
  app.add_option("--window", options.window, "tokens of context")->capture_default_str();
  app.add_option("--ratio", options.ratio, "of the context that is dropped when it is full")
      ->capture_default_str();
  app.add_option("--truncations", options.truncations, "of each text")->capture_default_str();
  app.add_option("--chunk-tokens", options.chunk_tokens, "of each scheme in a pass")->capture_default_str();
  add_device_flags(app, options.backend);
  app.add_option("--threads", options.backend.cpu.threads, "compute threads of a CPU (0: one a core)");
  app.add_flag("--json", options.json, "a JSON line for each text");
  CLI11_PARSE(app, count, arguments);
  options.progress = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const Result<std::vector<TextResult>> results = bench_truncation(options);
  if (!results.ok()) {
    fmt::print(stderr, "{}\n", results.status().to_string());
    return 1;
  }
  fmt::print("{}", format_bench_truncation(options, *results));
  return 0;
}

}  // namespace loci
