// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/toml_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <optional>
#include <sstream>

#include "loci/cli/options/option_table.h"

namespace loci {
namespace {

std::string place(const std::string& name, const toml::source_region& where) {
  return fmt::format("{}:{}", name, where.begin.line);
}

std::string wanted(const Option& option) {
  switch (option.kind) {
    case OptionKind::kInteger: return "an integer";
    case OptionKind::kNumber: return "a number";
    case OptionKind::kBytes: return "a string or an integer";
    case OptionKind::kDuration: return "a string or a number of seconds";
    case OptionKind::kSwitch: return "true, false, \"on\" or \"off\"";
    case OptionKind::kList: return "an array of strings without commas";
    default: return "a string";
  }
}

// The text that Option::set() takes; nothing where the value is of a type that the option does not have.
std::optional<std::string> text_of(const Option& option, const toml::node& node) {
  const OptionKind kind = option.kind;
  const bool fraction = kind == OptionKind::kNumber || kind == OptionKind::kDuration;
  const bool number = fraction || kind == OptionKind::kInteger || kind == OptionKind::kBytes;
  if (const auto* value = node.as_integer(); value != nullptr && number) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point(); value != nullptr && fraction) {
    return fmt::format("{}", value->get());
  }
  if (const auto* value = node.as_boolean(); value != nullptr && kind == OptionKind::kSwitch) {
    return value->get() ? "on" : "off";
  }
  if (const auto* value = node.as_string(); value != nullptr && kind != OptionKind::kList) {
    return value->get();  // an integer too: one above 2^63 has no other form
  }
  const auto* array = node.as_array();
  if (array == nullptr || kind != OptionKind::kList) return std::nullopt;
  std::string out;
  for (const toml::node& element : *array) {
    const auto* value = element.as_string();
    if (value == nullptr || value->get().empty() || value->get().find(',') != std::string::npos)
      return std::nullopt;
    out += (out.empty() ? "" : ",") + value->get();
  }
  return out;
}

std::string shown(const toml::node& node) {
  std::ostringstream out;
  node.visit([&out](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>)
      out << value;
    else if constexpr (toml::is_array<decltype(value)>)
      out << "an array";
    else
      out << "a table";
  });
  return out.str();
}

Status unknown(const std::string& where, const std::string& key, const std::vector<std::string>& known,
               const char* what) {
  const std::string near = nearest_name(key, known);
  return invalid_argument(fmt::format("there is no {} of that name{}", what,
                                      near.empty() ? "" : fmt::format("; is {} meant?", near)),
                          fmt::format("{}: {}", where, key));
}

}  // namespace

Result<std::vector<FileSetting>> parse_options_file(std::string_view text, const std::string& name) {
  std::vector<std::string> groups;
  std::vector<std::string> keys;
  for (const OptionGroup& group : option_groups()) groups.push_back(group.name);
  for (const Option& option : option_table()) keys.push_back(option.key());
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return invalid_argument(fmt::format("not valid TOML: {}", error.description()),
                            place(name, error.source()));
  }
  std::vector<FileSetting> out;
  for (const auto& [group, node] : root) {
    const std::string group_name(group.str());
    const std::string where = place(name, group.source());
    if (std::find(groups.begin(), groups.end(), group_name) == groups.end()) {
      if (!node.is_table()) return unknown(where, group_name, keys, "option");
      return unknown(where, group_name, groups, "group of options");
    }
    const toml::table* table = node.as_table();
    if (table == nullptr)
      return invalid_argument("expected a table, [" + group_name + "]", where + ": " + group_name);
    for (const auto& [key, value] : *table) {
      const std::string full = group_name + "." + std::string(key.str());
      const std::string at = place(name, key.source());
      const Option* option = find_option(full);
      if (option == nullptr) return unknown(at, full, keys, "option");
      std::optional<std::string> found = text_of(*option, value);
      if (!found) {
        return invalid_argument(fmt::format("expected {}, found {}", wanted(*option), shown(value)),
                                fmt::format("{}: {}", at, full));
      }
      out.push_back({.option = option, .text = *std::move(found), .line = key.source().begin.line});
    }
  }
  return out;
}

std::string toml_value(const Option& option, const std::string& text) {
  const auto quoted = [](const std::string& value) {
    std::ostringstream out;
    out << toml::toml_formatter{
        toml::value<std::string>(value),
        toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings};
    return out.str();
  };
  // (An integer may be a word too, "none", or more than TOML's integers hold.)
  const char* letters = option.kind == OptionKind::kNumber ? "+-.0123456789e" : "-0123456789";
  const bool is_number =
      text.size() < 19 && !text.empty() && text.find_first_not_of(letters) == std::string::npos;
  if ((option.kind == OptionKind::kInteger || option.kind == OptionKind::kNumber) && is_number) return text;
  if (option.kind != OptionKind::kList) return quoted(text);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out += (out.empty() ? "" : ", ") + quoted(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return "[" + out + "]";
}

}  // namespace loci
