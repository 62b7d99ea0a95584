// SPDX-License-Identifier: Apache-2.0
// What remembered tokens save against tokenising a conversation's text again: token_history_benchmark MODEL
// [--replies sampled|data] [--temperature T] [--reply-tokens N] [--turns N] [--threads N] [--template FILE]
// < CONVERSATIONS
//
// Reads one JSON object a line, {"messages": [{"role", "content"}, ...]}, and follows each conversation turn
// by turn with the messages of its users. Replies are sampled from the model; with `--replies data` (a
// vocabulary without weights will do) they are the conversation's own, tokenised by themselves behind the
// prompt. Each turn is tokenised in three ways, and compared with the sequence whose state is there: the turn
// before, tokenised the same way, and the reply. Prints one JSON object; bench/token_history.py makes tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <fstream>
#include <iostream>
#include <mutex>

#include "loci/compute/cpu/cpu_backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/gguf.h"
#include "loci/model/random_vocabulary_testing.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::uint32_t kContextTokens = 2048;

struct Options {
  std::string model;
  std::string replies = "sampled";
  std::string template_path;
  float temperature = 1.0f;
  std::uint32_t reply_tokens = 64;
  std::size_t turns = 5;
  std::uint32_t threads = 1;
};

// One way to tokenise, over all turns but the first of each conversation.
struct Tally {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t reused_tokens = 0;  // whose state is there
  std::uint64_t lost_tokens = 0;    // whose state is there, but for another tokenisation of the text
  std::uint64_t turns_lost = 0;     // turns that lost any
  std::uint64_t turns = 0;

  void add(const Tokens& prompt, const Tokens& known) {
    const auto parting = std::mismatch(prompt.begin(), prompt.end(), known.begin(), known.end());
    const auto reused = static_cast<std::uint64_t>(parting.first - prompt.begin());
    prompt_tokens += prompt.size();
    reused_tokens += reused;
    lost_tokens += known.size() - reused;
    turns_lost += reused < known.size() ? 1 : 0;
    ++turns;
  }
  Json json() const {
    return {{"prompt_tokens", prompt_tokens},
            {"reused_tokens", reused_tokens},
            {"lost_tokens", lost_tokens},
            {"turns_lost", turns_lost},
            {"turns", turns}};
  }
};

// One sequence's tokens as its engine gives them.
class Waiter {
 public:
  GenerationListener listener() {
    return [this](const GenerationEvent& event) {
      const std::lock_guard lock(mutex_);
      if (const auto* token = std::get_if<GeneratedToken>(&event)) tokens_.push_back(token->token);
      if (const auto* ended = std::get_if<GenerationEnded>(&event)) {
        status_ = ended->status;
        ended_ = true;
        signal_.notify_all();
      }
    };
  }
  Result<Tokens> wait() {
    std::unique_lock lock(mutex_);
    signal_.wait(lock, [this] { return ended_; });
    if (!status_.ok()) return status_;
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable signal_;
  Tokens tokens_;
  Status status_;
  bool ended_ = false;
};

// The model, or its vocabulary alone.
struct Text {
  std::optional<Model> model;
  std::optional<Tokenizer> vocabulary;
  std::optional<ChatTemplate> own_template;

  const Tokenizer& tokenizer() const { return model ? model->tokenizer : *vocabulary; }
  const ChatTemplate& chat() const { return own_template ? *own_template : *model->chat_template; }
};

Result<Text> open_text(const Options& options) {
  Text text;
  std::string source = kChatMlTemplate;
  if (options.replies == "sampled") {
    LOCI_ASSIGN_OR_RETURN(Model model, load_model(options.model));
    text.model.emplace(std::move(model));
    if (text.model->chat_template && options.template_path.empty()) return text;
  } else {
    LOCI_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.model));
    LOCI_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::from_gguf(file));
    text.vocabulary.emplace(std::move(tokenizer));
    if (file.has("tokenizer.chat_template")) {
      LOCI_ASSIGN_OR_RETURN(source, file.get_string("tokenizer.chat_template"));
    }
  }
  if (!options.template_path.empty()) {
    std::ifstream file(options.template_path);
    source.assign(std::istreambuf_iterator<char>(file), {});
  }
  LOCI_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::parse(source, text.tokenizer()));
  text.own_template.emplace(std::move(chat));
  return text;
}

