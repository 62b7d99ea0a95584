// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/history/token_history.h"

#include <algorithm>

#include "loci/base/mutex.h"
#include "loci/serve/history/history_match.h"
#include "loci/serve/history/token_trie.h"

namespace loci {

struct TokenHistory::Tenant {
  mutable SharedMutex mutex;
  TokenTrie trie GUARDED_BY(mutex);
  std::atomic<std::size_t> bytes{0};  // the trie's

  // By how many bytes the trie has grown since the last call, modulo 2^64.
  std::size_t grown() REQUIRES(mutex) {
    const std::size_t size = trie.size_bytes();
    return size - bytes.exchange(size);
  }
};

namespace {

TextPlace place_of(std::size_t segment) { return segment == 0 ? TextPlace::kFirst : TextPlace::kInner; }

// Tokenises the segments, each once.
class SegmentEncoder {
 public:
  SegmentEncoder(const Tokenizer& tokenizer, std::span<const ChatSegment> segments)
      : tokenizer_(tokenizer), segments_(segments), encoded_(segments.size()) {}

  Status encode(std::size_t segment) {
    if (encoded_[segment]) return {};
    LOCI_ASSIGN_OR_RETURN(encoded_[segment],
                          tokenizer_.encode_piece(segments_[segment].text, place_of(segment)));
    return {};
  }

  const EncodedSegments& encoded() const { return encoded_; }

  // The tokens of all segments, of which the match has some.
  Result<HistoryTokens> complete(HistoryMatch match) {
    HistoryTokens out{.tokens = std::move(match.tokens)};
    std::size_t segment = match.segment;
    if (match.text_bytes > 0) {
      const std::string_view rest = std::string_view(segments_[segment].text).substr(match.text_bytes);
      LOCI_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                            tokenizer_.encode_piece(rest, TextPlace::kContinued));
      if (spell(tokens, rest)) {
        out.reused = out.tokens.size();
        out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
        append_control(segment++, out.tokens);
      } else {
        out.tokens.resize(match.tokens_before);
        out.reused = match.tokens_before;
      }
    } else {
      out.reused = out.tokens.size();
    }
    for (; segment < segments_.size(); ++segment) {
      LOCI_RETURN_IF_ERROR(encode(segment));
      out.tokens.insert(out.tokens.end(), encoded_[segment]->begin(), encoded_[segment]->end());
      append_control(segment, out.tokens);
    }
    return out;
  }

 private:
  void append_control(std::size_t segment, std::vector<TokenId>& tokens) const {
    if (segments_[segment].control) tokens.push_back(*segments_[segment].control);
  }

  bool spell(const std::vector<TokenId>& tokens, std::string_view text) const {
    for (const TokenId token : tokens) {
      const std::string_view spelling = tokenizer_.token_spelling(token);
      if (tokenizer_.is_control(token) || !text.starts_with(spelling)) return false;
      text.remove_prefix(spelling.size());
    }
    return text.empty();
  }

  const Tokenizer& tokenizer_;
  const std::span<const ChatSegment> segments_;
  EncodedSegments encoded_;
};

Result<std::vector<ChatSegment>> render(const ChatTemplate& chat_template,
                                        std::string_view template_context) {
  Result<std::vector<ChatSegment>> segments = chat_template.render_segments(template_context);
  if (segments.ok()) return segments;
  const Status& status = segments.status();
  return Status(status.code(), "the model's chat template: " + status.message(),
                status.field().empty() ? "messages" : status.field());
}

}  // namespace

Result<std::vector<ChatSegment>> render_conversation(const Model& model, std::string_view template_context) {
  if (model.chat_template) return render(*model.chat_template, template_context);
  return invalid_argument("this model has no chat template; use /v1/completions", "messages");
}

TokenHistory::TokenHistory(std::size_t bytes_max) : bytes_max_(bytes_max) {}
TokenHistory::~TokenHistory() = default;

Result<HistoryTokens> TokenHistory::encode(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                           std::string_view tenant, std::string_view template_context) {
  LOCI_ASSIGN_OR_RETURN(const std::vector<ChatSegment> segments, render(chat_template, template_context));
  return encode(tokenizer, tenant, segments);
}

