// SPDX-License-Identifier: Apache-2.0
// Tokens are the truth: where tokens that the server has seen or sampled spell a
// prefix of what a template renders, they are used as they are instead of tokenising that text again
// (history_match.h says how). So a conversation goes on with the tokens that its state was computed from,
// although its client sends text alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/model/model.h"

namespace loci {

struct HistoryTokens {
  std::vector<TokenId> tokens;
  std::size_t reused = 0;  // at the beginning, taken as they were remembered
};

// A conversation (chat_template.h's context) as the model's template renders it. Errors: there is no
// template; as ChatTemplate::render_segments, with the field "messages". Thread-safe.
Result<std::vector<ChatSegment>> render_conversation(const Model& model, std::string_view template_context);

// Thread-safe. Each tenant's sequences are apart from all others': what one has sent changes neither the
// tokens nor the time of another's request.
class TokenHistory {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  // What a conversation's text spells is looked for for so long at most, of the thread's own time, beside its
  // bound in steps: then the rest of the text is tokenised.
  static constexpr std::chrono::milliseconds kMatchTime{200};

  // Remembers at most so many bytes; what is least recently used goes first, of the tenant with the most.
  explicit TokenHistory(std::size_t bytes_max = kBytesMax);
  ~TokenHistory();
  TokenHistory(const TokenHistory&) = delete;
  TokenHistory& operator=(const TokenHistory&) = delete;

  // Renders the conversation (chat_template.h's context) and tokenises it. The tokens spell what the
  // template rendered; without anything remembered they are ChatTemplate::encode's.
  // Errors: as ChatTemplate::encode, with the field "messages".
  Result<HistoryTokens> encode(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               std::string_view tenant, std::string_view template_context);
  // The same for a conversation that the caller has rendered. `segments` is not empty, and the last one ends
  // without a control token.
  Result<HistoryTokens> encode(const Tokenizer& tokenizer, std::string_view tenant,
                               std::span<const ChatSegment> segments);

  // What a sequence of the tenant's was: a prompt, and what the model added to it. Of a stored sequence
  // (StoredResponse::tokens, made with this model's tokenizer) whose prompt's length is not known all is
  // given as `reply`. Time: the sequence's length.
  void remember(std::string_view tenant, std::span<const TokenId> prompt, std::span<const TokenId> reply);
  // The same, where nobody else has the tenant's sequences at this moment and none must be forgotten for it;
  // else false, and nothing is remembered. For threads that may wait for nobody.
  bool try_remember(std::string_view tenant, std::span<const TokenId> prompt, std::span<const TokenId> reply);
  // Forgets the tenant's sequence, except the beginning that other sequences share. Time: the sequence's
  // length.
  void forget(std::string_view tenant, std::span<const TokenId> tokens);

  std::size_t size_bytes() const { return bytes_.load(); }
  // Tokens that encode() took as they were, of all its calls.
  std::uint64_t tokens_reused_total() const { return tokens_reused_.load(); }

 private:
  struct Tenant;

  std::shared_ptr<Tenant> find(std::string_view tenant) const;
  std::shared_ptr<Tenant> find_or_add(std::string_view tenant);
  std::shared_ptr<Tenant> largest() const;
  void shrink(Tenant& tenant, std::size_t bytes);
  void keep_to_most();

  const std::size_t bytes_max_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Tenant>, std::less<>> tenants_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> bytes_{0};  // of all tenants
  std::atomic<std::uint64_t> tokens_reused_{0};
};

}  // namespace loci
