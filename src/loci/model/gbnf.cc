// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace loci {
namespace {

constexpr int kDepthMax = 64;
constexpr std::uint32_t kRepeatMax = 2000;

// An expression; `text` is Lark of what has no parts, `parts` the rest.
struct Node {
  enum class Kind : std::uint8_t { kText, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kText;
  std::string text;    // kText: a regular expression between slashes; kRule: the name
  std::string repeat;  // kRepeat: "*", "{2,3}"
  std::vector<Node> parts;
  std::size_t line = 0;  // kRule
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// A character of a regular expression.
std::string escaped(std::uint32_t character) { return fmt::format("\\x{{{:x}}}", character); }

// Recursive descent; the first error ends it.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::map<std::string, Node>> parse() {
    std::map<std::string, Node> rules;
    skip(true);
    while (status_.ok() && at_ < text_.size()) {
      const std::string name = read_name();
      skip(false);
      expect("::=");
      skip(true);
      Node body = choice(0, false);
      if (!status_.ok()) break;
      if (!rules.emplace(name, std::move(body)).second)
        fail(fmt::format("the rule {} a first time only", name));
      skip(true);
    }
    if (!status_.ok()) return status_;
    return rules;
  }

 private:
  void fail(const std::string& expected) {
    if (!status_.ok()) return;
    std::string_view found = text_.substr(std::min(at_, text_.size()), 12);
    found = found.substr(0, found.find('\n'));
    status_ = invalid_argument(fmt::format("line {}: expected {}, found {}", line(), expected,
                                           found.empty() ? "the end" : fmt::format("'{}'", found)));
    at_ = text_.size();
  }
  std::size_t line() const {
    return 1 + static_cast<std::size_t>(std::count(
                   text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())),
                   '\n'));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view token) {
    if (!text_.substr(std::min(at_, text_.size())).starts_with(token))
      return fail(fmt::format("'{}'", token));
    at_ += token.size();
  }
  void skip(bool over_lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string read_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ == begin) fail("the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Node choice(int depth, bool nested) {
    Node node{.kind = Node::Kind::kChoice};
    if (depth > kDepthMax) fail(fmt::format("at most {} nested groups", kDepthMax));
    do {
      skip(true);
      node.parts.push_back(sequence(depth, nested));
      skip(nested);
    } while (status_.ok() && take('|'));
    return node;
  }

  Node sequence(int depth, bool nested) {
    Node node{.kind = Node::Kind::kSequence};
    while (status_.ok()) {
      skip(nested);
      std::optional<Node> one = element(depth);
      if (!one) break;
      node.parts.push_back(repeated(std::move(*one)));
    }
    return node;
  }

  std::optional<Node> element(int depth) {
    const char c = peek();
    if (take('"')) return literal();
    if (take('[')) return char_class();
    if (take('.')) return Node{.text = "/(?s:.)/"};
    if (take('(')) {
      Node node = choice(depth + 1, true);
      expect(")");
      return node;
    }
    if (!is_name(c)) return std::nullopt;
    // A name that is followed by "::=" begins the next rule.
    const std::size_t begin = at_;
    Node node{.kind = Node::Kind::kRule, .line = line()};
    node.text = read_name();
    const std::size_t end = at_;
    skip(false);
    const bool next_rule = text_.substr(at_).starts_with("::=");
    at_ = next_rule ? begin : end;
    if (next_rule) return std::nullopt;
    return node;
  }

  Node repeated(Node node) {
    for (std::string repeat = repetition(); !repeat.empty(); repeat = repetition()) {
      Node outer{.kind = Node::Kind::kRepeat, .repeat = std::move(repeat)};
      outer.parts.push_back(std::move(node));
      node = std::move(outer);
      // Each is one level more for what walks over it.
      if (++repeats_ > 10'000) fail("fewer repetitions");
    }
    return node;
  }

  std::string repetition() {
    if (take('*')) return "*";
    if (take('+')) return "+";
    if (take('?')) return "?";
    if (!take('{')) return {};
    const std::uint32_t low = number();
    std::string text = fmt::format("{{{}}}", low);
    if (take(',')) {
      const std::uint32_t high = peek() == '}' ? low : number();
      if (high < low) fail("an upper bound that is not below the lower one");
      text = text_[at_ - 1] == ',' ? fmt::format("{{{},}}", low) : fmt::format("{{{},{}}}", low, high);
    }
    expect("}");
    return text;
  }
  std::uint32_t number() {
    std::uint32_t value = 0;
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9' && value <= kRepeatMax) {
      value = value * 10 + static_cast<std::uint32_t>(text_[at_++] - '0');
    }
    if (at_ == begin || value > kRepeatMax) fail(fmt::format("a number up to {}", kRepeatMax));
    return value;
  }

  Node literal() {
    std::string pattern;
    while (status_.ok() && !take('"')) pattern += escaped(character());
    return {.text = pattern.empty() ? "\"\"" : "/" + pattern + "/"};
  }

  Node char_class() {
    std::string pattern = take('^') ? "/[^" : "/[";
    const std::size_t begin = at_;
    while (status_.ok() && !(peek() == ']' && at_ > begin)) {
      const std::uint32_t low = character();
      pattern += escaped(low);
      if (peek() != '-' || text_.substr(at_).starts_with("-]")) continue;
      ++at_;
      const std::uint32_t high = character();
      if (high < low) fail("a range whose end is not before its beginning");
      pattern += "-" + escaped(high);
    }
    expect("]");
    return {.text = pattern + "]/"};
  }

  std::uint32_t character() {
    if (at_ >= text_.size()) {
      fail("the end of a string or a class");
      return 0;
    }
    if (take('\\')) return escape();
    return utf8_character();
  }

  std::uint32_t escape() {
    const char c = peek();
    ++at_;
    switch (c) {
      case 'x': return hexadecimal(2);
      case 'u': return hexadecimal(4);
      case 'U': return hexadecimal(8);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '/': return static_cast<unsigned char>(c);
      default:
        --at_;
        fail("an escape: \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\]");
        return 0;
    }
  }
  std::uint32_t hexadecimal(int digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const bool digit = c >= '0' && c <= '9';
      const char lower = static_cast<char>(c | 0x20);
      if (!digit && !(lower >= 'a' && lower <= 'f')) {
        fail(fmt::format("{} hexadecimal digits", digits));
        return 0;
      }
      value = value * 16 + static_cast<std::uint32_t>(digit ? c - '0' : lower - 'a' + 10);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) fail("a character of Unicode");
    return value;
  }
  std::uint32_t utf8_character() {
    const auto first = static_cast<unsigned char>(text_[at_++]);
    const int more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    std::uint32_t value = more == 0 ? first : first & (0x3fu >> more);
    for (int i = 0; i < more && at_ < text_.size(); ++i)
      value = value << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3fu);
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int repeats_ = 0;
  Status status_;
};

