// SPDX-License-Identifier: Apache-2.0
// A model that is ready to be served: its specification, tokenizer and chat template, and the file that they
// point into.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "loci/base/status.h"
#include "loci/model/chat_template.h"
#include "loci/model/grammar.h"
#include "loci/model/model_source.h"
#include "loci/model/model_spec.h"
#include "loci/model/open_source.h"
#include "loci/model/sampling_defaults.h"
#include "loci/model/tokenizer.h"

namespace loci {

// Immutable after loading; thread-safe.
struct Model {
  std::string path;
  std::string id;  // what /v1/models lists: the file's name without its ending, or the directory's
  std::unique_ptr<ModelSource> source;
  std::vector<std::string> notes;  // how tensors were encoded while they were loaded, for people
  ModelSpec spec;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;  // absent: chat is refused, completions work
  SamplingDefaults sampling;                  // the makers' values for drawing tokens
  std::unique_ptr<GrammarCompiler> grammars;  // of the tokenizer's vocabulary
};

// `path` is as for open_model_source(). Errors: those of open_model_source(), and kInvalidArgument for an
// unknown family (with the list of known ones), a missing tensor, or a tensor of another shape than its
// family has.
Result<Model> load_model(const std::string& path, const LoadOptions& options = {});

// Only the specification of an open source, its fingerprint included.
Result<ModelSpec> read_model_spec(const ModelSource& source);

}  // namespace loci
