// SPDX-License-Identifier: Apache-2.0
// Sequences of tokens. Each turn's sequence begins with the one before it, mostly; so a row holds what
// follows after the first `base_tokens` of another row, its base. Chains of bases are cut at a depth, so
// that reading one touches a bounded number of rows.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "loci/serve/store/sql_rows.h"
#include "loci/serve/store/token_blob.h"

namespace loci::store_rows {
namespace {

constexpr std::int64_t kDepthMax = 32;
// Less in common than this is not worth a second row to read.
constexpr std::size_t kSharedTokensMin = 64;

struct SequenceRow {
  std::optional<std::int64_t> base;
  std::size_t base_tokens = 0;
  std::int64_t depth = 0;
  std::vector<TokenId> tokens;
};

Result<SequenceRow> read_row(SqlSession& session, std::int64_t sequence) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT base, base_tokens, depth, tokens FROM sequences WHERE sequence = $1", {sequence}));
  if (rows.empty()) return data_loss(fmt::format("the conversation store lacks its sequence {}", sequence));
  SequenceRow row;
  if (!rows.is_null(0, 0)) row.base = rows.integer(0, 0);
  row.base_tokens = static_cast<std::size_t>(rows.integer(0, 1));
  row.depth = rows.integer(0, 2);
  LOCI_ASSIGN_OR_RETURN(row.tokens, decode_tokens(rows.text(0, 3)));
  return row;
}

struct WholeSequence {
  std::vector<TokenId> tokens;
  std::int64_t depth = 0;
};

Result<WholeSequence> read_whole(SqlSession& session, std::int64_t sequence) {
  std::vector<SequenceRow> rows;
  for (std::optional<std::int64_t> next = sequence; next;) {
    if (rows.size() > kDepthMax)
      return data_loss(fmt::format("the conversation store's sequence {} stands on too many", sequence));
    LOCI_ASSIGN_OR_RETURN(SequenceRow row, read_row(session, *next));
    next = row.base;
    rows.push_back(std::move(row));
  }
  WholeSequence whole{.tokens = {}, .depth = rows.front().depth};
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (row->base_tokens > whole.tokens.size())
      return data_loss(
          fmt::format("the conversation store's sequence {} needs more than its base", sequence));
    whole.tokens.resize(row->base_tokens);
    whole.tokens.insert(whole.tokens.end(), row->tokens.begin(), row->tokens.end());
  }
  return whole;
}

}  // namespace

Result<NewSequence> add_sequence(SqlSession& session, std::int64_t thread, std::optional<std::int64_t> base,
                                 std::span<const TokenId> tokens) {
  std::size_t shared = 0;
  std::int64_t depth = 0;
  if (base) {
    LOCI_ASSIGN_OR_RETURN(const WholeSequence before, read_whole(session, *base));
    const auto parted =
        std::mismatch(tokens.begin(), tokens.end(), before.tokens.begin(), before.tokens.end());
    shared = static_cast<std::size_t>(parted.first - tokens.begin());
    depth = before.depth + 1;
  }
  if (shared < kSharedTokensMin || depth > kDepthMax) {
    base.reset();
    shared = 0;
    depth = 0;
  }
  const std::string blob = encode_tokens(tokens.subspan(shared));
  const std::int64_t bytes = row_bytes(blob);
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("INSERT INTO sequences (thread, base, base_tokens, depth, tokens, size_bytes) "
                  "VALUES ($1, $2, $3, $4, $5, $6) RETURNING sequence",
                  {thread, base ? SqlParameter(*base) : SqlParameter(SqlNull{}),
                   static_cast<std::int64_t>(shared), depth, SqlBlob{blob}, bytes}));
  return NewSequence{.sequence = rows.integer(0, 0), .added_bytes = bytes};
}

Result<std::vector<TokenId>> read_sequence(SqlSession& session, std::int64_t sequence) {
  LOCI_ASSIGN_OR_RETURN(WholeSequence whole, read_whole(session, sequence));
  return std::move(whole.tokens);
}

