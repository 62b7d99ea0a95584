// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/device_flags.h"

#include <string>

namespace loci {

void add_device_flags(CLI::App& app, BackendOptions& options) {
  const auto choose = [&options](const std::string& text) {
    const Result<DeviceChoice> choice = parse_device_choice(text);
    if (!choice.ok()) throw CLI::ValidationError("--device", choice.status().message());
    options.device = *choice;
  };
  app.add_option_function<std::string>(
         "--device", choose,
         "what computes: a CPU, a GPU, or the first GPU that can take the model and otherwise the CPU (auto)")
      ->type_name("auto|cpu|cuda:N")
      ->default_str(device_choice_name(options.device));
  const auto choose_state = [&options](const std::string& text) {
    const Result<StateType> type = parse_state_type(text);
    if (!type.ok()) throw CLI::ValidationError("--state-type", type.status().message());
    options.state_type = *type;
  };
  app.add_option_function<std::string>("--state-type", choose_state,
                                       "the type in which keys and values are kept (default: f16 on a CPU, "
                                       "on a GPU the type of the model's products)")
      ->type_name("f16|bf16|q8");
  app.add_flag("--deterministic", options.cuda.deterministic,
               "on a GPU: the same bits in any batch, at some cost in speed; a CPU always gives them");
}

}  // namespace loci
