// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/option.h"

#include <cctype>

namespace loci {
namespace {

// "--max-body": "max_body"
std::string underscored(const std::string& flag) {
  std::string out = flag.substr(flag.find_first_not_of('-'));
  for (char& c : out) {
    if (c == '-') c = '_';
  }
  return out;
}

}  // namespace

std::string Option::environment() const {
  std::string out = "LOCI_" + underscored(flag);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string Option::key() const { return group + "." + underscored(flag); }

}  // namespace loci