Result<HistoryTokens> TokenHistory::encode(const Tokenizer& tokenizer, std::string_view tenant,
                                           std::span<const ChatSegment> segments) {
  SegmentEncoder encoder(tokenizer, segments);
  HistoryMatch match;
  if (const std::shared_ptr<Tenant> known = find(tenant)) {
    const std::chrono::nanoseconds until = thread_time() + kMatchTime;
    for (std::size_t ahead = 1;; ahead *= 2) {
      {
        const ReadLock lock(known->mutex);
        match = match_history(known->trie, tokenizer, segments, encoder.encoded(), until);
      }
      if (!match.wanted) break;
      // Tokenised without the lock. Doubling keeps the rounds few where many segments are wanted.
      const std::size_t end = std::min(segments.size(), *match.wanted + ahead);
      for (std::size_t i = *match.wanted; i < end; ++i) LOCI_RETURN_IF_ERROR(encoder.encode(i));
    }
  }
  LOCI_ASSIGN_OR_RETURN(HistoryTokens out, encoder.complete(std::move(match)));
  tokens_reused_.fetch_add(out.reused, std::memory_order_relaxed);
  return out;
}

void TokenHistory::remember(std::string_view tenant, std::span<const TokenId> prompt,
                            std::span<const TokenId> reply) {
  const std::shared_ptr<Tenant> owner = find_or_add(tenant);
  {
    const WriteLock lock(owner->mutex);
    owner->trie.remember(prompt, reply);
    bytes_.fetch_add(owner->grown());
  }
  keep_to_most();
}

bool TokenHistory::try_remember(std::string_view tenant, std::span<const TokenId> prompt,
                                std::span<const TokenId> reply) {
  const std::shared_ptr<Tenant> owner = find_or_add(tenant);
  if (bytes_.load() > bytes_max_ || !owner->mutex.try_lock()) return false;
  const WriteLock lock(owner->mutex, std::adopt_lock);
  owner->trie.remember(prompt, reply);
  bytes_.fetch_add(owner->grown());
  return true;
}

void TokenHistory::keep_to_most() {
  while (bytes_.load() > bytes_max_) {
    const std::shared_ptr<Tenant> most = largest();
    // Somewhat more than needed, so that not every call has to look for the largest.
    const std::size_t excess = bytes_.load() - std::min(bytes_.load(), bytes_max_) + bytes_max_ / 64;
    const std::size_t size = most->bytes.load();
    shrink(*most, size - std::min(size, excess));
    if (size == 0) break;
  }
}

void TokenHistory::forget(std::string_view tenant, std::span<const TokenId> tokens) {
  const std::shared_ptr<Tenant> owner = find(tenant);
  if (owner == nullptr) return;
  const WriteLock lock(owner->mutex);
  owner->trie.forget(tokens);
  bytes_.fetch_add(owner->grown());
}

void TokenHistory::shrink(Tenant& tenant, std::size_t bytes) {
  const WriteLock lock(tenant.mutex);
  tenant.trie.shrink(bytes);
  bytes_.fetch_add(tenant.grown());
}

std::shared_ptr<TokenHistory::Tenant> TokenHistory::find(std::string_view tenant) const {
  const MutexLock lock(mutex_);
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? nullptr : found->second;
}

std::shared_ptr<TokenHistory::Tenant> TokenHistory::find_or_add(std::string_view tenant) {
  const MutexLock lock(mutex_);
  auto found = tenants_.find(tenant);
  if (found == tenants_.end()) found = tenants_.emplace(tenant, std::make_shared<Tenant>()).first;
  return found->second;
}

std::shared_ptr<TokenHistory::Tenant> TokenHistory::largest() const {
  const MutexLock lock(mutex_);
  const auto most = std::max_element(tenants_.begin(), tenants_.end(), [](const auto& a, const auto& b) {
    return a.second->bytes.load() < b.second->bytes.load();
  });
  return most->second;
}

}  // namespace loci
