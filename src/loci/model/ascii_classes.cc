// SPDX-License-Identifier: Apache-2.0
#include "loci/model/ascii_classes.h"

#include <cctype>

namespace loci {
namespace {

// What stands between the brackets of the class; empty: no such class.
std::string_view members_of(char name) {
  switch (std::tolower(static_cast<unsigned char>(name))) {
    case 'd': return "0-9";
    case 'w': return "A-Za-z0-9_";
    case 's': return " \\t\\n\\r\\f\\v";
    default: return {};
  }
}

}  // namespace

std::string with_ascii_classes(std::string_view regex) {
  std::string out;
  std::size_t depth = 0;  // of classes that are open
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      const char name = regex[++i];
      const std::string_view members = members_of(name);
      const bool negated = std::isupper(static_cast<unsigned char>(name)) != 0;
      if (members.empty()) {
        out += c;
        out += name;
      } else if (depth > 0 && !negated) {
        out += members;
      } else {
        out += negated ? "[^" : "[";
        out += members;
        out += ']';
      }
      continue;
    }
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    out += c;
    // A bracket that comes first in a class closes nothing.
    if (c != '[') continue;
    if (i + 1 < regex.size() && regex[i + 1] == '^') out += regex[++i];
    if (i + 1 < regex.size() && regex[i + 1] == ']') out += regex[++i];
  }
  return out;
}

}  // namespace loci
