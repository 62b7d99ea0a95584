// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/pass_executor.h"

#include <utility>

#include "loci/base/check.h"

namespace loci {

void PassExecutor::begin(PassJob job) {
  LOCI_CHECK(begun_.size() <= backend_.info().passes_ahead, "no more passes than the backend takes");
  begun_.push_back({job.pass.id, std::move(job.samplers), std::move(job.requests), job.ahead});
  if (captures_ != nullptr) captures_->begin(job.pass);
  backend_.begin(std::move(job.pass));
}

void PassExecutor::wait() {
  LOCI_CHECK(!begun_.empty(), "a pass ends that has begun");
  backend_.finish(results_);
  projected_ = backend_.projected();
  if (captures_ != nullptr) captures_->end(results_);
  ended_ = std::move(begun_.front());
  begun_.pop_front();
}

PassEnd PassExecutor::end() {
  PassEnd end;
  end.event.pass = ended_.id;
  end.event.projected = projected_;
  end.event.spans.resize(results_.size());
  end.sampled.resize(results_.size());
  // A request's spans stand together. What follows a poisoned one, also in a pass that was planned behind it,
  // is planned again.
  const std::set<RequestId> before = ended_.ahead ? std::move(poisoned_) : std::set<RequestId>();
  poisoned_.clear();
  bool failed = false;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const RequestId request = ended_.requests[i];
    failed = failed || !results_[i].status.ok();
    if (!results_[i].status.ok()) poisoned_.insert(request);
    end.event.spans[i].ok = !poisoned_.contains(request) && !before.contains(request);
  }
  if (failed) end.health = backend_.health();
  sample(end);
  return end;
}

void PassExecutor::sample(PassEnd& end) {
  Begun& pass = ended_;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < results_.size(); ++i) {
    if (!end.event.spans[i].ok) continue;
    if (results_[i].sample) {
      end.sampled[i] = Sampled{.token = *results_[i].sample, .chosen = {}, .top = {}};
      end.event.spans[i].sample = results_[i].sample;
    } else if (pass.samplers[i] != nullptr) {
      rows.push_back(i);
    }
  }
  // Each row has a sampler of its own, so the threads share nothing.
  if (!rows.empty()) {
    backend_.run_tasks(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t row) {
      const std::uint32_t i = rows[row];
      end.sampled[i] = pass.samplers[i]->sample(results_[i].logits);
      if (end.sampled[i]) end.event.spans[i].sample = end.sampled[i]->token;
      end.event.spans[i].end = pass.samplers[i]->grammar_end();
    });
  }
  // The masks for the next pass are made while it runs.
  std::vector<std::shared_ptr<Sampler>> sampled;
  for (const std::uint32_t i : rows) {
    sampled.push_back(std::move(pass.samplers[i]));
  }
  constraints_.prepare(sampled);
}

}  // namespace loci
