// SPDX-License-Identifier: Apache-2.0
// What the store accepts as text, and its limits. PostgreSQL takes neither NUL nor what is no UTF-8, so
// neither store does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/store/conversation_store.h"

namespace loci {

inline constexpr std::size_t kStoredIdBytesMax = 256;
inline constexpr std::size_t kStoredMetadataBytesMax = 64 << 10;
inline constexpr std::size_t kStoredJsonBytesMax = 64 << 20;  // of an item, and of a response
inline constexpr std::size_t kStoredTokensMax = 64 << 20;

// Errors of all: kInvalidArgument naming `field`, the limit and what was found.
Status check_stored_id(std::string_view id, std::string_view field);
Status check_stored_text(std::string_view text, std::size_t bytes_max, std::string_view field);
Status check_stored_items(const std::vector<StoredItem>& items, std::string_view field);
Status check_stored_turn(std::string_view tenant, const StoredTurn& turn);

// Whether something can be stored under the id at all; a lookup of another one finds nothing.
bool is_stored_id(std::string_view id);

// The id for messages: quoted, one line, not too long.
std::string quoted_id(std::string_view id);

}  // namespace loci
