// SPDX-License-Identifier: Apache-2.0
// One server for one SQLite file. Two servers on one file would each take the other's unfinished replies for
// what a crash left, and fail them; SQLite's own locks keep only its pages whole.
//
// The claim is a lock on a file beside the store (NAME.lock), which goes with the process, whatever ends it.
// The file names the process, so that a second server can say who has the store. Reading (`loci inspect`)
// needs none.
#pragma once

#include <string>

#include "loci/base/status.h"

namespace loci {

// Move-only: dropping it gives the store free. Thread-compatible.
class StoreClaim {
 public:
  StoreClaim() = default;  // of nothing
  StoreClaim(StoreClaim&& other) noexcept;
  StoreClaim& operator=(StoreClaim&& other) noexcept;
  StoreClaim(const StoreClaim&) = delete;
  StoreClaim& operator=(const StoreClaim&) = delete;
  ~StoreClaim();

  // Makes the store's folder where it is missing. Errors: kUnavailable naming the process that has the store,
  // or why the folder or the lock's file cannot be made.
  static Result<StoreClaim> take(const std::string& store_path);

 private:
  explicit StoreClaim(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace loci
