// `loci inspect FILE`: what is in a model file, for people. Reads only metadata, never the weights, so
// it is instant for a file of any size, and lists files that Loci cannot serve, with the reason.
#pragma once

#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/model/gguf.h"

namespace loci {

enum class InspectDetail : std::uint8_t { kSummary, kEveryTensor };

// Errors: as GgufFile::open.
Result<std::string> inspect_file(const std::string& path, InspectDetail detail);

// The report on a file that is open; `path` is what it says about where the file is.
std::string inspect_gguf(const GgufFile& file, const std::string& path, InspectDetail detail);

}  // namespace loci
