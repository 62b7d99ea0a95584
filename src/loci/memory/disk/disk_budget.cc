// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/disk_budget.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <thread>
#include <utility>

#include "loci/base/check.h"
#include "loci/memory/disk/disk_file.h"

namespace loci {
namespace {

constexpr std::uint64_t kStepsOfBudget = 32;     // what is taken from another model at a time
constexpr std::uint64_t kHeadroomsOfBudget = 4;  // what is granted ahead while nobody wants it
constexpr const char* kBudgetFileName = "budget";
constexpr int kBudgetTries = 40;
constexpr std::chrono::milliseconds kBudgetPause{50};

bool older(const ModelShare& a, const ModelShare& b) {
  return a.oldest_used_at != 0 && (b.oldest_used_at == 0 || a.oldest_used_at < b.oldest_used_at);
}

// Of whom to want room: who has some to spare, else whose state was unused for longest, if it is not one's
// own.
std::optional<std::size_t> giver(std::span<const ModelShare> shares, std::size_t self, std::uint64_t step) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const ModelShare& one = shares[i];
    if (one.stuck) continue;
    if (i != self && one.granted > one.held + 2 * step) return i;
    if (i == self || one.held == 0 || !older(one, shares[self])) continue;
    if (!best || older(one, shares[*best])) best = i;
  }
  return best;
}

}  // namespace

ShareDecision decide_share(std::span<const ModelShare> shares, std::size_t self, std::uint64_t budget) {
  LOCI_CHECK(self < shares.size(), "a model's own share");
  const ModelShare& own = shares[self];
  const std::uint64_t step = std::max<std::uint64_t>(1, budget / kStepsOfBudget);
  std::uint64_t granted = 0;
  for (const ModelShare& one : shares) granted += one.granted;
  ShareDecision decision{.granted = own.granted, .room = own.granted};
  // A budget that has become smaller, or another server's that is larger.
  const std::uint64_t excess = granted > budget ? granted - budget : 0;
  const bool own_is_oldest =
      std::none_of(shares.begin(), shares.end(), [&](const ModelShare& one) { return older(one, own); });
  const std::uint64_t due = std::max(own.asked, own_is_oldest ? excess : 0);
  if (due > 0) {
    decision.room = own.granted - std::min(own.granted, due);
    // What it still holds beyond is given when it has been dropped.
    decision.granted = std::min(own.granted, std::max(decision.room, own.held));
    decision.gave_all = decision.granted == decision.room;
    return decision;
  }
  const std::uint64_t unclaimed = granted < budget ? budget - granted : 0;
  // Nothing is taken ahead while another waits for it.
  bool others_short = false;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const ModelShare& one = shares[i];
    others_short = others_short || (i != self && one.served && one.held + step > one.granted);
  }
  const std::uint64_t ahead = own.held + (others_short ? step : std::max(step, budget / kHeadroomsOfBudget));
  if (ahead > own.granted) decision.granted += std::min(unclaimed, ahead - own.granted);
  decision.room = decision.granted;
  const bool short_of_room = own.held + step > decision.granted;
  if (!short_of_room && excess == 0) return decision;
  decision.from = giver(shares, self, step);
  if (decision.from) decision.wanted = std::max(step, excess);
  return decision;
}

Result<BudgetFile> BudgetFile::lock(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kBudgetFileName);
  BudgetFile file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto locked = [&] { return ::fcntl(file.descriptor_, F_OFD_SETLK, &whole) == 0; };
  bool got = file.descriptor_ >= 0 && locked();
  // A server that was stopped, or whose disk hangs, holds it for as long.
  for (int i = 0; !got && file.descriptor_ >= 0 && (errno == EAGAIN || errno == EACCES) && i < kBudgetTries;
       ++i) {
    std::this_thread::sleep_for(kBudgetPause);
    got = locked();
  }
  if (!got) {
    return Status(StatusCode::kUnavailable, fmt::format("{}: cannot be locked: {}", path, errno_text(errno)),
                  "disk");
  }
  return file;
}

BudgetFile::BudgetFile(BudgetFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
BudgetFile::~BudgetFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// A line for each model: its id, then what is granted, asked, and when its oldest state was used.
std::vector<ModelShare> BudgetFile::read() const {
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, ::lseek(descriptor_, 0, SEEK_END))), '\0');
  const ssize_t got = ::pread(descriptor_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  std::vector<ModelShare> shares;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    ModelShare one;
    if (fields >> one.model >> one.granted >> one.asked >> one.oldest_used_at) shares.push_back(one);
  }
  return shares;
}

Status BudgetFile::write(std::span<const ModelShare> shares) {
  std::string text;
  for (const ModelShare& one : shares)
    text += fmt::format("{} {} {} {}\n", one.model, one.granted, one.asked, one.oldest_used_at);
  const ssize_t put = ::pwrite(descriptor_, text.data(), text.size(), 0);
  if (put == static_cast<ssize_t>(text.size()) &&
      ::ftruncate(descriptor_, static_cast<off_t>(text.size())) == 0)
    return {};
  return {StatusCode::kUnavailable, fmt::format("the budget's file cannot be written: {}", errno_text(errno)),
          "disk"};
}

}  // namespace loci
