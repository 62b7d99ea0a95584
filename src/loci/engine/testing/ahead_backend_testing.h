// SPDX-License-Identifier: Apache-2.0
// A backend that samples and takes a pass ahead, on top of one that does neither; for tests without a device.
// It computes a pass only when its end is asked for. So it learns the token of a span that continues from a
// sample no sooner than a device would.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/backend_testing.h"
#include "loci/engine/testing/sampler_testing.h"

namespace loci {

class AheadBackend final : public WrappedBackend {
 public:
  explicit AheadBackend(Backend& inner) : WrappedBackend(inner) {
    info_.samples = true;
    info_.passes_ahead = 1;
  }

  // The device is lost after `passes` further passes have ended.
  void lose_after(std::uint32_t passes) { passes_left_ = passes; }
  std::uint64_t followed() const { return followed_; }  // spans that continued from a sample

  void begin(Pass pass) override {
    LOCI_CHECK(begun_.size() <= info_.passes_ahead, "one pass ahead");
    begun_.push_back(std::move(pass));
  }
  void finish(std::vector<SpanResult>& results) override {
    Pass pass = std::move(begun_.front());
    begun_.pop_front();
    if (lose_now()) {
      results.assign(pass.spans.size(), {});
      for (SpanResult& result : results) result.status = health();
      samples_.assign(pass.spans.size(), std::nullopt);
      return;
    }
    std::vector<std::optional<DeviceSampling>> sampling;
    for (Span& span : pass.spans) {
      if (span.token_of) {
        LOCI_CHECK(span.tokens.size() == 1, "one token goes on from a sample");
        // (If nothing was sampled the host discards the result.)
        span.tokens[0] = samples_.at(*span.token_of).value_or(TokenId(0));
        span.token_of.reset();
        ++followed_;
      }
      sampling.push_back(std::exchange(span.sampling, std::nullopt));
    }
    run_pass(inner_, std::move(pass), results);
    samples_.assign(results.size(), std::nullopt);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!sampling[i] || !results[i].status.ok()) continue;
      samples_[i] = results[i].sample = sample_token(results[i].logits, *sampling[i]);
      results[i].logits = {};
    }
  }
  Status health() const override {
    return lost_ ? Status(StatusCode::kUnavailable, "the device fell off the bus") : Status();
  }

 private:
  bool lose_now() {
    if (passes_left_ && (*passes_left_)-- == 0) {
      passes_left_.reset();
      lost_ = true;
    }
    return lost_;
  }

  std::deque<Pass> begun_;
  std::vector<std::optional<TokenId>> samples_;  // samples of the pass that ended last
  std::optional<std::uint32_t> passes_left_;
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> followed_{0};
};

}  // namespace loci
