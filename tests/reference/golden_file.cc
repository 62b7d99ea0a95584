// SPDX-License-Identifier: Apache-2.0
#include "reference/golden_file.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace loci {
namespace {

using Json = nlohmann::json;

// The file's lines, each parsed; what `read` throws at a missing or wrong field becomes an error.
template <class Reader>
Status read_lines(const std::string& path, Reader read) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{}: cannot open the golden file", path));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    try {
      read(Json::parse(line), number);
    } catch (const Json::exception& error) {
      return data_loss(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  return {};
}

std::vector<TokenId> read_tokens(const Json& json) {
  std::vector<TokenId> tokens;
  for (const Json& token : json) tokens.emplace_back(token.get<std::uint32_t>());
  return tokens;
}

std::vector<GoldenSequence> read_sequences(const Json& json) {
  std::vector<GoldenSequence> sequences;
  for (const Json& sequence : json) {
    GoldenSequence& target = sequences.emplace_back();
    target.tokens = read_tokens(sequence.at("tokens"));
    for (const Json& row : sequence.at("rows")) {
      target.rows.push_back(
          {row.at("position").get<std::uint32_t>(), row.at("logits").get<std::vector<double>>()});
    }
  }
  return sequences;
}

GoldenChat read_chat(const Json& json) {
  GoldenChat chat{json.at("text").get<std::string>(), read_tokens(json.at("prompt")), {}};
  for (const Json& step : json.at("steps")) {
    chat.steps.push_back({read_tokens(step.at("ids")), step.at("logprobs").get<std::vector<double>>()});
  }
  return chat;
}

}  // namespace

std::string golden_path(const std::string& name) {
  const char* source = std::getenv("LOCI_SOURCE_DIR");
  return fmt::format("{}/tests/golden/{}", source == nullptr ? "." : source, name);
}

const std::vector<std::string>& golden_tiny_names() {
  static const std::vector<std::string> names = {"f32", "f16-llama3", "q8_0", "q4_1", "mixed"};
  return names;
}

Result<GoldenTinyModel> read_golden_tiny(const std::string& name) {
  GoldenTinyModel model;
  LOCI_RETURN_IF_ERROR(read_lines(golden_path("tiny/" + name + ".json"), [&](const Json& json, int) {
    model.model_path = golden_path("tiny/" + json.at("model").get<std::string>());
    model.sequences = read_sequences(json.at("sequences"));
  }));
  return model;
}

const std::vector<std::string>& golden_family_names() {
  static const std::vector<std::string> names = {
      "llama3",     "llama-yarn", "mistral",   "smollm3",   "qwen2",         "qwen3",
      "qwen3moe",   "gemma2",     "gemma3",    "phi3-long", "phi3-short",    "opt",
      "falcon-old", "falcon-new", "starcoder", "gpt-oss",   "gpt-oss-mxfp4", "gemma3-vision"};
  return names;
}

Result<GoldenFamily> read_golden_family(const std::string& name) {
  GoldenFamily family{.directory = golden_path("families/" + name),
                      .gguf_path = golden_path("families/" + name + "/model.gguf")};
  LOCI_RETURN_IF_ERROR(read_lines(family.directory + "/logits.json", [&](const Json& json, int) {
    family.sequences = read_sequences(json.at("sequences"));
  }));
  return family;
}

Result<GoldenChats> read_golden_chats(const std::string& name) {
  GoldenChats golden;
  LOCI_RETURN_IF_ERROR(read_lines(golden_path(name), [&](const Json& json, int number) {
    if (number == 1) {
      golden.model_sha256 = json.at("model_sha256").get<std::string>();
    } else {
      golden.chats.push_back(read_chat(json));
    }
  }));
  return golden;
}

Result<GoldenPerplexity> read_golden_perplexity() {
  GoldenPerplexity golden;
  LOCI_RETURN_IF_ERROR(
      read_lines(golden_path("llama_cpp/perplexity.jsonl"), [&](const Json& json, int number) {
        if (number == 1) {
          golden.model_sha256 = json.at("model_sha256").get<std::string>();
        } else {
          golden.windows.push_back({read_tokens(json.at("tokens")), json.at("nll").get<double>()});
        }
      }));
  return golden;
}

}  // namespace loci
