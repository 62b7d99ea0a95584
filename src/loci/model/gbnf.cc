// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace loci {
namespace {

constexpr int kDepthMax = 64;
// What walks over an expression recurses for each group and repetition. Lark with more brackets is refused
// anyway: each repetition is a pair.
constexpr int kNestedRepeatsMax = 200;
constexpr std::uint32_t kRepeatMax = 2000;

// An expression; `text` is Lark of what has no parts, `parts` the rest.
struct Node {
  enum class Kind : std::uint8_t { kText, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kText;
  std::string text;        // kText: a regular expression between slashes
  std::uint32_t rule = 0;  // kRule: its number
  std::string repeat;      // kRepeat: "*", "{2,3}"
  std::vector<Node> parts;
  int nested_repeats = 0;  // this one and those in its parts, at the deepest place
};

struct GbnfReference {
  std::uint32_t rule = 0;
  std::size_t line = 0;
};

struct GbnfRule {
  std::optional<Node> body;         // none: other rules name it, but it is not defined
  std::vector<GbnfReference> uses;  // in the text's order
};

// Rules have numbers, so that their names are compared only while the text is read. Names are views of it.
struct GbnfRules {
  std::vector<GbnfRule> all;
  std::map<std::string_view, std::uint32_t> numbers;

  std::uint32_t number(std::string_view name) {
    const auto [at, is_new] = numbers.emplace(name, static_cast<std::uint32_t>(all.size()));
    if (is_new) all.emplace_back();
    return at->second;
  }
  bool defines(std::string_view name) const {
    const auto found = numbers.find(name);
    return found != numbers.end() && all[found->second].body.has_value();
  }
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

  Result<GbnfRules> parse() {
    skip(true);
    while (status_.ok() && at_ < text_.size()) {
      const std::string_view name = read_name();
      rule_ = rules_.number(name);
      skip(false);
      expect("::=");
      skip(true);
      Node body = choice(0, false);
      if (!status_.ok()) break;
      std::optional<Node>& defined = rules_.all[rule_].body;
      if (defined) fail(fmt::format("the rule {} a first time only", name));
      defined = std::move(body);
      skip(true);
    }
    if (!status_.ok()) return status_;
    return std::move(rules_);
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
  // Counted on from where it was asked for last: the parser never goes back behind that.
  std::size_t line() {
    const std::size_t end = std::min(at_, text_.size());
    const std::string_view passed = text_.substr(line_at_, end - line_at_);
    line_ += static_cast<std::size_t>(std::count(passed.begin(), passed.end(), '\n'));
    line_at_ = end;
    return line_;
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
  std::string_view read_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ == begin) fail("the name of a rule");
    return text_.substr(begin, at_ - begin);
  }
  static void add(Node& node, Node part) {
    node.nested_repeats = std::max(node.nested_repeats, part.nested_repeats);
    node.parts.push_back(std::move(part));
  }