// Which rules are recursive, and what they are called in Lark.
class Writer {
 public:
  explicit Writer(const std::map<std::string, Node>& rules) : rules_(rules) {
    for (const auto& [name, body] : rules_) collect(body, uses_[name]);
    for (const auto& [name, body] : rules_) {
      const std::size_t number = names_.size();
      names_[name] = fmt::format("{}{}", reaches_recursion(name) ? "r" : "T", number);
    }
  }

  Result<std::string> write() {
    std::string out = fmt::format("start: {}\n", names_.at("root"));
    for (const auto& [name, body] : rules_) out += fmt::format("{}: {}\n", names_.at(name), lark(body));
    return out;
  }

 private:
  static void collect(const Node& node, std::set<std::string>& out) {
    if (node.kind == Node::Kind::kRule) out.insert(node.text);
    for (const Node& part : node.parts) collect(part, out);
  }
  // All rules that `name` leads to.
  std::set<std::string> reach(const std::string& name) const {
    std::set<std::string> found = uses_.at(name);
    std::vector<std::string> open(found.begin(), found.end());
    while (!open.empty()) {
      const std::string one = std::move(open.back());
      open.pop_back();
      for (const std::string& next : uses_.at(one)) {
        if (found.insert(next).second) open.push_back(next);
      }
    }
    return found;
  }
  bool is_recursive(const std::string& name) {
    if (const auto known = recursive_.find(name); known != recursive_.end()) return known->second;
    return recursive_[name] = reach(name).contains(name);
  }
  bool reaches_recursion(const std::string& name) {
    if (is_recursive(name)) return true;
    const std::set<std::string> found = reach(name);
    return std::any_of(found.begin(), found.end(), [&](const std::string& one) { return is_recursive(one); });
  }

  std::string lark(const Node& node) const {
    std::string out;
    switch (node.kind) {
      case Node::Kind::kText: return node.text;
      case Node::Kind::kRule: return names_.at(node.text);
      case Node::Kind::kRepeat: return fmt::format("({}){}", lark(node.parts.front()), node.repeat);
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) out += (out.empty() ? "" : " ") + group(part);
        return out.empty() ? "\"\"" : out;
      case Node::Kind::kChoice:
        for (const Node& part : node.parts) out += (out.empty() ? "" : " | ") + lark(part);
        return out;
    }
    return out;
  }
  std::string group(const Node& node) const {
    return node.kind == Node::Kind::kChoice ? "(" + lark(node) + ")" : lark(node);
  }

  const std::map<std::string, Node>& rules_;
  std::map<std::string, std::set<std::string>> uses_;
  std::map<std::string, std::string> names_;
  std::map<std::string, bool> recursive_;
};

Status check_names(const std::map<std::string, Node>& rules, const Node& node) {
  if (node.kind == Node::Kind::kRule && !rules.contains(node.text))
    return invalid_argument(fmt::format("line {}: the rule {} is not defined", node.line, node.text));
  for (const Node& part : node.parts) LOCI_RETURN_IF_ERROR(check_names(rules, part));
  return {};
}

}  // namespace

Result<std::string> gbnf_to_lark(std::string_view gbnf) {
  constexpr std::size_t kBytesMax = 64 << 10;
  constexpr std::size_t kRulesMax = 1000;
  if (gbnf.size() > kBytesMax)
    return invalid_argument(fmt::format("expected at most {} bytes, found {}", kBytesMax, gbnf.size()));
  LOCI_ASSIGN_OR_RETURN(const auto rules, Parser(gbnf).parse());
  if (rules.size() > kRulesMax)
    return invalid_argument(fmt::format("expected at most {} rules, found {}", kRulesMax, rules.size()));
  if (!rules.contains("root")) return invalid_argument("expected a rule named root, where a text begins");
  for (const auto& [name, body] : rules) LOCI_RETURN_IF_ERROR(check_names(rules, body));
  return Writer(rules).write();
}

}  // namespace loci
