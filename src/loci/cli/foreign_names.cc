// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/foreign_names.h"

#include <algorithm>
#include <array>

namespace loci {
namespace {

struct Foreign {
  std::string_view name;
  std::string_view here;
};

constexpr auto kForeign = std::to_array<Foreign>({
    {"run", "loci serve MODEL, and loci chat in another terminal"},
    {"ps", "curl http://127.0.0.1:8080/health"},
    {"show", "loci inspect MODEL"},
    {"help", "loci --help"},
    {"version", "loci --version"},
    {"-m", "loci serve MODEL"},
    {"-hf", "loci serve OWNER/NAME-GGUF:Q4_K_M"},
    {"-hfr", "loci serve OWNER/NAME-GGUF:Q4_K_M"},
    {"--hf-repo", "loci serve OWNER/NAME-GGUF:Q4_K_M"},
    {"-c", "--context"},
    {"--ctx-size", "--context"},
    {"--max-model-len", "--context"},
    {"--n-gpu-layers", "--device (all layers are there)"},
    {"-ngl", "--device (all layers are there)"},
    {"--gpu-layers", "--device (all layers are there)"},
    {"--gpu-memory-utilization", "--device-memory"},
    {"-np", "--max-running"},
    {"--parallel", "--max-running"},
    {"--max-num-seqs", "--max-running"},
    {"--served-model-name", "--alias"},
    {"-t", "--threads"},
    {"--api-key", "loci keys add NAME, then --api-keys FILE"},
    {"--cache-type-k", "--state-type, of keys and values"},
    {"--cache-type-v", "--state-type, of keys and values"},
    {"-ctk", "--state-type, of keys and values"},
    {"-ctv", "--state-type, of keys and values"},
    {"--kv-cache-dtype", "--state-type"},
    {"--slot-save-path", "--disk"},
    {"--cache-ram", "--host-memory"},
    {"--otlp-traces-endpoint", "--traces"},
    {"--ssl-key-file", "--tls-key"},
    {"--ssl-cert-file", "--tls-cert"},
    {"--ssl-keyfile", "--tls-key"},
    {"--ssl-certfile", "--tls-cert"},
});

}  // namespace

std::string_view said_here(std::string_view name) {
  const auto at = std::ranges::find(kForeign, name, &Foreign::name);
  return at == kForeign.end() ? std::string_view() : at->here;
}

}  // namespace loci
