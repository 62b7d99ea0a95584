// SPDX-License-Identifier: Apache-2.0
// Where the default model's file is.
#pragma once

#include <string>

namespace loci {

inline constexpr const char* kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
// The text for messages that it is missing.
inline constexpr const char* kDefaultModelHint =
    "The default model is needed here: `make run` fetches it, or set LOCI_DEFAULT_MODEL to the path of its "
    "file.";

// LOCI_DEFAULT_MODEL if set, else $XDG_CACHE_HOME/loci/models/, else ~/.cache/loci/models/. The file need not
// exist. Reads the environment: call it before threads that change it are started.
std::string default_model_path();

}  // namespace loci
