// SPDX-License-Identifier: Apache-2.0
// `loci inspect DIR`: what is in a directory of a disk store (kept state), for people. Only reads, and takes
// no lock; a server may be using it.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Whether the directory holds the state of models, or the files of one.
bool is_state_directory(const std::string& path);

// Of a directory that was given to --disk: its models, and what each has there. Of one model's folder: shape
// and entries, by group of layers. Errors: as survey_disk_store().
Result<std::string> inspect_state(const std::string& path);

}  // namespace loci
