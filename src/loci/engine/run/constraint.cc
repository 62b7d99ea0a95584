// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/constraint.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "loci/engine/run/sampler.h"

namespace loci {

Constraint::Constraint(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), mask_(grammar_->mask_words()) {}

void Constraint::prepare() {
  const MutexLock lock(mutex_);
  prepare_locked();
}

void Constraint::resume_after(std::vector<TokenId> said) {
  const MutexLock lock(mutex_);
  said_ = std::move(said);
}

void Constraint::begin_locked() {
  Result<GrammarMatcher> matcher = grammar_->matcher();
  if (!matcher.ok()) {
    state_ = fail(matcher.status());
    return;
  }
  matcher_ = std::move(matcher).value();
  for (const TokenId token : std::exchange(said_, {})) {
    const Result<MatchState> state = matcher_->accept(token);
    state_ = state.ok() ? *state : fail(state.status());
    if (state_ == MatchState::kStuck && status_.ok())
      state_ = fail(invalid_argument("the reply's beginning is not what the grammar allows"));
    if (state_ == MatchState::kStuck || state_ == MatchState::kComplete) return;
  }
}

void Constraint::prepare_locked() {
  if (ready_) return;
  ready_ = true;
  if (!matcher_ && status_.ok()) begin_locked();
  if (!status_.ok() || state_ == MatchState::kComplete) {
    std::fill(mask_.begin(), mask_.end(), 0u);
    return;
  }
  const Result<MatchState> state = matcher_->mask(mask_);
  state_ = state.ok() ? *state : fail(state.status());
}

MatchState Constraint::fail(const Status& status) {
  status_ = invalid_argument("the reply can't go on: its grammar fails here: " + status.message());
  std::fill(mask_.begin(), mask_.end(), 0u);
  return MatchState::kStuck;
}

MatchState Constraint::next() {
  const MutexLock lock(mutex_);
  prepare_locked();
  return state_;
}

MatchState Constraint::accept(TokenId token) {
  const MutexLock lock(mutex_);
  ready_ = false;
  const Result<MatchState> state = matcher_->accept(token);
  state_ = state.ok() ? *state : fail(state.status());
  return state_;
}

ConstraintWorker::ConstraintWorker() : thread_([this] { run(); }) {}

ConstraintWorker::~ConstraintWorker() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ConstraintWorker::prepare(const std::vector<std::shared_ptr<Sampler>>& samplers) {
  const auto is_constrained = [](const auto& sampler) { return sampler->constrained(); };
  if (std::ranges::none_of(samplers, is_constrained)) return;
  {
    const MutexLock lock(mutex_);
    std::ranges::copy_if(samplers, std::back_inserter(queue_), is_constrained);
  }
  changed_.notify_one();
}

void ConstraintWorker::run() {
  pthread_setname_np(pthread_self(), "loci-grammar");
  std::vector<std::weak_ptr<Sampler>> samplers;
  while (true) {
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      std::swap(samplers, queue_);
    }
    for (const std::weak_ptr<Sampler>& one : samplers) {
      if (const std::shared_ptr<Sampler> sampler = one.lock()) sampler->prepare();
    }
    samplers.clear();
  }
}

}  // namespace loci
