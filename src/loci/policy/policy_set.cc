// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/policy_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/policy/restore_plan.h"

namespace loci {
namespace {

Status one_of(std::span<const std::string_view> names, const std::string& name, const char* member) {
  if (std::ranges::find(names, name) != names.end()) return {};
  return invalid_argument(fmt::format("expected one of {}, found '{}'", listed(names), name), member);
}

Status at_most(std::uint32_t most, std::uint32_t value, const char* member) {
  if (value <= most) return {};
  return invalid_argument(fmt::format("expected at most {}, found {}", most, value), member);
}

}  // namespace

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

Status check_policies(const PolicySet& policies) {
  LOCI_RETURN_IF_ERROR(one_of(kEvictionPolicies, policies.eviction, "eviction"));
  LOCI_RETURN_IF_ERROR(one_of(kAdmissionOrders, policies.admission, "admission"));
  LOCI_RETURN_IF_ERROR(one_of(kRestoreRules, policies.restore, "restore"));
  LOCI_RETURN_IF_ERROR(one_of(kSaveRules, policies.save, "save"));
  LOCI_RETURN_IF_ERROR(one_of(kPreloadRules, policies.preload, "preload"));
  LOCI_RETURN_IF_ERROR(one_of(kBatchRules, policies.batch, "batch"));
  LOCI_RETURN_IF_ERROR(at_most(100, policies.swap_out_percent, "swap_out_percent"));
  LOCI_RETURN_IF_ERROR(at_most(90, policies.decode_reserve_percent, "decode_reserve_percent"));
  LOCI_RETURN_IF_ERROR(at_most(100, policies.prefetch_percent, "prefetch_percent"));
  LOCI_RETURN_IF_ERROR(at_most(kPreloadRetriesMax, policies.preload_retries, "preload_retries"));
  if (policies.admission_looks == 0)
    return invalid_argument("expected at least 1, found 0", "admission_looks");
  const std::uint32_t chunk = policies.swap_chunk_tokens;
  if (chunk == 0 || chunk % kBlockTokens != 0 || chunk > kSwapChunkTokensMax) {
    return invalid_argument(
        fmt::format("expected a multiple of {} up to {}, found {}", kBlockTokens, kSwapChunkTokensMax, chunk),
        "swap_chunk_tokens");
  }
  return {};
}

}  // namespace loci
