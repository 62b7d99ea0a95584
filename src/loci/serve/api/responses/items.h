// SPDX-License-Identifier: Apache-2.0
// Items of the Responses API, of which a conversation consists: messages, calls of functions, their results,
// reasoning. Read from a request, kept by the store, and turned into the messages of a chat template.
// Thread-safe; no networking here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/store/conversation_store.h"
#include "loci/serve/wire/json.h"

namespace loci {

// One object as the API shows it, e.g. {"id", "type": "message", "status", "role", "content": [...]}.
using Item = Json;

inline constexpr std::size_t kItemIdBytesMax = 256;

// Items as a client writes them, in the form in which the API shows them: a message without a type or with a
// string for its content is written out, and an item without an id has the id "" until assign_ids(). A
// reference ({"type": "item_reference", "id"}) stays a reference. Errors: kInvalidArgument naming field,
// value and what is taken; kinds that are not served are refused by name.
Result<std::vector<Item>> parse_items(const Json& items, std::string_view field);
// A request's input: a string is one message of the user.
Result<std::vector<Item>> parse_input(const Json& input, std::string_view field);

// Gives ids to the items that have none.
void assign_ids(std::vector<Item>& items);

std::vector<StoredItem> to_stored(const std::vector<Item>& items);
// Errors: kDataLoss where a stored item is no JSON object.
Result<std::vector<Item>> from_stored(const std::vector<StoredItem>& items);

// Puts the items that `items` refers to in place of the references; they are looked for in `known`. A
// reference is shorter than its item, and may be repeated: together they bring along at most `bytes_max`, as
// the store counts items. Errors, with `items` as they were: kNotFound naming the reference;
// kResourceExhausted naming the first one that brings more.
Status resolve_references(std::vector<Item>& items, const std::vector<Item>& known, std::uint64_t bytes_max,
                          std::string_view field);

// Every function_call_output of `items` belongs to a function_call before it, there or in `known`.
// Errors: kInvalidArgument naming the call_id.
Status check_call_outputs(const std::vector<Item>& items, const std::vector<Item>& known,
                          std::string_view field);

// The items as messages of a conversation. What belongs to one turn of the assistant (reasoning, text, calls)
// becomes one message; a call that was cut off is left out.
std::vector<Message> to_messages(const std::vector<Item>& items);

}  // namespace loci
