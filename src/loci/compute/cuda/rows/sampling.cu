// SPDX-License-Identifier: Apache-2.0
// Sampling without a copy of the logits and without sorting them.
//
// A token's weight is e^((logit - greatest) / temperature), at most 1, the very bits that run/sampler.cc
// computes; its mass is the weight in fixed point (kMassOne), so that sums of masses are exact in any order
// and a sample's bits depend on nothing else. Rounding to masses moves a draw by less than vocabulary *
// 2^-43.
//
// top-k, top-p, min-p and the draw are all cuts of one order: heavier tokens first, of equal ones the lower
// id. A token's *code* has the weight's bits above the inverted id: greater codes come first. "The k-th
// token", "the token at which the masses reach p" and "the token that the draw falls on" are each found by
// fixing the code ten bits at a time: a histogram (of counts or masses) over the next ten bits of those that
// agree so far, from the greatest down to where what is sought is reached.
//
// Four kernels, the first three over parts of the vocabulary:
//   find_peaks   the greatest logit of each part
//   weigh        masses of parts where nothing is cut; else the row's histogram over the first ten bits
//   gather       the candidates that the cuts may keep: those at or above the histogram's bin of the cut
//   choose       a block a row: the cuts and the draw, among the candidates
// Where nothing is cut the draw goes through the tokens by id, as the engine's does.
#include "loci/base/check.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/rows/rows.h"
#include "loci/compute/cuda/rows/sampling_block.h"
#include "loci/compute/cuda/rows/sampling_row.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {
namespace {

constexpr unsigned kPartThreadsMax = 256;
constexpr unsigned kChooseThreadsMax = 512;
constexpr unsigned kSmallVocabulary = 4096;  // up to it blocks of kSmallThreads do all
constexpr unsigned kSmallThreads = 64;

LOCI_DEVICE Mass mass_at_share(Mass total, float share) {
  const double exact = static_cast<double>(total) * static_cast<double>(share);
  auto mass = static_cast<Mass>(exact);
  if (static_cast<double>(mass) < exact) ++mass;
  return mass < 1 ? 1 : mass > total ? total : mass;
}

__global__ __launch_bounds__(kPartThreadsMax) void find_peaks(SampleArguments p) {
  follow_previous();
  if (blockIdx.x >= *p.count) return;
  const unsigned part = blockIdx.y;
  const RowPlan plan = plan_of(p, p.rows[blockIdx.x]);
  const Space space = space_of(p, blockIdx.x);
  Peak mine{0, UINT32_MAX};
  each_logit(plan.logits, part, p.vocabulary, [&](float logit, unsigned id, bool there) {
    const Peak peak{logit_key(logit), id};
    if (there && better(peak, mine)) mine = peak;
  });
  mine = block_peak(mine, shared_memory<Shared>()->peaks);
  if (threadIdx.x == 0) space.peaks[part] = mine;
  if (plan.greedy) return;
  // What the next kernels add to begins at zero.
  for (unsigned i = part * blockDim.x + threadIdx.x; i < kBins; i += gridDim.y * blockDim.x) {
    space.row->masses[i] = 0;
    space.row->counts[i] = 0;
  }
  if (part == 0 && threadIdx.x == 0) space.row->total = space.row->candidates = 0;
}

__global__ __launch_bounds__(kPartThreadsMax) void weigh(SampleArguments p) {
  follow_previous();
  if (blockIdx.x >= *p.count) return;
  Shared* shared = shared_memory<Shared>();
  const unsigned part = blockIdx.y;
  RowPlan plan = plan_of(p, p.rows[blockIdx.x]);
  if (plan.greedy) return;
  const Space space = space_of(p, blockIdx.x);
  settle(plan, row_peak(space, p.vocabulary, shared->peaks));
  if (plan.greedy) return;
  const bool counted = plan.top_k > 0, weighed = !counted && plan.top_p < 1.0f;
  if (!plan.whole && !counted && !weighed) return;  // min-p alone needs no sums
  for (unsigned i = threadIdx.x; i < kBins; i += blockDim.x) shared->low[i] = shared->high[i] = 0;
  __syncthreads();
  Mass mine = 0;
  each_logit(plan.logits, part, p.vocabulary, [&](float logit, unsigned, bool there) {
    const unsigned weight = there ? weigh_logit(plan, logit) : 0;
    if (weight == 0) return;
    const unsigned bin = weight >> (kWeightBits - kDigitBits);
    const Mass mass = mass_of(weight);
    mine += mass;
    if (counted) atomicAdd(&shared->low[bin], 1u);
    if (weighed && weight >= plan.weight_min) add_mass(&shared->low[bin], &shared->high[bin], mass);
  });
  mine = block_total(mine, shared->scratch);
  if (threadIdx.x == 0) {
    if (plan.whole) space.part_masses[part] = mine;
    if (weighed) atomicAdd(&space.row->total, mine);
  }
  if (!counted && !weighed) return;
  for (unsigned i = threadIdx.x; i < kBins; i += blockDim.x) {
    const Mass mass = static_cast<Mass>(shared->high[i]) << 32 | shared->low[i];
    if (counted && mass != 0) atomicAdd(&space.row->counts[i], static_cast<unsigned>(mass));
    if (weighed && mass != 0) atomicAdd(&space.row->masses[i], mass);
  }
}

__global__ __launch_bounds__(kPartThreadsMax) void gather(SampleArguments p) {
  follow_previous();
  if (blockIdx.x >= *p.count) return;
  Shared* shared = shared_memory<Shared>();
  RowPlan plan = plan_of(p, p.rows[blockIdx.x]);
  if (plan.greedy || plan.whole) return;
  const Space space = space_of(p, blockIdx.x);
  settle(plan, row_peak(space, p.vocabulary, shared->peaks));
  if (plan.greedy) return;
  unsigned least = 1;  // bits of a weight
  if (plan.top_k > 0) {
    const auto of = [&](unsigned bin) { return static_cast<Mass>(space.row->counts[bin]); };
    least = find_cut(plan.top_k, of, &shared->cut, shared->scratch).bin << (kWeightBits - kDigitBits);
  } else if (plan.top_p < 1.0f) {
    const auto of = [&](unsigned bin) { return space.row->masses[bin]; };
    const Mass wanted = mass_at_share(space.row->total, plan.top_p);
    least = find_cut(wanted, of, &shared->cut, shared->scratch).bin << (kWeightBits - kDigitBits);
  }
  if (plan.top_k == 0 && least < plan.weight_min) least = plan.weight_min;
  if (least == 0) least = 1;
  // Logits that are clearly too low need no exponential.
  const float logit_weight = logf(__uint_as_float(least)) - 1e-3f;
  each_logit(plan.logits, blockIdx.y, p.vocabulary, [&](float logit, unsigned id, bool there) {
    there = there && !((logit - plan.best) * plan.scale < logit_weight);
    const unsigned weight = there ? weigh_logit(plan, logit) : 0;
    const unsigned takers = __ballot_sync(~0u, weight >= least);
    if (takers == 0) return;
    unsigned begin = 0;
    if (lane_id() == 0) begin = atomicAdd(&space.row->candidates, static_cast<unsigned>(__popc(takers)));
    begin = __shfl_sync(~0u, begin, 0);
    if (weight < least) return;
    space.candidates[begin + __popc(takers & ((1u << lane_id()) - 1))] = make_uint2(weight, id);
  });
}

// The candidates of a row, by code. Their order in memory is not fixed; nothing depends on it.
class Candidates {
 public:
  LOCI_DEVICE Candidates(const Space& space, unsigned vocabulary, Shared* shared)
      : list_(space.candidates),
        count_(space.row->candidates),
        id_bits_(vocabulary <= kBins ? kDigitBits : 2 * kDigitBits),
        shared_(shared) {}

