// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/history/history_match.h"

#include <time.h>

#include <algorithm>
#include <string>

namespace loci {
namespace {

using Position = TokenTrie::Position;

constexpr std::size_t kBranchesMax = 32;  // of one text, the most recent ones
// Tokens looked at: enough for a few branches, and for the many children of a node where conversations part.
constexpr std::size_t kWorkForEachByte = 64;
constexpr std::size_t kWorkAlways = 4'000'000;
constexpr std::size_t kWorkBetweenLooks = 4'096;  // at the clock

bool is_word(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
         byte == '_' || static_cast<unsigned char>(byte) >= 0x80;
}

bool is_whole_character(std::string_view rest) {
  return rest.empty() || (static_cast<unsigned char>(rest.front()) & 0xc0) != 0x80;
}

// Whether a reply's tokens may be cut before `rest`.
bool begins_apart(std::string_view rest) {
  return rest.empty() || !is_word(rest.front()) || rest.starts_with("\xef\xbf\xbd");
}

bool ends_sequence(const Position& at) {
  return at.at_end() && (at.node->ends_prompt || at.node->ends_reply);
}

// Where tokens have led inside a segment.
struct Reached {
  Position at;
  std::size_t text_bytes = 0;  // spelled of the segment's text
  std::size_t begin = 0;       // the branch at the segment's beginning that it came from
  bool is_canonical = false;   // the segment was tokenised so
};

class Matcher {
 public:
  Matcher(const TokenTrie& trie, const Tokenizer& tokenizer, std::span<const ChatSegment> segments,
          const EncodedSegments& encoded, std::chrono::nanoseconds until)
      : tokenizer_(tokenizer),
        segments_(segments),
        encoded_(encoded),
        until_(until),
        branches_{{.at = trie.root()}} {
    work_left_ = kWorkAlways;
    for (const ChatSegment& segment : segments) work_left_ += kWorkForEachByte * segment.text.size();
  }

  HistoryMatch run() {
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      spelled_.clear();
      partial_.clear();
      follow_text(i);
      if (passes(i)) continue;
      if (!segments_[i].text.empty()) {
        if (!encoded_[i]) {
          HistoryMatch match = cut(i);
          match.wanted = i;
          return match;
        }
        follow_tokens(*encoded_[i]);
        if (passes(i)) continue;
      }
      return cut(i);
    }
    const Reached best = most_recent(branches_);
    HistoryMatch match{.tokens = TokenTrie::path(best.at), .segment = segments_.size()};
    match.tokens_before = match.tokens.size();
    return match;
  }

 private:
  void follow_text(std::size_t segment) {
    const std::string& text = segments_[segment].text;
    if (text.empty()) {
      for (std::size_t i = 0; i < branches_.size(); ++i)
        spelled_.push_back({.at = branches_[i].at, .begin = i});
      return;
    }
    const bool adds_space = tokenizer_.adds_space(segment == 0 ? TextPlace::kFirst : TextPlace::kInner);
    // Tokenising puts a blank before the text; a model's reply may begin without one.
    const std::string symbols = adds_space ? " " + text : text;
    const std::size_t added = symbols.size() - text.size();
    for (std::size_t i = 0; i < branches_.size(); ++i) {
      if (adds_space) follow_symbols(i, symbols, 0, added);
      follow_symbols(i, symbols, added, added);
    }
  }

  // Every branch of the trie that spells the symbols from `from`; the first `added` are not the text's own.
  void follow_symbols(std::size_t begin, std::string_view symbols, std::size_t from, std::size_t added) {
    struct Open {
      Position at;
      std::size_t next;
    };
    std::vector<Open> open = {{branches_[begin].at, from}};
    const auto look_at = [&](Position to, TokenId token, std::size_t next) {
      count_work();
      const std::string_view spelling = tokenizer_.token_spelling(token);
      if (spelling.empty() || tokenizer_.is_control(token)) return;
      if (symbols.substr(next).starts_with(spelling)) open.push_back({to, next + spelling.size()});
    };
    while (!open.empty() && work_left_ > 0) {
      const auto [at, next] = open.back();
      open.pop_back();
      if (next > from) note(begin, at, symbols, next, added);
      if (next == symbols.size()) continue;
      if (!at.at_end()) {
        look_at({.node = at.node, .used = at.used + 1}, at.node->tokens[at.used], next);
        continue;
      }
      for (const TokenTrie::Child& child : at.node->children)
        look_at({.node = child.node.get(), .used = 1}, child.first, next);
    }
  }

