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
         "--device", choose, "what computes; auto: the first GPU that takes the model, else the CPU")
      ->type_name("auto|cpu|cuda:N")
      ->default_str(device_choice_name(options.device));
  const auto choose_state = [&options](const std::string& text) {
    const Result<StateType> type = parse_state_type(text);
    if (!type.ok()) throw CLI::ValidationError("--state-type", type.status().message());
    options.state_type = *type;
  };
  app.add_option_function<std::string>(
         "--state-type", choose_state,
         "what keys and values are rounded to (default: f16 on a CPU, the products' type on a GPU)")
      ->type_name("f16|bf16|q8");
  app.add_flag("--deterministic", options.cuda.deterministic,
               "on a GPU: the same bits in any batch, at some speed; on a CPU they always are");
}

}  // namespace loci