  LOCI_DEVICE unsigned count() const { return count_; }
  LOCI_DEVICE Mass lowest_of(unsigned weight) const { return static_cast<Mass>(weight) << id_bits_; }
  LOCI_DEVICE unsigned id_of(Mass code) const {
    return static_cast<unsigned>(~code & ((Mass{1} << id_bits_) - 1));
  }

  // Of codes from `least` on.
  LOCI_DEVICE Mass mass(Mass least) const {
    Mass mine = 0;
    for (unsigned i = threadIdx.x; i < count_; i += blockDim.x) {
      if (code_of(list_[i]) >= least) mine += mass_of(list_[i].x);
    }
    return block_total(mine, shared_->scratch);
  }

  // The greatest code such that those from it on, none below `least`, hold `wanted` tokens or mass.
  enum class Of { kTokens, kMass };
  template <Of of>
  LOCI_DEVICE Mass reach(Mass wanted, Mass least) const {
    Mass prefix = 0;
    for (int shift = static_cast<int>(kWeightBits - kDigitBits + id_bits_); shift >= 0;
         shift -= static_cast<int>(kDigitBits)) {
      for (unsigned i = threadIdx.x; i < kBins; i += blockDim.x) shared_->low[i] = shared_->high[i] = 0;
      __syncthreads();
      for (unsigned i = threadIdx.x; i < count_; i += blockDim.x) {
        const uint2 candidate = list_[i];
        const Mass code = code_of(candidate);
        if (code < least || code >> shift >> kDigitBits != prefix) continue;
        const unsigned bin = static_cast<unsigned>(code >> shift) & (kBins - 1);
        if (of == Of::kTokens) {
          atomicAdd(&shared_->low[bin], 1u);
        } else {
          add_mass(&shared_->low[bin], &shared_->high[bin], mass_of(candidate.x));
        }
      }
      __syncthreads();
      const auto held = [&](unsigned bin) {
        return static_cast<Mass>(shared_->high[bin]) << 32 | shared_->low[bin];
      };
      const Cut cut = find_cut(wanted, held, &shared_->cut, shared_->scratch);
      wanted -= cut.before;
      prefix = prefix << kDigitBits | cut.bin;
      __syncthreads();
    }
    return prefix;
  }

