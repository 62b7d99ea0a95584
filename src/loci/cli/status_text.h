// SPDX-License-Identifier: Apache-2.0
// Errors as people who use the command line read them.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// The flag for a field that a lower floor names: "--device-memory" for "device_memory". A name that is no
// option's is returned as it is.
std::string flag_of(const std::string& option);

// The flag or field at fault, then what is wrong with it; no code. A message may quote a file, a server or a
// model, so its control characters other than line ends and tabs are replaced.
std::string for_people(const Status& status);

}  // namespace loci
