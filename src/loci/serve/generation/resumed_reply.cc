// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/resumed_reply.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

#include "loci/base/little_endian.h"
#include "loci/base/random.h"
#include "loci/serve/generation/prefill.h"

namespace loci {
namespace {

constexpr std::string_view kMark = ": loci-";
constexpr std::string_view kPrompts = ": loci-prompts ";
constexpr std::string_view kToken = ": loci-token ";
constexpr std::string_view kPrefillEnded = ": loci-prefill ";
constexpr std::string_view kStopped = ": loci-stopped\n";
constexpr std::string_view kDrained = ": loci-stopped\n: drained\n";  // earlier fronts read its first line

// Takes a decimal number and the character behind it.
template <class Number>
bool take_number(std::string_view& text, char behind, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end == text.data() + text.size() || *end != behind) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

std::uint64_t ResumedReply::drawn(std::string_view purpose, std::uint64_t index) const {
  const std::uint64_t seed = XXH3_64bits(name.data(), name.size());
  return random_word(XXH3_64bits_withSeed(purpose.data(), purpose.size(), seed), index);
}

std::uint64_t prompts_name(const std::vector<std::vector<TokenId>>& prompts) {
  std::uint64_t name = prompts.size();
  for (const std::vector<TokenId>& prompt : prompts)
    name = XXH3_64bits_withSeed(prompt.data(), prompt.size() * sizeof(TokenId), name + prompt.size());
  return name;
}

std::string mark_event(const ReplyMark& mark) {
  switch (mark.kind) {
    case ReplyMark::Kind::kPrompts: return fmt::format("{}{}\n\n", kPrompts, mark.number);
    case ReplyMark::Kind::kToken: return fmt::format("{}{} {}\n\n", kToken, mark.choice, mark.number);
    case ReplyMark::Kind::kStopped: return fmt::format("{}\n", kStopped);
    case ReplyMark::Kind::kDrained: return fmt::format("{}\n", kDrained);
    case ReplyMark::Kind::kPrefill:
      return fmt::format("{}{}\n\n", kPrefillEnded, prefill_end_name(static_cast<PrefillEnd>(mark.number)));
  }
  return {};
}

bool is_mark_event(std::string_view event) { return event.starts_with(kMark); }

std::optional<ReplyMark> read_mark_event(std::string_view event) {
  if (event.starts_with(kDrained)) return ReplyMark{.kind = ReplyMark::Kind::kDrained};
  if (event.starts_with(kStopped)) return ReplyMark{.kind = ReplyMark::Kind::kStopped};
  if (event.starts_with(kPrefillEnded)) {
    const std::string_view name = event.substr(kPrefillEnded.size());
    const std::optional<PrefillEnd> end = parse_prefill_end(name.substr(0, name.find('\n')));
    if (!end) return std::nullopt;
    return ReplyMark{.kind = ReplyMark::Kind::kPrefill, .number = static_cast<std::uint64_t>(*end)};
  }
  ReplyMark mark{.kind = event.starts_with(kPrompts) ? ReplyMark::Kind::kPrompts : ReplyMark::Kind::kToken};
  if (mark.kind == ReplyMark::Kind::kPrompts) {
    event.remove_prefix(kPrompts.size());
  } else {
    if (!event.starts_with(kToken)) return std::nullopt;
    event.remove_prefix(kToken.size());
    if (!take_number(event, ' ', mark.choice)) return std::nullopt;
  }
  if (!take_number(event, '\n', mark.number)) return std::nullopt;
  if (mark.kind == ReplyMark::Kind::kToken && mark.number > UINT32_MAX) return std::nullopt;
  return mark;
}

std::string write_said(std::uint64_t prompts, const std::vector<std::vector<TokenId>>& said) {
  std::string out;
  put_number(out, prompts);
  put_number(out, static_cast<std::uint32_t>(said.size()));
  for (const std::vector<TokenId>& choice : said) {
    put_number(out, static_cast<std::uint32_t>(choice.size()));
    for (const TokenId token : choice) put_number(out, token.value);
  }
  return out;
}

std::optional<SaidTokens> read_said(std::string_view bytes) {
  constexpr std::size_t kNumber = sizeof(std::uint32_t);
  if (bytes.size() < sizeof(std::uint64_t) + kNumber) return std::nullopt;
  SaidTokens out{.prompts = from_little_endian<std::uint64_t>(bytes), .said = {}};
  bytes.remove_prefix(sizeof(std::uint64_t));
  const auto choices = from_little_endian<std::uint32_t>(bytes);
  bytes.remove_prefix(kNumber);
  if (choices > bytes.size() / kNumber) return std::nullopt;
  for (std::uint32_t i = 0; i < choices; ++i) {
    if (bytes.size() < kNumber) return std::nullopt;
    const auto count = from_little_endian<std::uint32_t>(bytes);
    bytes.remove_prefix(kNumber);
    if (count > bytes.size() / kNumber) return std::nullopt;
    std::vector<TokenId>& said = out.said.emplace_back();
    said.reserve(count);
    for (std::uint32_t token = 0; token < count; ++token)
      said.emplace_back(from_little_endian<std::uint32_t>(bytes.substr(token * kNumber)));
    bytes.remove_prefix(count * kNumber);
  }
  if (!bytes.empty()) return std::nullopt;
  return out;
}

}  // namespace loci
