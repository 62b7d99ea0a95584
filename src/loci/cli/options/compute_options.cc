// SPDX-License-Identifier: Apache-2.0
// The model, and what computes it.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"

namespace loci {
namespace {

Option instruction_set_option() {
  static constexpr auto kSets = {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512,
                                 InstructionSet::kAmx, InstructionSet::kNeon};
  std::vector<std::string> names;
  for (const InstructionSet set : kSets) names.emplace_back(instruction_set_name(set));
  const auto parse = [](const std::string& name) -> Result<InstructionSet> {
    for (const InstructionSet set : kSets) {
      if (instruction_set_name(set) == name) return set;
    }
    return internal_error("an instruction set has no name");  // choice_option() has checked it
  };
  const auto write = [](InstructionSet set) { return std::string(instruction_set_name(set)); };
  Option out = choice_option(
      {"compute", "--cpu", "the instruction set of the CPU's kernels; all of them give the same bits"}, "SET",
      names, [](auto& flags) -> auto& { return flags.instruction_set; }, parse, write);
  out.default_note = "the best there is";
  return out;
}

Option device_option() {
  const auto parse = [](const std::string& text) { return parse_device_choice(text); };
  return option_detail::row(
      {"compute", "--device",
       "what computes: the CPU (cpu), a GPU (cuda:0 is the first), or the first GPU that can serve the model "
       "and otherwise the CPU (auto)"},
      OptionKind::kText, "auto|cpu|cuda:N", [](auto& flags) -> auto& { return flags.device; }, parse,
      device_choice_name);
}

Option quantize_option() {
  const auto parse = [](const std::string& text) { return parse_quantize(text); };
  const auto write = [](TensorType type) {
    for (const char* name : {"q8_0", "q4_0", "q4_k"}) {
      const Result<TensorType> named = parse_quantize(name);
      if (named.ok() && *named == type) return std::string(name);
    }
    return std::string();
  };
  Option out = choice_option(
      {"compute", "--quantize",
       "quantise the matrices of a Hugging Face directory to this type while it loads; GGUF files are served "
       "as they are"},
      "TYPE", {"q8_0", "q4_0", "q4_k"}, [](auto& flags) -> auto& { return flags.load.quantize; }, parse,
      write);
  out.default_note = "as published";
  return out;
}

}  // namespace

std::vector<Option> compute_options() {
  const std::string group = "compute";
  std::vector<Option> out;
  out.push_back(
      text_option({group, "--model",
                   "the model to serve: a GGUF file (the first part of a split one), a Hugging Face "
                   "directory, OWNER/NAME[@REVISION][:FILE] of a registry, or `default` (a small model to "
                   "try the server with); also given without the flag: `loci serve MODEL`"},
                  "MODEL", [](auto& flags) -> auto& { return flags.model; }));
  out.push_back(switch_option({group, "--pull",
                               "fetch a registry's model that is not on this machine yet, as `loci pull` "
                               "does; off refuses to start without it"},
                              [](auto& flags) -> auto& { return flags.pull; }));
  out.push_back(list_option({group, "--alias", "other names by which requests may ask for the model"}, "NAME",
                            [](auto& flags) -> auto& { return flags.aliases; }));
  out.push_back(switch_option({group, "--any-model",
                               "answer requests whatever model they name; off refuses any name but the "
                               "model's own, its aliases and `default` with a 404"},
                              [](auto& flags) -> auto& { return flags.any_model; }));
  out.push_back(quantize_option());
  out.push_back(device_option());
  out.push_back(switch_option({group, "--deterministic",
                               "on a GPU: give a reply the same bits whatever else is in the batch, at some "
                               "cost in speed; a CPU always does"},
                              [](auto& flags) -> auto& { return flags.deterministic; }));
  out.push_back(duration_option(
      {group, "--stall-limit",
       "how long the device may take for one pass; after that the server says by /health and /live, until "
       "the pass ends, that its device stands still, and leaves its cluster; 0 sets no limit"},
      [](auto& flags) -> auto& { return flags.stall_limit; }));
  out.back().default_note = "5m on a GPU, none on a CPU";
  out.push_back(integer_option(
      {group, "--threads", "the number of compute threads; 0 takes one for each physical core"},
      [](auto& flags) -> auto& { return flags.threads; }, 0, 1024));
  out.push_back(instruction_set_option());
  out.push_back(bytes_option({group, "--device-memory",
                              "the memory for conversations' state on the device (the GPU, or the machine "
                              "itself if its CPU computes), for example 4GiB"},
                             [](auto& flags) -> auto& { return flags.device_memory; }));
  out.back().default_note = "half of what is free; on a GPU 90 % of what the weights leave";
  out.push_back(switch_option({group, "--yield-memory",
                               "on a CPU: give memory of state back to the system while other programs lack "
                               "memory, and take it again afterwards"},
                              [](auto& flags) -> auto& { return flags.yield_memory; }));
  out.push_back(integer_option(
      {group, "--context",
       "the most tokens that prompt and reply may have together; 0 takes the model's limit"},
      [](auto& flags) -> auto& { return flags.context_tokens; }, 0, 1u << 30));
  out.push_back(integer_option(
      {group, "--workers", "the number of threads that parse and tokenise requests"},
      [](auto& flags) -> auto& { return flags.workers; }, 1, 64));
  return out;
}

}  // namespace loci
