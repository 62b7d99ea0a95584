// SPDX-License-Identifier: Apache-2.0
// A prompt of far more tokens than the context holds is refused by its beginning: tokenising takes a hundred
// times the text's bytes, and a second for each megabyte or two.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "loci/base/status.h"
#include "loci/model/tokenizer.h"

namespace loci {

// Absent: `texts`, one after the other, may have at most `most` tokens, as far as their sizes and beginnings
// tell. Else tokens that their beginning has, more than twice as many: what the texts are cut into changes a
// few tokens at each cut, and never half of them. Takes time by `most`, unless tokens are much longer than
// usual. Thread-safe. Errors: those of Tokenizer::encode().
Result<std::optional<std::size_t>> tokens_beyond(const Tokenizer& tokenizer,
                                                 std::span<const std::string_view> texts, ControlText control,
                                                 std::size_t most);

}  // namespace loci
