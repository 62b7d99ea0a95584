// SPDX-License-Identifier: Apache-2.0
// Grammars in the sampler and the engine. The backend's vocabulary is the first 97 tokens of a byte-level
// one: three control tokens, then token 3 + b for each byte b below 94.
#include "loci/engine/run/constraint.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "loci/engine/run/sampler.h"
#include "loci/engine/testing/engine_testing.h"
#include "loci/model/text_testing.h"

namespace loci {
namespace {

constexpr TokenId kEnd{2};

TokenId token_of(char byte) { return TokenId(3u + static_cast<unsigned char>(byte)); }

std::string text_of(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += token.value < 3 ? '$' : static_cast<char>(token.value - 3);
  return text;
}

std::shared_ptr<const Grammar> grammar_of(GrammarKind kind, const std::string& text) {
  static const Tokenizer tokenizer = std::move(tokenizer_from(byte_level_writer({}, {}))).value();
  static GrammarCompiler compiler(tokenizer);
  return compiler.compile({kind, text}).value();
}

std::shared_ptr<const Grammar> regex(const std::string& text) {
  return grammar_of(GrammarKind::kRegex, text);
}

std::vector<float> even_logits(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(kVocabulary);
  for (float& logit : logits) logit = static_cast<float>(random.unit());
  return logits;
}

Sampler constrained(const std::string& pattern, SamplingParams params = {},
                    std::vector<TokenId> stop = {kEnd}) {
  return Sampler(std::move(params), {}, std::move(stop), kVocabulary, regex(pattern));
}

// Many more can be refused, or leave, than one thread makes masks for.
TEST(ConstraintWorker, KeepsNothingOfWhatHasEnded) {
  const auto long_one = std::make_shared<Sampler>(SamplingParams{}, std::vector<TokenId>{}, std::vector{kEnd},
                                                  kVocabulary, regex("[0-9]*"));
  long_one->resume_after(std::vector<TokenId>(200'000, token_of('7')));
  ConstraintWorker worker;
  worker.prepare({long_one});
  int gone = 0;
  const auto counted = [&gone](const Sampler* sampler) {
    ++gone;
    delete sampler;
  };
  for (int i = 0; i < 100; ++i) {
    std::shared_ptr<Sampler> one(new Sampler(SamplingParams{}, {}, {kEnd}, kVocabulary, regex("[0-9]*")),
                                 counted);
    worker.prepare({one});
  }
  // While the worker is busy with the first one it has none of the others. (Nobody knows where it had time.)
  const bool is_busy = long_one.use_count() > 1;
  EXPECT_TRUE(!is_busy || gone == 100) << gone;
}

TEST(ConstrainedSampler, GreedyTakesTheBestOfWhatIsAllowed) {
  std::vector<float> logits = even_logits(1);
  logits[token_of('7').value] = 5;
  logits[token_of('B').value] = 4;
  logits[token_of('Z').value] = 9;
  Sampler sampler = constrained("[A-D][0-9]", {.temperature = 0.0f, .top_logprobs = 1, .logprobs = true});
  const Sampled first = *sampler.sample(logits);
  EXPECT_EQ(first.token, token_of('B'));
  EXPECT_EQ(first.top.at(0).token, token_of('Z')) << "log-probabilities are the model's own";
  EXPECT_LT(first.chosen.logprob, first.top.at(0).logprob);
  EXPECT_EQ(sampler.grammar_end(), GrammarEnd::kGoesOn);
  EXPECT_EQ(sampler.sample(logits)->token, token_of('7'));
  EXPECT_EQ(sampler.grammar_end(), GrammarEnd::kComplete);
}

TEST(ConstrainedSampler, PreparedOrNotIsTheSame) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto run = [&](bool prepared) {
      Sampler sampler =
          constrained("([A-C]+[0-9]{1,3},?){1,9}", {.temperature = 2.0f, .top_p = 0.9f, .seed = seed});
      std::vector<TokenId> tokens;
      for (std::uint64_t i = 0; i < 30; ++i) {
        if (prepared) sampler.prepare();
        const std::optional<Sampled> sampled = sampler.sample(even_logits(seed * 100 + i));
        if (!sampled) break;
        tokens.push_back(sampled->token);
        if (sampled->token == kEnd || sampler.grammar_end() != GrammarEnd::kGoesOn) break;
      }
      return tokens;
    };
    EXPECT_EQ(run(true), run(false));
  }
}

TEST(ConstrainedSampler, ResumesInsideTheGrammar) {
  const auto reply = [](std::size_t said, bool prepared) {
    const auto fresh = [] {
      return std::make_unique<Sampler>(
          constrained("([A-C]+[0-9]{1,3},?){9}", {.temperature = 2.0f, .seed = 3}));
    };
    auto sampler = fresh();
    std::vector<TokenId> tokens;
    for (std::uint64_t i = 0; i < 60; ++i) {
      if (i == said) {
        sampler = fresh();
        sampler->resume_after(tokens);
        if (prepared) sampler->prepare();
      }
      const std::optional<Sampled> sampled = sampler->sample(even_logits(i));
      if (!sampled) break;
      tokens.push_back(sampled->token);
      if (sampled->token == kEnd || sampler->grammar_end() != GrammarEnd::kGoesOn) break;
    }
    return tokens;
  };
  const std::vector<TokenId> wanted = reply(60, false);
  ASSERT_GT(wanted.size(), 20u);
  for (const std::size_t said : {1, 7, 20}) {
    EXPECT_EQ(reply(said, false), wanted) << said;
    EXPECT_EQ(reply(said, true), wanted) << said;
  }
  // Its beginning is that of another grammar.
  Sampler other = constrained("[A-C]+");
  other.resume_after(std::vector<TokenId>{token_of('7')});
  EXPECT_FALSE(other.sample(even_logits(1)));
  EXPECT_FALSE(other.grammar_status().ok());
}

TEST(ConstrainedSampler, StopsExactlyWhereTheGrammarMayEnd) {
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[kEnd.value] = 10;
  Sampler sampler = constrained("AB*", {.temperature = 0.0f});
  EXPECT_EQ(sampler.sample(logits)->token, token_of('A'));
  EXPECT_EQ(sampler.sample(logits)->token, kEnd);

  Sampler held_back = constrained("AB*", {.temperature = 0.0f, .min_tokens = 3});
  EXPECT_EQ(held_back.sample(logits)->token, token_of('A'));
  EXPECT_EQ(held_back.sample(logits)->token, token_of('B'));
  EXPECT_EQ(held_back.sample(logits)->token, token_of('B'));
  EXPECT_EQ(held_back.sample(logits)->token, kEnd);
}

TEST(ConstrainedSampler, EndsWhereNothingMayFollow) {
  const std::vector<float> logits(kVocabulary, 0.0f);
  // Nothing ends the reply but the grammar, and it is whole before its first token.
  Sampler empty(SamplingParams{}, {}, {}, kVocabulary, grammar_of(GrammarKind::kChoice, R"([""])"));
  EXPECT_FALSE(empty.sample(logits).has_value());
  EXPECT_EQ(empty.grammar_end(), GrammarEnd::kComplete);
  // No byte of é is in the backend's vocabulary.
  Sampler stuck(SamplingParams{}, {}, {kEnd}, kVocabulary, grammar_of(GrammarKind::kChoice, R"(["é"])"));
  EXPECT_FALSE(stuck.sample(logits).has_value());
  EXPECT_EQ(stuck.grammar_end(), GrammarEnd::kFailed);
  EXPECT_EQ(stuck.grammar_status().code(), StatusCode::kInvalidArgument);
}

TEST(ConstrainedSampler, TakesAnAllowedTokenFromAnyLogits) {
  for (const float value : {-std::numeric_limits<float>::infinity(), std::nanf(""), -3e38f, 3e38f}) {
    for (const float temperature : {0.0f, 1.0f, 100.0f}) {
      const std::vector<float> logits(kVocabulary, value);
      Sampler sampler =
          constrained("[P-S]{5}", {.temperature = temperature, .repetition_penalty = 1.5f, .seed = 3});
      for (int i = 0; i < 5; ++i) {
        const std::uint32_t token = sampler.sample(logits)->token.value;
        EXPECT_TRUE(token >= token_of('P').value && token <= token_of('S').value) << token << " " << value;
      }
      EXPECT_EQ(sampler.grammar_end(), GrammarEnd::kComplete);
    }
  }
}

TEST(ConstrainedSampler, PenaltiesAndBiasChooseAmongTheAllowed) {
  const std::vector<float> logits(kVocabulary, 1.0f);
  Sampler biased = constrained("[A-D]{3}", {.temperature = 0.0f,
                                            .frequency_penalty = 1.0f,
                                            .logit_bias = {{token_of('Z'), 100.0f}, {token_of('C'), 0.5f}}});
  EXPECT_EQ(biased.sample(logits)->token, token_of('C'));
  EXPECT_EQ(biased.sample(logits)->token, token_of('A'));
  EXPECT_EQ(biased.sample(logits)->token, token_of('B'));
}

// --- in the engine ---

GenerationRequest request_of(std::uint64_t seed, std::shared_ptr<const Grammar> grammar) {
  GenerationRequest request;
  Random random(seed);
  request.prompt = some_prompt(seed % 3, 40 + random.below(60));
  for (const TokenId token : some_prompt(seed, random.below(200))) request.prompt.push_back(token);
  request.sampling.temperature = seed % 4 == 0 ? 0.0f : 8.0f;
  request.sampling.seed = seed;
  request.sampling.logprobs = seed % 5 == 0;
  request.max_new_tokens = 200;
  if (seed % 2 == 0) request.stop_tokens = {kEnd};
  request.grammar = std::move(grammar);
  return request;
}

struct Reply {
  std::string text;
  FinishReason reason = FinishReason::kStop;
  Status status;
  bool operator==(const Reply& other) const { return text == other.text && reason == other.reason; }
};

std::vector<Reply> run_all(World& world, const std::vector<std::shared_ptr<const Grammar>>& grammars,
                           std::uint64_t requests, bool at_once) {
  std::vector<std::unique_ptr<Record>> records;
  std::vector<Reply> replies;
  const auto submit = [&](std::uint64_t seed) {
    world.engine->submit(request_of(seed, grammars[seed % grammars.size()]), records[seed]->listener());
  };
  for (std::uint64_t seed = 0; seed < requests; ++seed) records.push_back(std::make_unique<Record>());
  if (at_once) {
    // The second one begins when all are there, however slow this thread is.
    const MutexLock held = records[0]->hold_engine();
    for (std::uint64_t seed = 0; seed < requests; ++seed) submit(seed);
  } else {
    for (std::uint64_t seed = 0; seed < requests; ++seed) {
      submit(seed);
      records[seed]->wait();
    }
  }
  for (const auto& record : records) {
    const GenerationEnded ended = record->wait();
    replies.push_back({text_of(record->tokens()), ended.reason, ended.status});
  }
  return replies;
}

// Poisoned spans, suspensions and evictions among requests with grammars and without: each reply is the one
// that it is alone, so no token is accepted twice, and it is what its grammar wants.
TEST(ConstrainedEngine, RepliesAreThoseOfARequestAlone) {
  const std::vector<std::shared_ptr<const Grammar>> grammars = {
      regex("([A-F]{2,4}[0-9],?){3,12}"), nullptr, grammar_of(GrammarKind::kJsonSchema, R"({"type":"array",
        "items":{"type":"integer"},"minItems":3,"maxItems":9})"),
      grammar_of(GrammarKind::kLark, "start: \"[\" (start \",\"){0,2} \"X\"* \"]\"")};
  std::vector<Reply> alone;
  {
    World world(options(200));
    alone = run_all(world, grammars, 40, false);
  }
  World world(options(40), {}, 20);
  const std::vector<Reply> together = run_all(world, grammars, 40, true);
  EXPECT_EQ(together, alone);
  EXPECT_GT(world.engine->stats().suspensions_total, 0u);
  int ended = 0;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(alone[i].status.ok()) << alone[i].status.to_string();
    if (i % 4 != 1) ended += alone[i].reason == FinishReason::kStop ? 1 : 0;
  }
  EXPECT_GT(ended, 15);
}

