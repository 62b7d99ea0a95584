// SPDX-License-Identifier: Apache-2.0
#include "loci/model/default_model.h"

#include <cstdlib>

namespace loci {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

std::string default_model_path() {
  if (std::string path = environment("LOCI_DEFAULT_MODEL"); !path.empty()) return path;
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = environment("HOME") + "/.cache";
  return cache + "/loci/models/" + kDefaultModelFile;
}

}  // namespace loci