Result<std::int64_t> release_sequence(SqlSession& session, std::int64_t sequence) {
  std::int64_t bytes = 0;
  for (std::optional<std::int64_t> next = sequence; next;) {
    LOCI_ASSIGN_OR_RETURN(
        const SqlRows gone,
        session.run("DELETE FROM sequences WHERE sequence = $1 "
                    "AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.sequence = $1) "
                    "AND NOT EXISTS (SELECT 1 FROM sequences AS later WHERE later.base = $1) RETURNING base, "
                    "size_bytes",
                    {*next}));
    next.reset();
    bytes += sum_of(gone, 1);
    if (!gone.empty() && !gone.is_null(0, 0)) next = gone.integer(0, 0);
  }
  return bytes;
}

namespace {

// A response's sequence, as far as it is known without reading it.
struct SaidRow {
  std::int64_t sequence = 0;
  std::string tokenizer;
};

// Of the thread's sequences those that no other one's base begins with, the oldest first.
Result<std::vector<SaidRow>> ends_of(SqlSession& session, std::int64_t thread) {
  LOCI_ASSIGN_OR_RETURN(
      const SqlRows rows,
      session.run("SELECT sequences.sequence, sequences.base, sequences.base_tokens, "
                  "length(sequences.tokens), substr(sequences.tokens, 1, 1), responses.tokenizer "
                  "FROM sequences JOIN responses ON responses.sequence = sequences.sequence "
                  "WHERE sequences.thread = $1 ORDER BY sequences.sequence",
                  {thread}));
  std::map<std::int64_t, std::int64_t> used_of;  // of a base, by the one that uses the most of it
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows.is_null(i, 1)) continue;
    std::int64_t& used = used_of[rows.integer(i, 1)];
    used = std::max(used, rows.integer(i, 2));
  }
  std::vector<SaidRow> ends;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& width = rows.text(i, 4);
    if (width.empty() || width[0] <= 0)
      return data_loss("the conversation store has a sequence without tokens");
    const std::int64_t count = rows.integer(i, 2) + (rows.integer(i, 3) - 1) / width[0];
    const auto used = used_of.find(rows.integer(i, 0));
    if (used != used_of.end() && used->second >= count) continue;
    ends.push_back({.sequence = rows.integer(i, 0), .tokenizer = rows.text(i, 5)});
  }
  return ends;
}

// Of all that were read those that begin no other one, in their order. In the order of dictionaries whatever
// begins something stands right before that, or before another one that begins it.
std::vector<StoredTokens> without_beginnings(std::vector<StoredTokens> all) {
  const auto begins = [&](std::size_t a, std::size_t b) {
    const StoredTokens &beginning = all[a], &whole = all[b];
    return beginning.tokenizer == whole.tokenizer && beginning.tokens.size() <= whole.tokens.size() &&
           std::equal(beginning.tokens.begin(), beginning.tokens.end(), whole.tokens.begin());
  };
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (all[a].tokenizer != all[b].tokenizer) return all[a].tokenizer < all[b].tokenizer;
    if (all[a].tokens == all[b].tokens) return a > b;  // of the same ones the first stays
    return std::ranges::lexicographical_compare(all[a].tokens, all[b].tokens, {}, &TokenId::value,
                                                &TokenId::value);
  });
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (begins(order[i], order[i + 1])) all[order[i]].tokens.clear();
  }
  std::erase_if(all, [](const StoredTokens& one) { return one.tokens.empty(); });
  return all;
}

}  // namespace

Result<std::vector<StoredTokens>> said_in(SqlSession& session, std::int64_t thread, std::size_t tokens_max) {
  LOCI_ASSIGN_OR_RETURN(const std::vector<SaidRow> ends, ends_of(session, thread));
  std::vector<StoredTokens> said;
  std::size_t total = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    LOCI_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, read_sequence(session, end->sequence));
    total += tokens.size();
    if (total > tokens_max) break;
    said.push_back({.tokens = std::move(tokens), .tokenizer = end->tokenizer});
  }
  return without_beginnings(std::move(said));
}

Result<std::optional<std::int64_t>> newest_sequence(SqlSession& session, std::int64_t thread) {
  LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                        session.run("SELECT MAX(sequence) FROM sequences WHERE thread = $1", {thread}));
  if (rows.is_null(0, 0)) return std::optional<std::int64_t>();
  return std::optional(rows.integer(0, 0));
}

}  // namespace loci::store_rows
