// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/stored_text.h"

#include <fmt/format.h>

#include "loci/base/printable.h"
#include "loci/base/units.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// The bytes of the UTF-8 character at the front of `text` (the Unicode standard, table 3-7), 0 if it is none.
std::size_t utf8_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto in = [&](std::size_t i, unsigned first, unsigned last) {
    return i < text.size() && byte(i) >= first && byte(i) <= last;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return in(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool second = in(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
    return second && in(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool second = in(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
    return second && in(2, 0x80, 0xbf) && in(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

// Where text stops being what can be stored; its size where it never does.
std::size_t storable_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && text[at] != '\0') {
    const std::size_t length = utf8_character(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace

Status check_stored_text(std::string_view text, std::size_t bytes_max, std::string_view field) {
  if (text.size() > bytes_max) {
    return invalid_argument(fmt::format("expected at most {} bytes, found {}", format_count(bytes_max),
                                        format_count(text.size())),
                            std::string(field));
  }
  const std::size_t good = storable_prefix(text);
  if (good < text.size()) {
    return invalid_argument(fmt::format("expected UTF-8 without NUL, found the byte {:#04x} at {}",
                                        static_cast<unsigned char>(text[good]), good),
                            std::string(field));
  }
  return {};
}

Status check_stored_id(std::string_view id, std::string_view field) {
  if (id.empty()) {
    return invalid_argument(fmt::format("expected 1 to {} bytes, found none", kStoredIdBytesMax),
                            std::string(field));
  }
  return check_stored_text(id, kStoredIdBytesMax, field);
}

Status check_stored_items(const std::vector<StoredItem>& items, std::string_view field) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    LOCI_RETURN_IF_ERROR(check_stored_id(items[i].id, fmt::format("{}[{}].id", field, i)));
    LOCI_RETURN_IF_ERROR(
        check_stored_text(items[i].json, kStoredJsonBytesMax, fmt::format("{}[{}]", field, i)));
  }
  return {};
}

Status check_stored_turn(std::string_view tenant, const StoredTurn& turn) {
  const StoredResponse& response = turn.response;
  LOCI_RETURN_IF_ERROR(check_stored_id(tenant, "tenant"));
  LOCI_RETURN_IF_ERROR(check_stored_id(response.id, "response.id"));
  LOCI_RETURN_IF_ERROR(check_stored_text(response.conversation, kStoredIdBytesMax, "response.conversation"));
  LOCI_RETURN_IF_ERROR(check_stored_text(response.previous, kStoredIdBytesMax, "response.previous"));
  LOCI_RETURN_IF_ERROR(check_stored_id(response.status, "response.status"));
  LOCI_RETURN_IF_ERROR(check_stored_text(response.tokenizer, kStoredIdBytesMax, "response.tokenizer"));
  LOCI_RETURN_IF_ERROR(check_stored_text(response.json, kStoredJsonBytesMax, "response"));
  if (response.tokens.size() > kStoredTokensMax) {
    return invalid_argument(fmt::format("expected at most {} tokens, found {}",
                                        format_count(kStoredTokensMax), format_count(response.tokens.size())),
                            "response.tokens");
  }
  LOCI_RETURN_IF_ERROR(check_stored_items(turn.input, "input"));
  return check_stored_items(turn.output, "output");
}

bool is_stored_id(std::string_view id) {
  return !id.empty() && id.size() <= kStoredIdBytesMax && storable_prefix(id) == id.size();
}

std::string quoted_id(std::string_view id) {
  constexpr std::size_t kShown = 100;
  return id.size() <= kShown ? fmt::format("'{}'", visible_ascii(id))
                             : fmt::format("'{}...'", visible_ascii(id.substr(0, kShown)));
}

}  // namespace loci
