// SPDX-License-Identifier: Apache-2.0
// A first rough profile, which a server measures by itself while no request runs. It measures the curves of
// `loci profile` (profile_measure.h) in two seconds instead of a minute, on a few slots beside the server's
// own. It works in pieces that are short enough for a request that arrives meanwhile.
//
// A piece is a pass that takes one or two kPiece. If a pass of a single row takes longer, the piece is such a
// pass: a request waits as long for any other's decode. If a full pass takes longer than a piece, products
// and attention are measured in the first layers only and multiplied; there are enough of these layers for
// each group to have its share. A context of more blocks than there are slots reads the same blocks again.
// They may then be in a cache, so attention over long contexts is measured too low; predictions are corrected
// later by what passes take (policy/correction.h). So is projecting, of which a few blocks are measured.
//
// The disk is measured on threads of its own (aside.h). A disk that does not answer delays neither a request
// nor the server's end; after `disk_patience` the assumed costs are kept for it.
//
//     measure(stop)   trial | one row | attention 64, 128, 256 ... | a full pass | projecting | host | disk
//     stopped within one of these: its samples are dropped, and the next call begins it again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/policy/cost_model.h"
#include "loci/server/profile/aside.h"
#include "loci/server/profile/profile_disk.h"
#include "loci/server/profile/profile_measure.h"
#include "loci/server/profile/profile_timing.h"

namespace loci {

struct RoughOptions {
  SpareSlots slots;
  std::uint32_t batch_tokens = 512;   // of a full pass
  std::uint32_t context_tokens = 0;   // the longest that is measured
  std::string disk;                   // directory; empty: the disk is not measured
  std::uint64_t disk_read_bytes = 0;  // of one read of the disk store
  // Called on a thread of its own, which may outlive all else.
  std::function<Result<DiskMeasurement>(const DiskMeasureOptions&)> measure_disk = loci::measure_disk;
  Nanos disk_patience = 10 * kNanosPerSecond;  // how long the disk's answer is waited for
};

// A number of first layers, at least `wanted`. Among them every group has the share that it has of all
// layers, within an eighth.
std::uint32_t representative_layers(const BackendInfo& info, std::uint32_t wanted);

// Thread-compatible. Nobody else may run passes on the backend during a call.
class RoughProfile {
 public:
  static constexpr Nanos kPiece = 50'000'000;
  static constexpr Nanos kComputing = kNanosPerSecond;  // for attention, about

  // Costs that are not measured stay as in `assumed`. `backend` must outlive this.
  RoughProfile(Backend& backend, RoughOptions options, CostCurves assumed);
  ~RoughProfile();  // does not wait for the disk

  // True: all that can be measured is measured (nothing, if contexts have only a few tokens). False: `stop`
  // returned true; the next call continues.
  bool measure(const std::function<bool()>& stop);
  const CostCurves& curves() const { return curves_; }
  // Why the disk could not be measured, for people. Empty: it was measured, or was not to be.
  const std::string& disk_trouble() const { return disk_trouble_; }

 private:
  using Stop = std::function<bool()>;
  using Stage = bool (RoughProfile::*)(const Stop& stop);

  bool choose_layers(const Stop& stop);
  bool measure_row(const Stop& stop);
  bool measure_attention(const Stop& stop);
  bool measure_token(const Stop& stop);
  bool measure_projection(const Stop& stop);
  bool measure_host(const Stop& stop);
  bool measure_disk_links(const Stop& stop);
  void begin_disk();
  // Times a pass through `layers_` layers and scales it up to all layers. False: stopped.
  bool best_of(int tries, std::uint32_t position, std::uint32_t rows, const Stop& stop, Nanos& out);

  Backend& backend_;
  RoughOptions options_;
  CostCurves curves_;
  PassTimer passes_;
  std::size_t stage_ = 0;
  std::uint32_t layers_ = 1;
  Nanos row_in_chunk_ = 0;  // of a chunk at the beginning of a context, in all layers
  std::vector<AttentionSample> samples_;
  Nanos attention_spent_ = 0;
  std::optional<Aside<Result<DiskMeasurement>>> disk_;  // begun and not ended
  std::shared_ptr<std::atomic<bool>> disk_stopped_;     // tells the measurement of the disk to stop
  std::string disk_trouble_;
};

}  // namespace loci
