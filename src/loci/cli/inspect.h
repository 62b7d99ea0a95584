// SPDX-License-Identifier: Apache-2.0
// `loci inspect MODEL`: what is in a model's file or directory, for people. Reads only metadata, never the
// weights, so it is instant for a file of any size, and lists files that Loci cannot serve, with the reason.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/model/open_source.h"

namespace loci {

enum class InspectDetail : std::uint8_t { kSummary, kEveryTensor };

// Errors: as open_model_source().
Result<std::string> inspect_model(const std::string& path, InspectDetail detail);

// The report on a source that is open; `path` is what it says about where it is.
std::string inspect_source(const OpenedSource& opened, const std::string& path, InspectDetail detail);

}  // namespace loci
