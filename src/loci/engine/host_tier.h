// The host tier's memory: for each group of layers a pool of slots of one block's part each, laid out as the
// device's (a layer's slice is contiguous, and so is the whole). It knows nothing of what lies where.
//
// Page-aligned, and touched page by page as it fills: its size costs nothing until then.
//
// Thread-safe as memory is: who reads and who writes a slot is the core's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"

namespace loci {

class HostTier {
 public:
  // `slots` by group; empty: none. Errors: kResourceExhausted naming --host-memory.
  static Result<HostTier> make(const std::vector<LayerGroup>& groups,
                               const std::vector<std::uint32_t>& slots);

  // `index`: of the layer in its group.
  std::span<std::byte> slice(std::uint32_t group, SlotId slot, std::uint32_t index) const;

 private:
  struct Unmap {
    std::uint64_t bytes;
    Unmap() : bytes(0) {}
    explicit Unmap(std::uint64_t size) : bytes(size) {}
    void operator()(std::byte* memory) const;
  };
  struct Pool {
    std::uint32_t slots = 0;
    std::uint32_t layers = 0;
    std::uint64_t slice_bytes = 0;
    std::unique_ptr<std::byte, Unmap> memory;
  };
  std::vector<Pool> pools_;
};

}  // namespace loci
