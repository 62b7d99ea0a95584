// SPDX-License-Identifier: Apache-2.0
// The requests that are being answered: who samples for each, and what its listener is to be told.
//
//     begin(a)                   a's sampler and listener
//     make_job(plan)             the next pass computes a: a's sampler goes with it
//     end_pass(sampled)          the pass has ended, and has sampled a token with its log-probabilities
//     tell(plan.outputs)         the core says which token a gets, and that a has ended
//     take() -> [token, end]     whoever called calls a's listener, with no mutex held
//
// It owns samplers and listeners from a request's submission to its end, the spans of the passes that have
// not ended, and what has not been taken yet. It requires plans in the order of the core's steps, and that
// passes end in the order of their jobs. It calls nobody: listeners are the caller's to call.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/status.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/engine.h"
#include "loci/engine/run/inbox.h"
#include "loci/engine/run/pass_executor.h"
#include "loci/engine/run/sampler.h"

namespace loci {

// What a request's listener is to be told.
struct Delivery {
  std::shared_ptr<GenerationListener> listener;
  GenerationEvent event;
};

// Thread-compatible. Calls cost O(log requests), O(spans) for a pass and for each token.
class Replies {
 public:
  // `device_samples`: BackendInfo::samples.
  explicit Replies(bool device_samples) : device_samples_(device_samples) {}

  bool empty() const { return active_.empty(); }
  bool contains(RequestId request) const { return active_.contains(request); }

  // Takes the sampler and the listener of a request that is to arrive at the core.
  void begin(Submission& submission);
  // Takes the pass out of the plan. The job has the samplers for what the host samples; what the device
  // samples is written into the pass.
  PassJob make_job(Plan& plan);
  // The first pass that has not ended does so; `sampled` is parallel to its spans.
  void end_pass(std::vector<std::optional<Sampled>> sampled);
  // The device is lost: requests that end for that say so. The first reason counts.
  void lose_device(Status why);
  // Not ok: the device is lost.
  const Status& lost() const { return lost_; }
  void tell(const std::vector<Output>& outputs);
  // Samplers of requests that were admitted since the last call.
  std::vector<std::shared_ptr<Sampler>> take_begun() { return std::exchange(begun_, {}); }
  // The core's totals as usage counts. A prompt that is scored is a prompt, though the core takes its tokens
  // behind the first one for a reply's, because they are sampled as forced ones (SamplingParams::forced). And
  // a prompt counts once, however many replies it gets.
  void correct(CoreStats& stats) const;
  // What is to be delivered, in order.
  std::vector<Delivery> take() { return std::exchange(deliveries_, {}); }

 private:
  struct Active {
    std::shared_ptr<Sampler> sampler;
    std::shared_ptr<GenerationListener> listener;
    std::uint32_t prompt_tokens = 0;  // that are computed before the reply's first token
    bool tells_computed = false;      // GenerationRequest's
    bool repeats_prompt = false;      // too
    std::uint32_t forced_tokens = 0;  // that are not sampled yet
  };
  // A span of a pass that has not ended.
  struct FlyingSpan {
    SpanPlan plan;
    std::uint32_t end = 0;  // the position behind its last token
  };

  void tell_computed(const FlyingSpan& span);
  void count(const Active& active, ContextSources sources);
  void tell_one(const Started& started);
  void tell_one(const Restored& restored);
  void tell_one(const TokenSampled& token);
  void tell_one(const Finished& finished);
  void tell_one(const Rejected& rejected);
  void end(RequestId request, GenerationEnded ended);

  bool device_samples_;
  std::map<RequestId, Active> active_;
  std::deque<std::vector<FlyingSpan>> flying_spans_;  // of the passes that have not ended
  // Of the pass that ended last, and what was sampled in it.
  std::vector<FlyingSpan> last_spans_;
  std::vector<std::optional<Sampled>> last_sampled_;
  std::size_t told_spans_ = 0;  // of these, those before the place of the token that was told last
  std::vector<std::shared_ptr<Sampler>> begun_;
  std::vector<Delivery> deliveries_;
  // Of all requests so far, what correct() needs.
  std::uint64_t scored_tokens_ = 0, sampled_scored_tokens_ = 0;
  std::array<std::uint64_t, kTiers> repeated_from_{};
  std::array<std::uint64_t, kMissReasons> repeated_computed_{};
  Status lost_;
};

}  // namespace loci
