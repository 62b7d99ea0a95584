// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/prefill_wire.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "loci/base/little_endian.h"

namespace loci {
namespace {

constexpr std::string_view kNews = "wcdrbu";  // by PrefillNews::Says

bool has_tokens(PrefillNews::Says says) {
  return says == PrefillNews::Says::kComputes || says == PrefillNews::Says::kDone;
}

Status check_count(std::uint64_t count, std::size_t most, const char* field) {
  if (count <= most) return {};
  return invalid_argument(fmt::format("expected at most {}, found {}", most, count), field);
}

void put_count(std::string& out, std::size_t count) { put_number(out, static_cast<std::uint32_t>(count)); }

std::vector<std::uint64_t> take_names(FieldTaker& fields, std::size_t count) {
  std::vector<std::uint64_t> out(count);
  for (std::uint64_t& name : out) name = fields.number<std::uint64_t>();
  return out;
}

}  // namespace

std::string write_prefill(const PrefillWork& work) {
  const PromptNames none;
  const PromptNames& text = work.text ? *work.text : none;
  std::string out;
  put_number(out, work.weight);
  put_number(out, work.queued_max);
  put_count(out, work.tenant.size());
  put_count(out, work.salt.size());
  put_count(out, work.tokens.size());
  put_count(out, text.chunks.size());
  put_count(out, text.ends.size());
  put_number(out, static_cast<std::uint32_t>(work.pulse / kNanosPerMilli));
  put_number(out, text.chunk_bytes);
  put_number(out, text.bytes);
  put_number(out, text.tenant);
  out += work.tenant;
  out += work.salt;
  for (const TokenId token : work.tokens) put_number(out, token.value);
  for (const std::uint64_t name : text.chunks) put_number(out, name);
  for (const std::uint64_t name : text.ends) put_number(out, name);
  return out;
}

Result<PrefillWork> read_prefill(std::string_view body) {
  if (body.size() < kPrefillHeadBytes)
    return invalid_argument(
        fmt::format("expected {} bytes at least, found {}", kPrefillHeadBytes, body.size()), "body");
  FieldTaker fields(body);
  PrefillWork out;
  out.weight = fields.number<std::uint32_t>();
  out.queued_max = fields.number<std::uint32_t>();
  const std::size_t tenant = fields.number<std::uint32_t>(), salt = fields.number<std::uint32_t>();
  const std::size_t tokens = fields.number<std::uint32_t>();
  const std::size_t chunks = fields.number<std::uint32_t>(), ends = fields.number<std::uint32_t>();
  out.pulse = fields.number<std::uint32_t>() * kNanosPerMilli;
  LOCI_RETURN_IF_ERROR(check_count(tenant, kPrefillTenantBytesMax, "tenant"));
  LOCI_RETURN_IF_ERROR(check_count(salt, kPrefillTenantBytesMax, "salt"));
  LOCI_RETURN_IF_ERROR(check_count(tokens, kPrefillTokensMax, "tokens"));
  LOCI_RETURN_IF_ERROR(check_count(chunks, kPrefillNamesMax, "chunks"));
  LOCI_RETURN_IF_ERROR(check_count(ends, kPrefillNamesMax, "ends"));
  constexpr Nanos kPulseMin = prefill_pulse(kPrefillSilenceMin),
                  kPulseMax = prefill_pulse(kPrefillSilenceMax);
  if (out.pulse < kPulseMin || out.pulse > kPulseMax)
    return invalid_argument(fmt::format("expected {} to {} ms, found {}", kPulseMin / kNanosPerMilli,
                                        kPulseMax / kNanosPerMilli, out.pulse / kNanosPerMilli),
                            "pulse");
  if (out.weight == 0) return invalid_argument("expected 1 at least, found 0", "weight");
  if (tokens == 0) return invalid_argument("expected a token at least, found none", "tokens");
  const std::size_t wanted = kPrefillHeadBytes + tenant + salt + 4 * tokens + 8 * (chunks + ends);
  if (body.size() != wanted)
    return invalid_argument(fmt::format("expected {} bytes, found {}", wanted, body.size()), "body");
  PromptNames text;
  text.chunk_bytes = fields.number<std::uint64_t>();
  text.bytes = fields.number<std::uint64_t>();
  text.tenant = fields.number<std::uint64_t>();
  out.tenant = fields.bytes(tenant);
  out.salt = fields.bytes(salt);
  out.tokens.reserve(tokens);
  for (std::size_t i = 0; i < tokens; ++i) out.tokens.emplace_back(fields.number<std::uint32_t>());
  text.chunks = take_names(fields, chunks);
  text.ends = take_names(fields, ends);
  if (chunks + ends > 0) out.text = std::make_shared<const PromptNames>(std::move(text));
  return out;
}

std::string write_prefill_news(const PrefillNews& news) {
  const char letter = kNews[static_cast<std::size_t>(news.says)];
  return has_tokens(news.says) ? fmt::format("{} {}\n", letter, news.tokens) : fmt::format("{}\n", letter);
}

std::optional<PrefillNews> read_prefill_news(std::string_view line) {
  const std::size_t place = line.empty() ? std::string_view::npos : kNews.find(line.front());
  if (place == std::string_view::npos) return std::nullopt;
  PrefillNews out{.says = static_cast<PrefillNews::Says>(place)};
  line.remove_prefix(1);
  if (!has_tokens(out.says)) return line.empty() ? std::optional(out) : std::nullopt;
  if (!line.starts_with(' ')) return std::nullopt;
  const char* const end = line.data() + line.size();
  const auto [read_to, error] = std::from_chars(line.data() + 1, end, out.tokens);
  return error == std::errc() && read_to == end ? std::optional(out) : std::nullopt;
}

}  // namespace loci
