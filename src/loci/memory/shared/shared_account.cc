// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/shared_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace loci {

SharedAccount::SharedAccount(std::string name, std::string keeps,
                             std::function<void(const std::string&)> warn, const Clock& clock)
    : name_(std::move(name)), keeps_(std::move(keeps)), warn_(std::move(warn)), clock_(clock) {}

SharedStoreStats SharedAccount::stats() const {
  const bool is_up = health_.up();
  const MutexLock lock(mutex_);
  SharedStoreStats stats = stats_;
  stats.up = is_up;
  return stats;
}

void SharedAccount::note(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return;
  if (status.ok()) {
    if (!health_.succeeded()) return;
    {
      const MutexLock lock(mutex_);
      reasons_.clear();
    }
    warn_(fmt::format("the shared store {} is asked again", name_));
    return;
  }
  count(&SharedStoreStats::failures_total, 1);
  if (!health_.failed(clock_.now())) return;
  is_new_reason(status);
  warn_(
      fmt::format("the shared store {} is not asked until it answers again, and the state that it has is "
                  "computed here: {}",
                  name_, status.message()));
}

// Numbers are times that pass and ports, for the most part, so a reason is the same with others.
bool SharedAccount::is_new_reason(const Status& status) {
  std::string reason = status.message();
  std::erase_if(reason, [](char c) { return c >= '0' && c <= '9'; });
  const MutexLock lock(mutex_);
  const bool is_told = std::find(reasons_.begin(), reasons_.end(), reason) != reasons_.end();
  if (is_told || reasons_.size() >= kReasonsMax) return false;
  reasons_.push_back(std::move(reason));
  return true;
}

void SharedAccount::note_probe(const Status& status) {
  const bool was_up = is_up();
  note(status);
  if (was_up || status.ok() || status.code() == StatusCode::kCancelled || !is_new_reason(status)) return;
  warn_(fmt::format("the shared store {} was tried, and is still not asked: {}", name_, status.message()));
}

void SharedAccount::begin_down(const Status& status) {
  health_.begin_down(clock_.now());
  is_new_reason(status);
  warn_(fmt::format("the shared store {} cannot be reached, and is tried again later: {}", name_,
                    status.message()));
}

Status SharedAccount::not_asked() {
  return {StatusCode::kUnavailable, "the shared store did not answer before, and is not asked now"};
}

Status SharedAccount::behind() {
  return {StatusCode::kDeadlineExceeded, "the shared store takes less than it is given"};
}

void SharedAccount::note_dropped(std::string_view why) {
  {
    const MutexLock lock(mutex_);
    ++stats_.deletions_dropped_total;
    if (std::exchange(drops_told_, true)) return;
  }
  warn_(fmt::format("the shared store {} did not take a deletion; the deleted state stays there {}: {}",
                    name_, keeps_, why));
}

void SharedAccount::note_deleted() {
  const MutexLock lock(mutex_);
  drops_told_ = false;
}

}  // namespace loci