struct Sampling {
  std::unique_ptr<Backend> backend;
  SystemClock clock;
  std::unique_ptr<Engine> engine;
};

Status start(const Model& model, const Options& options, Sampling& sampling) {
  LOCI_ASSIGN_OR_RETURN(sampling.backend, make_cpu_backend(model.spec, {.threads = options.threads}));
  constexpr std::uint32_t kBlocks = 16 * kContextTokens / kBlockTokens;
  EngineOptions engine;
  const std::vector<LayerGroup>& groups = sampling.backend->info().groups;
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    LOCI_RETURN_IF_ERROR(sampling.backend->allocate_blocks(group, kBlocks));
    engine.core.groups.push_back({.window = groups[group].window, .block_count = kBlocks});
  }
  engine.core.layers = model.spec.layer_count();
  engine.core.context_tokens = kContextTokens;
  engine.core.max_running = 16;
  engine.core.max_queued = 4096;
  engine.core.model_fingerprint = model.spec.fingerprint;
  LOCI_ASSIGN_OR_RETURN(sampling.engine, Engine::start(std::move(engine), *sampling.backend, sampling.clock));
  return {};
}

struct Way {
  TokenHistory* history = nullptr;  // null: tokenised again
  bool ends_alone = false;          // replies are known by their ends alone
  Tally tally;
  std::vector<Tokens> known;  // by conversation: the turn before, with its reply
};

class Run {
 public:
  Run(const Options& options, const Text& text, Engine* engine, std::vector<Json> conversations)
      : options_(options), text_(text), engine_(engine), conversations_(std::move(conversations)) {
    ways_ = {Way{}, Way{.history = &ends_, .ends_alone = true}, Way{.history = &history_}};
    for (Way& way : ways_) way.known.resize(conversations_.size());
    shown_.resize(conversations_.size(), Json::array());
  }

  Status run() {
    for (std::size_t turn = 0; turn < options_.turns; ++turn) LOCI_RETURN_IF_ERROR(run_turn(turn));
    return {};
  }

  Json report() const {
    return {{"conversations", conversations_.size()},
            {"reply_tokens", reply_tokens_},
            {"retokenised", ways_[0].tally.json()},
            {"ends", ways_[1].tally.json()},
            {"history", ways_[2].tally.json()}};
  }

 private:
  struct Turn {
    std::size_t conversation;
    std::array<Tokens, 3> prompts;  // by way
    std::string reply_text;         // the conversation's own
    std::unique_ptr<Waiter> waiter;
  };

  static std::string tenant(std::size_t conversation) { return std::to_string(conversation); }

