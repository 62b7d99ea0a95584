// SPDX-License-Identifier: Apache-2.0
// The form in which the log is written (log_line.h), for configurations that name it.
#pragma once

#include <cstdint>

namespace loci {

enum class LogFormat : std::uint8_t { kText, kJson };

}  // namespace loci
