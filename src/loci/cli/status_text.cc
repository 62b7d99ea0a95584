// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/status_text.h"

#include <algorithm>

#include "loci/base/printable.h"
#include "loci/cli/options/option_table.h"

namespace loci {
namespace {

// An option of commands other than `loci serve`.
constexpr const char* kClientsOption = "tls_ca";

}  // namespace

std::string flag_of(const std::string& option) {
  const std::vector<Option>& table = option_table();
  const bool known = option == kClientsOption ||
                     std::any_of(table.begin(), table.end(),
                                 [&](const Option& one) { return one.key() == one.group + "." + option; });
  if (!known) return option;
  std::string flag = "--" + option;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string for_people(const Status& status) {
  const std::string where = status.field().empty() ? "" : flag_of(status.field()) + ": ";
  return printable(where + status.message(), LineEnds::kKeep);
}

}  // namespace loci