  Result<std::optional<Turn>> begin(std::size_t conversation, std::size_t turn) {
    const Json& messages = conversations_[conversation]["messages"];
    if (2 * turn + 1 >= messages.size() || messages[2 * turn]["role"] != "user") return std::optional<Turn>();
    shown_[conversation].push_back(messages[2 * turn]);
    const std::string context =
        Json{{"messages", shown_[conversation]}, {"add_generation_prompt", true}}.dump();
    Turn out{.conversation = conversation,
             .prompts = {},
             .reply_text = messages[2 * turn + 1]["content"],
             .waiter = {}};
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      Way& way = ways_[i];
      TokenHistory none;
      TokenHistory& history = way.history == nullptr ? none : *way.history;
      LOCI_ASSIGN_OR_RETURN(HistoryTokens tokens,
                            history.encode(text_.tokenizer(), text_.chat(), tenant(conversation), context));
      out.prompts[i] = std::move(tokens.tokens);
      if (turn > 0) way.tally.add(out.prompts[i], way.known[conversation]);
    }
    return std::optional<Turn>(std::move(out));
  }

  void submit(Turn& turn) {
    turn.waiter = std::make_unique<Waiter>();
    GenerationRequest request;
    request.prompt = turn.prompts[2];
    request.sampling.temperature = options_.temperature;
    request.sampling.seed = ++seed_;
    request.max_new_tokens = options_.reply_tokens;
    request.stop_tokens = text_.tokenizer().end_tokens();
    engine_->submit(std::move(request), turn.waiter->listener());
  }

  Result<Tokens> reply_of(Turn& turn) {
    if (turn.waiter) return turn.waiter->wait();
    // Where text begins with a blank, a model that was taught such text begins its reply with one.
    const bool adds_space = text_.tokenizer().adds_space(TextPlace::kInner);
    const TextPlace place = adds_space ? TextPlace::kInner : TextPlace::kContinued;
    LOCI_ASSIGN_OR_RETURN(Tokens reply, text_.tokenizer().encode_piece(turn.reply_text, place));
    return reply;
  }

  Status run_turn(std::size_t number) {
    std::vector<Turn> turns;
    for (std::size_t i = 0; i < conversations_.size(); ++i) {
      LOCI_ASSIGN_OR_RETURN(std::optional<Turn> turn, begin(i, number));
      if (!turn) continue;
      if (turn->prompts[2].size() + options_.reply_tokens > kContextTokens) continue;
      turns.push_back(std::move(*turn));
      if (engine_ != nullptr) submit(turns.back());
    }
    for (Turn& turn : turns) {
      LOCI_ASSIGN_OR_RETURN(const Tokens reply, reply_of(turn));
      finish(turn, reply);
    }
    return {};
  }

  void finish(const Turn& turn, const Tokens& reply) {
    StreamDecoder decoder(text_.tokenizer());
    std::string shown;
    for (const TokenId token : reply) shown += decoder.push(token);
    shown += decoder.finish();
    shown_[turn.conversation].push_back({{"role", "assistant"}, {"content", shown}});
    reply_tokens_ += reply.size();
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      Way& way = ways_[i];
      Tokens& known = way.known[turn.conversation];
      known = turn.prompts[i];
      known.insert(known.end(), reply.begin(), reply.end());
      if (way.ends_alone) {
        way.history->remember(tenant(turn.conversation), turn.prompts[i], {});
        way.history->remember(tenant(turn.conversation), known, {});
      } else if (way.history != nullptr) {
        way.history->remember(tenant(turn.conversation), turn.prompts[i], reply);
      }
    }
  }

  const Options& options_;
  const Text& text_;
  Engine* engine_;
  std::vector<Json> conversations_;
  std::vector<Json> shown_;  // the messages so far, as a client has them
  TokenHistory history_;
  TokenHistory ends_;
  std::array<Way, 3> ways_;
  std::uint64_t reply_tokens_ = 0;
  std::uint64_t seed_ = 0;
};

Status measure(const Options& options) {
  std::vector<Json> conversations;
  for (std::string line; std::getline(std::cin, line);) conversations.push_back(Json::parse(line));
  LOCI_ASSIGN_OR_RETURN(const Text text, open_text(options));
  Sampling sampling;
  if (text.model) LOCI_RETURN_IF_ERROR(start(*text.model, options, sampling));
  Run run(options, text, sampling.engine.get(), std::move(conversations));
  LOCI_RETURN_IF_ERROR(run.run());
  fmt::print("{}\n", run.report().dump());
  return {};
}

}  // namespace
}  // namespace loci

int main(int argc, char** argv) {
  loci::Options options;
  CLI::App app("What remembered tokens save against tokenising again");
  app.add_option("MODEL", options.model)->required();
  app.add_option("--replies", options.replies)->check(CLI::IsMember({"sampled", "data"}));
  app.add_option("--temperature", options.temperature);
  app.add_option("--reply-tokens", options.reply_tokens);
  app.add_option("--turns", options.turns);
  app.add_option("--threads", options.threads);
  app.add_option("--template", options.template_path)->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  const loci::Status status = loci::measure(options);
  if (!status.ok()) fmt::print(stderr, "token_history_benchmark: {}\n", status.to_string());
  return status.ok() ? 0 : 1;
}
