// SPDX-License-Identifier: Apache-2.0
#include "loci/server/hidden_choice.h"

#include <fmt/format.h>

#include "loci/compute/hidden_form.h"

namespace loci {

Result<HiddenChoice> choose_hidden(const HiddenRequest& request, const BackendInfo& info,
                                   const CostCurves& curves) {
  if (request.wanted == "off") return HiddenChoice{.reason = "none"};
  const Result<HiddenForm> form = hidden_form(info);
  Status refused = form.status();
  if (refused.ok() && request.host_bytes > 0)
    refused = invalid_argument(
        "expected no tier of host memory beside hidden states, found one: set the option host_memory to 0");
  if (refused.ok() && request.save != "through")
    refused = invalid_argument(fmt::format(
        "expected the option save to be through, as hidden states are saved while blocks fill; found {}",
        request.save));
  if (!refused.ok() && request.wanted == "on") return Status(refused.code(), refused.message(), "hidden");
  if (!refused.ok()) return HiddenChoice{.reason = "none: " + refused.message()};
  HiddenChoice choice{.share = {.percent = 100}, .slice_bytes = form->slice_bytes()};
  choice.follows = request.wanted == "auto";
  if (choice.follows)
    choice.share = hidden_share(CostModel(curves), info.block_bytes, form->slice_bytes() * info.layers);
  const std::uint32_t from = choice.share.from_block * kBlockTokens;
  const bool is_measured = curves.projection > 0;
  choice.reason =
      choice.share.percent > 0
          ? fmt::format("{} % of the blocks{}, {:.2f} of the bytes of keys and values{}",
                        choice.share.percent,
                        from > 0 ? fmt::format(" behind the first {} tokens", from) : "",
                        static_cast<double>(form->hidden_bytes) / static_cast<double>(form->kv_bytes),
                        is_measured ? "" : "; nobody measured projecting, so plans take it for free")
      : is_measured ? "none so far: they would not come sooner, as measured"
                    : "none so far: nobody measured projecting (`loci profile MODEL` does)";
  return choice;
}

}  // namespace loci
