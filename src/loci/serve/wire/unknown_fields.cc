// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/unknown_fields.h"

#include <algorithm>

#include "loci/base/printable.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {
constexpr std::size_t kReportedMax = 16;
constexpr std::size_t kNameBytesMax = 64;
}  // namespace

std::vector<std::string> unknown_fields(const Json& object,
                                        std::initializer_list<std::span<const std::string_view>> known) {
  std::vector<std::string> out;
  if (!object.is_object()) return out;
  for (const auto& [key, value] : object.items()) {
    const std::string_view name = key;
    const auto has = [&](std::span<const std::string_view> list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    if (std::any_of(known.begin(), known.end(), has)) continue;
    out.push_back(visible_ascii(utf8_prefix(key, kNameBytesMax)));
    if (out.size() == kReportedMax) break;
  }
  return out;
}

std::vector<std::string> unknown_members(const Json& object, std::string_view path,
                                         std::span<const std::string_view> known) {
  const Json* inner = &object;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const auto found = inner->find(name);  // end() if this is no object
    if (found == inner->end()) return {};
    inner = &*found;
  }
  std::vector<std::string> out = unknown_fields(*inner, {known});
  for (std::string& name : out) name = std::string(path) + "." + name;
  return out;
}

bool UnknownFieldLog::is_new(std::string_view endpoint, std::string_view name) {
  const MutexLock lock(mutex_);
  if (seen_.size() >= kNamesMax) return false;
  return seen_.emplace(endpoint, name).second;
}

}  // namespace loci
