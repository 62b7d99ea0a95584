// SPDX-License-Identifier: Apache-2.0
// What commands and options of llama.cpp, Ollama and vLLM are called here, for whoever types those.
#pragma once

#include <string_view>

namespace loci {

// "run" → what to type instead; empty: no such name is known. `name`: a command, or an option with its
// dashes.
std::string_view said_here(std::string_view name);

}  // namespace loci
