// SPDX-License-Identifier: Apache-2.0
// A sequence of tokens as bytes: one byte that says how many bytes a token takes (1 to 4, what the largest
// needs), then the tokens, little-endian.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

std::string encode_tokens(std::span<const TokenId> tokens);
// Errors: kDataLoss.
Result<std::vector<TokenId>> decode_tokens(std::string_view bytes);

}  // namespace loci