  void count_work() {
    if (work_left_ > 0) --work_left_;
    if (work_done_++ % kWorkBetweenLooks == 0 && thread_time() >= until_) work_left_ = 0;
  }

  void note(std::size_t begin, const Position& at, std::string_view symbols, std::size_t next,
            std::size_t added) {
    const Reached reached{.at = at, .text_bytes = std::max(next, added) - added, .begin = begin};
    const std::string_view rest = symbols.substr(next);
    if (rest.empty()) {
      spelled_.push_back(reached);
    } else if (reached.text_bytes > 0 && is_whole_character(rest) &&
               (ends_sequence(at) || (at.node->is_reply && begins_apart(rest)))) {
      partial_.push_back(reached);
    }
  }

  void follow_tokens(const std::vector<TokenId>& tokens) {
    for (std::size_t i = 0; i < branches_.size(); ++i) {
      Position at = branches_[i].at;
      for (const TokenId token : tokens) {
        at = TokenTrie::step(at, token);
        if (at.node == nullptr) break;
      }
      if (at.node != nullptr) spelled_.push_back({.at = at, .begin = i, .is_canonical = true});
    }
  }

  // Goes over the segment's control token; after the last segment, to where sequences may end.
  bool passes(std::size_t segment) {
    std::vector<Reached> next;
    for (const Reached& reached : spelled_) {
      if (const std::optional<TokenId> control = segments_[segment].control) {
        const Position at = TokenTrie::step(reached.at, *control);
        if (at.node != nullptr) next.push_back({.at = at});
      } else if (may_end(reached, segment)) {
        next.push_back({.at = reached.at});
      }
    }
    if (next.empty()) return false;
    if (next.size() > kBranchesMax) {
      const auto later = [](const Reached& a, const Reached& b) {
        return a.at.node->remembered_at > b.at.node->remembered_at;
      };
      std::nth_element(next.begin(), next.begin() + kBranchesMax, next.end(), later);
      next.resize(kBranchesMax);
    }
    branches_ = std::move(next);
    return true;
  }

  // Whether the match may end where a segment's whole text is spelled.
  bool may_end(const Reached& reached, std::size_t segment) const {
    return segments_[segment].text.empty() || reached.is_canonical || reached.at.node->is_reply ||
           ends_sequence(reached.at);
  }

  static Reached most_recent(const std::vector<Reached>& all) {
    return *std::max_element(all.begin(), all.end(), [](const Reached& a, const Reached& b) {
      return a.at.node->remembered_at < b.at.node->remembered_at;
    });
  }

  // What is spelled when nothing leads past the segment.
  HistoryMatch cut(std::size_t segment) const {
    std::vector<Reached> ends = partial_;
    for (Reached reached : spelled_) {
      reached.text_bytes = segments_[segment].text.size();
      if (may_end(reached, segment)) ends.push_back(reached);
    }
    for (std::size_t i = 0; i < branches_.size(); ++i) ends.push_back({.at = branches_[i].at, .begin = i});
    std::size_t furthest = 0;
    for (const Reached& reached : ends) furthest = std::max(furthest, reached.text_bytes);
    std::erase_if(ends, [&](const Reached& reached) { return reached.text_bytes < furthest; });
    const Reached best = most_recent(ends);
    return {.tokens = TokenTrie::path(best.at),
            .segment = segment,
            .text_bytes = best.text_bytes,
            .tokens_before = TokenTrie::path(branches_[best.begin].at).size()};
  }

  const Tokenizer& tokenizer_;
  const std::span<const ChatSegment> segments_;
  const EncodedSegments& encoded_;
  const std::chrono::nanoseconds until_;
  std::size_t work_left_ = 0, work_done_ = 0;
  std::vector<Reached> branches_;  // at the beginning of the segment at hand; never empty
  std::vector<Reached> spelled_;   // its whole text
  std::vector<Reached> partial_;   // a part of it, up to where a match may be cut
};

}  // namespace

std::chrono::nanoseconds thread_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

HistoryMatch match_history(const TokenTrie& trie, const Tokenizer& tokenizer,
                           std::span<const ChatSegment> segments, const EncodedSegments& encoded,
                           std::chrono::nanoseconds until) {
  return Matcher(trie, tokenizer, segments, encoded, until).run();
}

}  // namespace loci
