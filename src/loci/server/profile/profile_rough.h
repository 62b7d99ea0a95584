// SPDX-License-Identifier: Apache-2.0
// A first rough profile, which a server measures by itself while nobody asks anything of it: the curves that
// `loci profile` measures (profile_measure.h) in two seconds instead of a minute, on a few slots beside the
// server's own, and in pieces that are short enough for a request that arrives meanwhile.
//
// A piece is a pass of one or two kPiece, or one of a single row where that takes longer, which is what a
// request waits for behind any other's decode. Where a full pass takes longer, products and attention are
// measured in the first layers alone (so many that each group has its share of them) and multiplied. A
// context of more blocks than there are slots reads the same ones again, so attention over what caches do not
// hold is measured too low: what passes take corrects it (policy/correction.h).
//
// The disk is measured on threads of its own (aside.h): one that does not answer holds up neither a request
// nor the end, and after `disk_patience` its costs stay as they are assumed.
//
//     measure(stop)   trial | one row | attention 64, 128, 256 ... | a full pass | host memory | disk
//     stopped in one of these: what it has so far is dropped, and the next call begins it again.
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
  // Called on a thread of its own, which may outlive everybody else.
  std::function<Result<DiskMeasurement>(const DiskMeasureOptions&)> measure_disk = loci::measure_disk;
  Nanos disk_patience = 10 * kNanosPerSecond;  // with the disk's answer
};

// Layers from the first on, at least `wanted` of them, in which every group has its share of the layers, but
// for an eighth.
std::uint32_t representative_layers(const BackendInfo& info, std::uint32_t wanted);

// Thread-compatible; the backend's passes are this one's during a call.
class RoughProfile {
 public:
  static constexpr Nanos kPiece = 50'000'000;
  static constexpr Nanos kComputing = kNanosPerSecond;  // for attention, about

  // `assumed`: what is not measured stays so. `backend` must outlive it.
  RoughProfile(Backend& backend, RoughOptions options, CostCurves assumed);
  ~RoughProfile();  // does not wait for the disk

  // True: all is measured that can be (nothing, where contexts are of a few tokens). False: `stop` said so,
  // and another call goes on.
  bool measure(const std::function<bool()>& stop);
  const CostCurves& curves() const { return curves_; }
  // Empty: it is measured, or was not to be. Else why not, for people.
  const std::string& disk_trouble() const { return disk_trouble_; }

 private:
  using Stop = std::function<bool()>;
  using Stage = bool (RoughProfile::*)(const Stop& stop);

  bool choose_layers(const Stop& stop);
  bool measure_row(const Stop& stop);
  bool measure_attention(const Stop& stop);
  bool measure_token(const Stop& stop);
  bool measure_host(const Stop& stop);
  bool measure_disk_links(const Stop& stop);
  void begin_disk();
  // Through `layers_` layers, as if through all. False: stopped.
  bool best_of(int tries, std::uint32_t position, std::uint32_t rows, const Stop& stop, Nanos& out);

  Backend& backend_;
  RoughOptions options_;
  CostCurves curves_;
  PassTimer passes_;
  std::size_t stage_ = 0;
  std::uint32_t layers_ = 1;
  Nanos row_in_chunk_ = 0;  // of a chunk at the begin, in all layers
  std::vector<AttentionSample> samples_;
  Nanos attention_spent_ = 0;
  std::optional<Aside<Result<DiskMeasurement>>> disk_;  // begun, and not over
  std::shared_ptr<std::atomic<bool>> disk_stopped_;     // that one's
  std::string disk_trouble_;
};

}  // namespace loci
