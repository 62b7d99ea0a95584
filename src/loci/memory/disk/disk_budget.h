// SPDX-License-Identifier: Apache-2.0
// How models share the space of one directory. Each holds no more than it was granted, and the grants
// together are no more than the directory's budget. Space that no model has is granted to the first that
// fills up. When none is left, the model whose state was unused for longest gives up some of its own: at once
// if no server has it open, else when its server next looks (DiskKeeper).
//
// The grants are in the file DIR/budget, which a server locks while it reads and changes it. The file may be
// lost: its content follows from the models' folders.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loci/base/status.h"

namespace loci {

struct ModelShare {
  std::string model;                // its folder's name
  std::uint64_t granted = 0;        // bytes that it may hold
  std::uint64_t held = 0;           // bytes that its files take
  std::uint64_t asked = 0;          // bytes of its grant that another model wants
  std::int64_t oldest_used_at = 0;  // when its least recently used state was last used; 0: it has none
  bool served = false;              // a server has it open
  bool stuck = false;               // it cannot give up any now: its files cannot be read or written

  friend bool operator==(const ModelShare&, const ModelShare&) = default;
};

// What a server does about its own model's share.
struct ShareDecision {
  std::uint64_t granted = 0;        // from now on
  std::uint64_t room = 0;           // that it may fill now; less than `granted` while it gives some up
  bool gave_all = false;            // it has given up what was asked of it
  std::optional<std::size_t> from;  // of another model some is wanted...
  std::uint64_t wanted = 0;         // ...so many bytes
};

// Pure. `self` is among `shares`; those that are not served hold what they were granted.
ShareDecision decide_share(std::span<const ModelShare> shares, std::size_t self, std::uint64_t budget);

// The file, locked until it is destroyed. Move-only.
class BudgetFile {
 public:
  // Waits for others, two seconds at most. Errors: kUnavailable naming disk.
  static Result<BudgetFile> lock(const std::string& directory);
  BudgetFile(BudgetFile&& other) noexcept;
  BudgetFile& operator=(BudgetFile&&) = delete;
  ~BudgetFile();

  std::vector<ModelShare> read() const;
  Status write(std::span<const ModelShare> shares);

 private:
  explicit BudgetFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace loci
