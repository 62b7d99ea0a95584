// SPDX-License-Identifier: Apache-2.0
#include "loci/base/version.h"

namespace loci {

const char* const kVersion = LOCI_VERSION;

}  // namespace loci
