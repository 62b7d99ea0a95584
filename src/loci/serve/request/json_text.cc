// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/request/json_text.h"

#include <nlohmann/json.hpp>
#include <string>

namespace loci {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Walks over valid JSON.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  bool take(char wanted) {
    skip_blank();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  // The text of the next value, which is passed over.
  std::string_view value() {
    skip_blank();
    const std::size_t begin = at_;
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) break;  // the end of what holds the value
        --depth;
        ++at_;
      } else if (depth == 0 && (c == ',' || c == ':' || kBlank.find(c) != kBlank.npos)) {
        break;
      } else {
        ++at_;
        continue;
      }
      if (depth == 0) break;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip_blank() {
    while (at_ < text_.size() && kBlank.find(text_[at_]) != kBlank.npos) ++at_;
  }
  void skip_string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

bool spells(std::string_view quoted, std::string_view name) {
  if (quoted.size() < 2) return false;
  if (quoted.find('\\') == quoted.npos) return quoted.substr(1, quoted.size() - 2) == name;
  const auto key = nlohmann::json::parse(quoted, nullptr, false);
  return key.is_string() && key.get_ref<const std::string&>() == name;
}

std::optional<std::string_view> member(std::string_view object, std::string_view name) {
  std::optional<std::string_view> found;
  Cursor cursor(object);
  if (!cursor.take('{') || cursor.take('}')) return found;
  do {
    const std::string_view key = cursor.value();
    if (!cursor.take(':')) return std::nullopt;
    const std::string_view value = cursor.value();
    if (spells(key, name)) found = value;
  } while (cursor.take(','));
  return found;
}

}  // namespace

std::optional<std::string_view> json_member_text(std::string_view json, std::string_view path) {
  std::optional<std::string_view> found = json;
  while (found && !path.empty()) {
    const std::size_t dot = path.find('.');
    found = member(*found, path.substr(0, dot));
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  return found;
}

}  // namespace loci
