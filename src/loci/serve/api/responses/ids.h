// SPDX-License-Identifier: Apache-2.0
// Identifiers of responses, conversations and items.
#pragma once

#include <string>
#include <string_view>

namespace loci {

// `prefix` and 128 random bits of the system's generator, hexadecimal: "resp_0123...". Thread-safe.
std::string random_id(std::string_view prefix);

// The id of the `index`-th item of a response's output: the same whoever asks, so that a stream, the stored
// turn and the whole reply name it alike.
std::string output_item_id(std::string_view prefix, std::string_view response_id, std::size_t index);

// The response that an item of that id is an output of; "" where the id was not made by output_item_id().
std::string response_of_item(std::string_view item_id);

}  // namespace loci
