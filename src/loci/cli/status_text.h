// SPDX-License-Identifier: Apache-2.0
// An error as people read it: the flag or field at fault, then what is wrong; no code.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

inline std::string for_people(const Status& status) {
  return status.field().empty() ? status.message() : status.field() + ": " + status.message();
}

}  // namespace loci