  Node choice(int depth, bool nested) {
    Node node{.kind = Node::Kind::kChoice};
    if (depth > kDepthMax) fail(fmt::format("at most {} nested groups", kDepthMax));
    do {
      skip(true);
      add(node, sequence(depth, nested));
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
      add(node, repeated(std::move(*one), nested));
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
    const std::size_t line_of_name = line();
    const std::string_view name = read_name();
    const std::size_t end = at_;
    skip(false);
    const bool next_rule = text_.substr(at_).starts_with("::=");
    at_ = next_rule ? begin : end;
    if (next_rule) return std::nullopt;
    const std::uint32_t number = rules_.number(name);
    rules_.all[rule_].uses.push_back({number, line_of_name});
    return Node{.kind = Node::Kind::kRule, .rule = number};
  }

  // Blanks may stand before an operator, in a group line ends too.
  Node repeated(Node node, bool nested) {
    skip(nested);
    for (std::string repeat = repetition(nested); !repeat.empty(); repeat = repetition(nested)) {
      Node outer{.kind = Node::Kind::kRepeat, .repeat = std::move(repeat)};
      add(outer, std::move(node));
      node = std::move(outer);
      if (++node.nested_repeats > kNestedRepeatsMax)
        fail(fmt::format("at most {} nested repetitions", kNestedRepeatsMax));
      skip(nested);
    }
    return node;
  }

  std::string repetition(bool nested) {
    if (take('*')) return "*";
    if (take('+')) return "+";
    if (take('?')) return "?";
    if (!take('{')) return {};
    const std::uint32_t low = padded_number(nested);
    std::string text = fmt::format("{{{}}}", low);
    if (take(',')) {
      skip(nested);
      if (peek() == '}') {
        text = fmt::format("{{{},}}", low);
      } else {
        const std::uint32_t high = padded_number(nested);
        if (high < low) fail("an upper bound that is not below the lower one");
        text = fmt::format("{{{},{}}}", low, high);
      }
    }
    expect("}");
    return text;
  }
  std::uint32_t padded_number(bool nested) {
    skip(nested);
    const std::uint32_t value = number();
    skip(nested);
    return value;
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
  std::size_t line_ = 1;
  std::size_t line_at_ = 0;  // where line_ is
  GbnfRules rules_;
  std::uint32_t rule_ = 0;  // whose body is read
  Status status_;
};

// Of each rule whether it is recursive or leads to a rule that is. A rule does not if nothing that it uses
// does: these are found from the rules without uses on, so each use is seen once.
std::vector<bool> lead_to_recursion(const GbnfRules& rules) {
  const auto count = static_cast<std::uint32_t>(rules.all.size());
  std::vector<std::vector<std::uint32_t>> users(count);
  std::vector<std::size_t> open_uses(count);
  std::vector<std::uint32_t> found;
  for (std::uint32_t rule = 0; rule < count; ++rule) {
    for (const GbnfReference& use : rules.all[rule].uses) users[use.rule].push_back(rule);
    open_uses[rule] = rules.all[rule].uses.size();
    if (open_uses[rule] == 0) found.push_back(rule);
  }
  std::vector<bool> out(count, true);
  while (!found.empty()) {
    const std::uint32_t rule = found.back();
    found.pop_back();
    out[rule] = false;
    for (const std::uint32_t user : users[rule]) {
      if (--open_uses[user] == 0) found.push_back(user);
    }
  }
  return out;
}

// What rules are called in Lark, and their text. All rules are defined.
class Writer {
 public:
  explicit Writer(const GbnfRules& rules) : rules_(rules), names_(rules.all.size()) {
    const std::vector<bool> recursive = lead_to_recursion(rules);
    std::size_t place = 0;
    for (const auto& [name, rule] : rules_.numbers)
      names_[rule] = fmt::format("{}{}", recursive[rule] ? "r" : "T", place++);
  }

  std::string write() const {
    std::string out = fmt::format("start: {}\n", names_[rules_.numbers.at("root")]);
    for (const auto& [name, rule] : rules_.numbers) {
      out += names_[rule] + ": ";
      lark(*rules_.all[rule].body, out);
      out += '\n';
    }
    return out;
  }

 private:
  // To the end of `out`: a text that each level handed to the next would be copied as often as it is nested.
  void lark(const Node& node, std::string& out) const {
    switch (node.kind) {
      case Node::Kind::kText: out += node.text; return;
      case Node::Kind::kRule: out += names_[node.rule]; return;
      case Node::Kind::kRepeat:
        in_brackets(node.parts.front(), out);
        out += node.repeat;
        return;
      case Node::Kind::kSequence:
        if (node.parts.empty()) out += "\"\"";
        for (const Node& part : node.parts) {
          if (&part != &node.parts.front()) out += ' ';
          if (part.kind == Node::Kind::kChoice) {
            in_brackets(part, out);
          } else {
            lark(part, out);
          }
        }
        return;
      case Node::Kind::kChoice:
        for (const Node& part : node.parts) {
          if (&part != &node.parts.front()) out += " | ";
          lark(part, out);
        }
        return;
    }
  }
  void in_brackets(const Node& node, std::string& out) const {
    out += '(';
    lark(node, out);
    out += ')';
  }

  const GbnfRules& rules_;
  std::vector<std::string> names_;
};

// The first by the names of the rules, as they are written.
Status check_uses(const GbnfRules& rules) {
  std::vector<std::string_view> names(rules.all.size());
  for (const auto& [name, rule] : rules.numbers) names[rule] = name;
  for (const auto& [name, rule] : rules.numbers) {
    for (const GbnfReference& use : rules.all[rule].uses) {
      if (!rules.all[use.rule].body)
        return invalid_argument(
            fmt::format("line {}: the rule {} is not defined", use.line, names[use.rule]));
    }
  }
  return {};
}

}  // namespace

Result<std::string> gbnf_to_lark(std::string_view gbnf) {
  constexpr std::size_t kBytesMax = 64 << 10;
  constexpr std::size_t kRulesMax = 1000;
  if (gbnf.size() > kBytesMax)
    return invalid_argument(fmt::format("expected at most {} bytes, found {}", kBytesMax, gbnf.size()));
  LOCI_ASSIGN_OR_RETURN(const GbnfRules rules, Parser(gbnf).parse());
  const auto defined =
      std::count_if(rules.all.begin(), rules.all.end(), [](const GbnfRule& rule) { return !!rule.body; });
  if (std::cmp_greater(defined, kRulesMax))
    return invalid_argument(fmt::format("expected at most {} rules, found {}", kRulesMax, defined));
  if (!rules.defines("root")) return invalid_argument("expected a rule named root, where a text begins");
  LOCI_RETURN_IF_ERROR(check_uses(rules));
  return Writer(rules).write();
}

}  // namespace loci
