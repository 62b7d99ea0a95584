// SPDX-License-Identifier: Apache-2.0
// Opens a disk store over a file layer of the caller's: DiskStore::open() with the machine's, tests with
// one that breaks.
#pragma once

#include <memory>

#include "loci/base/clock.h"
#include "loci/memory/disk/disk_files.h"
#include "loci/memory/disk/disk_store.h"

namespace loci {

// Files without a descriptor are served by threads alone. `clock` must outlive the store.
Result<std::unique_ptr<DiskStore>> open_disk_store(const DiskStoreOptions& options,
                                                   const MakeDiskFolder& make_folder, const Clock& clock);

}  // namespace loci
