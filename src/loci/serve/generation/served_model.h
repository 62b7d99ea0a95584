// SPDX-License-Identifier: Apache-2.0
// The model and engine that a server answers for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/engine/run/engine.h"
#include "loci/model/model.h"
#include "loci/serve/conversation/template_support.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/overflow.h"

namespace loci {

// Model and engine must outlive the server that uses them.
struct ServedModel {
  const Model* model = nullptr;
  Engine* engine = nullptr;
  BackendInfo backend;
  std::uint32_t context_tokens = 0;  // the most that prompt and reply may hold together
  std::int64_t loaded_at = 0;        // seconds since 1970
  std::string fingerprint;           // of the model, for system_fingerprint
  OverflowRule overflow;             // where a request does not say
  ChatSyntax chat;                   // how the model writes calls and reasoning: find_chat_syntax(model)
  RequestDefaults defaults;          // where a request does not say
  std::vector<std::string> aliases;  // other names under which requests may ask for it
  bool any_name = false;             // whatever model a request names is served by this one
};

// What the model's chat template and vocabulary say; a default one where it has no template. Some
// milliseconds.
ChatSyntax find_chat_syntax(const Model& model);

}  // namespace loci
