// SPDX-License-Identifier: Apache-2.0
// What `loci profile` measures: the curves of the cost model (policy/cost_model.h) on this machine with one
// model. Each figure is the best of a few tries, because other work on the machine only makes a try slower.
//
//   pass        one row behind a short context: reading the weights
//   attention   a chunk of a prompt behind contexts of powers of two (Pensieve §4.3.1), as far as the
//               model's context, the memory for state and the time allow
//   token       a full pass from the begin of a prompt, less its attention
//   passes      of powers of two of rows without logits, of decodes of as many sequences, and of a row alone
//               behind contexts of powers of two
//   projection  in a pass of one row behind blocks that came as hidden states: more of them than caches hold
//   links       many blocks into the device's slots and out of them, as movers bring and take them, until
//               the last byte is there; the latency: a single slice
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/server/profile/profile_file.h"

namespace loci {

struct MeasureOptions {
  std::uint32_t batch_tokens = 512;                        // of a full pass
  std::uint32_t context_tokens = 0;                        // the longest that is measured
  std::uint64_t state_bytes_max = std::uint64_t{1} << 30;  // bytes of state; the measurement takes no more
  Nanos time_limit = 30 * kNanosPerSecond;                 // for computing; each figure gets at least one try
  std::function<void(const std::string&)> say;             // progress, for people
};

// Fills in the curves but the disk's, and the passes. Allocates the backend's blocks, so nobody may have
// allocated them before. Errors: those of Backend::allocate_blocks() and allocate_host().
Status measure_backend(Backend& backend, const MeasureOptions& options, CostProfile& profile);

// The share of this process's processors that other processes have taken since the last call, in percent. It
// is all of the time in /proc/stat that was neither idle nor this process's own. The first call starts the
// measurement.
class BusyMachine {
 public:
  BusyMachine() { percent(); }
  int percent();

 private:
  std::int64_t busy_ = 0, all_ = 0, own_ = 0;  // ticks
};

// The time of a row in a chunk whose rows have `context` tokens before them on average.
struct AttentionSample {
  std::uint32_t context = 0;
  Nanos row = 0;
};
// Makes attention[i] from samples at powers of two, ascending; there are at least two. A straight line
// through all samples says how long a row takes without context. attention[i] is how much longer a row of
// sample i takes. Contexts that lengthen a row by less than a tenth cannot be told from noise; for them the
// line is used.
std::vector<Nanos> fit_attention(const std::vector<AttentionSample>& samples);
// The same of decodes, whose time without context, `alone`, was measured: attention[i] is how much longer
// sample i takes, and below the first sample its share of that. There is at least one.
std::vector<Nanos> decode_attention(const std::vector<AttentionSample>& samples, Nanos alone);

}  // namespace loci
