// The kernels for any processor.
#include <cstdint>
#include <cstring>



#include "loci/compute/cpu/kernel_table.h"
#include "loci/model/tensor.h"

namespace loci {
namespace {
namespace plain {


constexpr int kTileRows = 2;      // activation rows that share one read of weights
constexpr int kAttendRows = 3;    // query rows that share one read of keys
constexpr int kValueVectors = 2;  // vectors of a head's dimensions that are summed together

#include "loci/compute/cpu/simd.inl"
#include "loci/compute/cpu/linear.inl"
#include "loci/compute/cpu/attention.inl"
#include "loci/compute/cpu/elementwise.inl"

}  // namespace plain
}  // namespace

const KernelTable* plain_kernels() { return plain::table("plain"); }

}  // namespace loci