TEST(ConstrainedEngine, AGrammarThatCanNotGoOnEndsItsRequestAlone) {
  World world(options(64));
  Record stuck, fine;
  world.engine->submit(request_of(2, grammar_of(GrammarKind::kChoice, R"(["ABé"])")), stuck.listener());
  world.engine->submit(request_of(4, regex("[0-9]{30}")), fine.listener());
  const GenerationEnded ended = stuck.wait();
  EXPECT_EQ(ended.status.code(), StatusCode::kInvalidArgument) << ended.status.to_string();
  EXPECT_EQ(ended.reason, FinishReason::kGrammar);
  EXPECT_EQ(text_of(stuck.tokens()), "AB");
  EXPECT_EQ(fine.wait().reason, FinishReason::kStop);
  EXPECT_EQ(fine.tokens().size(), 30u);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
}

TEST(ConstrainedEngine, AWholeReplyEndsWithoutATokenOfItsOwn) {
  World world(options(64));
  for (const std::uint64_t seed : {2u, 3u}) {  // with a stop token and without
    Record record;
    world.engine->submit(request_of(seed, grammar_of(GrammarKind::kChoice, R"(["YES"])")), record.listener());
    const GenerationEnded ended = record.wait();
    EXPECT_EQ(ended.reason, FinishReason::kStop);
    EXPECT_EQ(text_of(record.tokens()), "YES");
    EXPECT_EQ(ended.usage.completion_tokens, 3u);
  }
  Record empty;
  world.engine->submit(request_of(3, grammar_of(GrammarKind::kChoice, R"([""])")), empty.listener());
  EXPECT_EQ(empty.wait().reason, FinishReason::kStop);
  EXPECT_TRUE(empty.tokens().empty());
}

}  // namespace
}  // namespace loci