 private:
  LOCI_DEVICE Mass code_of(const uint2& candidate) const {
    return static_cast<Mass>(candidate.x) << id_bits_ |
           (~static_cast<Mass>(candidate.y) & ((Mass{1} << id_bits_) - 1));
  }
  const uint2* list_;
  unsigned count_;
  unsigned id_bits_;
  Shared* shared_;
};

// In [0, total)
LOCI_DEVICE Mass draw_mass(double uniform, Mass total) {
  const auto mass = static_cast<Mass>(uniform * static_cast<double>(total));
  return mass < total ? mass : total - 1;
}

LOCI_DEVICE unsigned choose_some(const RowPlan& plan, const Candidates& candidates, Mass total,
                                 double uniform) {
  using Of = Candidates::Of;
  Mass least = 0;
  if (plan.top_k > 0 && plan.top_k < candidates.count()) {
    least = candidates.reach<Of::kTokens>(plan.top_k, least);
  }
  Mass kept = candidates.mass(least);
  if (plan.top_p < 1.0f) {
    const Mass wanted = mass_at_share(plan.top_k > 0 ? kept : total, plan.top_p);
    if (wanted < kept) least = candidates.reach<Of::kMass>(wanted, least);
  }
  const Mass least_of_min_p = candidates.lowest_of(plan.weight_min);
  if (least < least_of_min_p) least = least_of_min_p;
  kept = candidates.mass(least);
  return candidates.id_of(candidates.reach<Of::kMass>(draw_mass(uniform, kept) + 1, least));
}

// The id on which the draw falls; the thread that finds it writes it.
LOCI_DEVICE void choose_whole(const RowPlan& plan, const Space& space, unsigned vocabulary, double uniform,
                              Shared* shared, std::uint32_t* sample) {
  Mass mine = 0, total;
  const unsigned parts = parts_of(vocabulary);
  if (threadIdx.x < parts) mine = space.part_masses[threadIdx.x];
  Mass before = sum_before(mine, total, shared->scratch);
  const Mass drawn = draw_mass(uniform, total);
  if (before <= drawn && drawn < before + mine) shared->cut = {threadIdx.x, before};
  __syncthreads();
  const Cut part = shared->cut;
  const unsigned each = kPartTokens / blockDim.x, first = part.bin * kPartTokens + threadIdx.x * each;
  mine = 0;
  for (unsigned id = first; id < first + each && id < vocabulary; ++id) {
    mine += mass_of(weigh_logit(plan, plan.logits[id]));
  }
  before = part.before + sum_before(mine, total, shared->scratch);
  if (!(before <= drawn && drawn < before + mine)) return;
  for (unsigned id = first;; ++id) {
    before += mass_of(weigh_logit(plan, plan.logits[id]));
    if (drawn < before) {
      *sample = id;
      return;
    }
  }
}

__global__ __launch_bounds__(kChooseThreadsMax) void choose(SampleArguments p) {
  follow_previous();
  if (blockIdx.x >= *p.count) return;
  Shared* shared = shared_memory<Shared>();
  const SampleRow row = p.rows[blockIdx.x];
  RowPlan plan = plan_of(p, row);
  const Space space = space_of(p, blockIdx.x);
  const Peak peak = row_peak(space, p.vocabulary, shared->peaks);
  settle(plan, peak);
  if (plan.greedy) {
    if (threadIdx.x == 0) p.samples[row.sample] = peak.id;
  } else if (plan.whole) {
    choose_whole(plan, space, p.vocabulary, row.uniform, shared, p.samples + row.sample);
  } else {
    const Candidates candidates(space, p.vocabulary, shared);
    const unsigned id = choose_some(plan, candidates, space.row->total, row.uniform);
    if (threadIdx.x == 0) p.samples[row.sample] = id;
  }
}

static_assert(kSampleVocabularyMax / kPartTokens <= kChooseThreadsMax &&
              kSampleVocabularyMax <= kBins * kBins);

}  // namespace

std::uint64_t sample_workspace_bytes(std::uint32_t rows_max, std::uint32_t vocabulary) {
  return rows_max * row_space_bytes(vocabulary);
}

void sample(const SampleArguments& arguments, Stream& stream) {
  const SampleArguments& a = arguments;
  LOCI_CHECK(a.vocabulary > 0 && a.vocabulary <= kSampleVocabularyMax, "a vocabulary that sampling serves");
  constexpr auto kSharedBytes = static_cast<std::uint32_t>(sizeof(Shared));
  const bool small = a.vocabulary <= kSmallVocabulary;
  const LaunchShape parts{.grid = {a.count_max, parts_of(a.vocabulary)},
                          .block = {small ? kSmallThreads : kPartThreadsMax},
                          .shared_bytes = kSharedBytes};
  launch("sample_peaks", find_peaks, parts, a, stream);
  launch("sample_weigh", weigh, parts, a, stream);
  launch("sample_gather", gather, parts, a, stream);
  launch("sample_choose", choose,
         {.grid = {a.count_max},
          .block = {small ? kSmallThreads : kChooseThreadsMax},
          .shared_bytes = kSharedBytes},
         a, stream);
}

}  // namespace loci::cuda
