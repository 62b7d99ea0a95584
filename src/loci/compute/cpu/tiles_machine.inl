// SPDX-License-Identifier: Apache-2.0
// The tile operations of AMX (AMX-TILE, AMX-INT8) in machine code. The tests of its kernels passed on a Xeon
// with AMX (docs/numerics.md); on other machines they run with tiles_emulated.inl.
//
// Inline assembly, because g++ 12.2's _tile_loadconfig tells the assembler of part of the 64 bytes only, and
// stores to the rest may be dropped. A process needs the kernel's permission first (instruction_set.cc).

struct MachineTiles {
  LOCI_LANES void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  LOCI_LANES void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int kTile>
  LOCI_LANES void load(const void* from, long stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  LOCI_LANES void store(void* to, long stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  LOCI_LANES void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // kSum += (signed bytes of kSigned) times (unsigned bytes of kUnsigned).
  template <int kSum, int kSigned, int kUnsigned>
  LOCI_LANES void multiply() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kSigned), "i"(kUnsigned));
  }
};
