// SPDX-License-Identifier: Apache-2.0
// The version of this build, as CMakeLists.txt has it.
#pragma once

namespace loci {

extern const char* const kVersion;

}  // namespace loci
