// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/instances.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace loci {

Instances::Instances(const InstancesOptions& options)
    : options_(options), tree_(options.tree_entries_max, options.time_to_live) {}

std::vector<std::uint32_t> Instances::update(const std::vector<Member>& members, Nanos now) {
  // A second is between two lists; after more than two the database was away, or slow.
  if (listed_at_ && now - *listed_at_ > 3 * kMemberRenewal) lists_whole_at_ = now + kMemberLifetime;
  listed_at_ = now;
  for (const auto& [number, instance] : all_) instance->is_listed = false;
  for (const Member& member : members) {
    const auto known = std::find_if(all_.begin(), all_.end(),
                                    [&](const auto& one) { return one.second->member.id == member.id; });
    if (known == all_.end()) {
      auto made = std::make_shared<Instance>();
      made->member = member;
      made->number = next_number_++;
      all_.emplace(made->number, made);
      continue;
    }
    Instance& instance = *known->second;
    instance.member = member;
    instance.is_listed = true;
    const std::uint32_t reported = member.running + member.queued;
    instance.reported_beyond = reported - std::min(reported, instance.sent);
  }
  std::set<std::pair<std::string_view, std::uint16_t>> taken;
  for (const Member& member : members) taken.emplace(member.host, member.port);
  std::vector<std::uint32_t> replaced;
  for (const auto& [number, instance] : all_) {
    if (!instance->is_listed && taken.contains({instance->member.host, instance->member.port}))
      replaced.push_back(number);
  }
  for (const std::uint32_t number : replaced) remove(number);
  return replaced;
}

void Instances::remove(std::uint32_t number) {
  const auto at = all_.find(number);
  if (at == all_.end()) return;
  const std::shared_ptr<Instance> gone = at->second;
  all_.erase(at);
  // Each takes itself out.
  const auto enders = std::exchange(gone->enders, {});
  for (const auto& [id, end] : enders) end();
}

const Instances::Session* Instances::session(const RoutedPrompt& prompt, Nanos now) const {
  const auto at = session_of_.find(prompt.continues.value_or(prompt.beginning));
  if (at == session_of_.end() || now - at->second->used_at > options_.time_to_live) return nullptr;
  return &*at->second;
}

std::vector<Instance*> Instances::candidates(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried,
                                             Nanos now) const {
  const auto untried = [&](const Instance& one) {
    return std::find(tried.begin(), tried.end(), one.number) == tried.end();
  };
  const bool is_served = std::any_of(
      all_.begin(), all_.end(), [&](const auto& one) { return one.second->member.serves(prompt.model); });
  const Session* session_now = session(prompt, now);
  const std::uint32_t home = session_now != nullptr ? session_now->instance : 0;
  std::vector<Instance*> best;
  int best_fitness = -1;
  for (const auto& [number, instance] : all_) {
    if (!untried(*instance) || !is_member(*instance, now)) continue;
    if (is_served && !prompt.model.empty() && !instance->member.serves(prompt.model)) continue;
    // New work goes elsewhere; what asks after work there does not.
    if (instance->member.draining && !(number == home && !prompt.is_new_work())) continue;
    const int fitness = instance->avoided_until > now ? 0 : (number == home && !prompt.is_new_work() ? 2 : 1);
    if (fitness > best_fitness) best.clear();
    best_fitness = std::max(best_fitness, fitness);
    if (fitness == best_fitness) best.push_back(instance.get());
  }
  return best;
}

Instances::Choice Instances::choose(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried,
                                    Nanos now) const {
  const std::vector<Instance*> candidates_now = candidates(prompt, tried, now);
  std::vector<std::uint32_t> numbers;
  for (const Instance* one : candidates_now) numbers.push_back(one->number);
  const std::vector<std::uint32_t> matched = tree_.match(prompt.keys, numbers, now);
  const Session* session_now = session(prompt, now);
  // What a conversation said before is not in the request, and is computed anew elsewhere.
  const std::uint64_t before = prompt.continues && session_now != nullptr ? session_now->bytes : 0;
  std::vector<RoutedTo> choices;
  for (std::size_t i = 0; i < candidates_now.size(); ++i) {
    const Instance& one = *candidates_now[i];
    const bool is_home = session_now != nullptr && session_now->instance == one.number;
    choices.push_back({.instance = one.number,
                       .rank = XXH3_64bits(one.member.id.data(), one.member.id.size()),
                       .requests = one.sent + one.reported_beyond,
                       .bytes_before = one.bytes_before,
                       .bytes_seen = std::uint64_t{matched[i]} * kPromptChunkBytes + (is_home ? before : 0),
                       .is_home = is_home});
  }
  const RoutedRequest request{.bytes = prompt.bytes + before,
                              .session = prompt.continues.value_or(prompt.beginning)};
  const std::optional<std::size_t> chosen = route(options_.policy, request, choices);
  if (!chosen) return {};
  const RoutedTo& to = choices[*chosen];
  return {.instance = all_.at(to.instance),
          .unseen_bytes = request.bytes - std::min(request.bytes, to.bytes_seen)};
}

void Instances::remember(const RoutedPrompt& prompt, const Instance& instance, Nanos now) {
  tree_.insert(prompt.keys, instance.number, now);
  if (prompt.bytes == 0) return;
  if (!prompt.continues) remember_session(prompt.beginning, prompt, instance, now);
  if (prompt.is_conversation) remember_session(*prompt.continues, prompt, instance, now);
}

void Instances::remember_session(std::uint64_t key, const RoutedPrompt& prompt, const Instance& instance,
                                 Nanos now) {
  const Session* before = prompt.continues ? session(prompt, now) : nullptr;
  const std::uint64_t bytes = prompt.bytes + (before != nullptr ? before->bytes : 0);
  if (const auto at = session_of_.find(key); at != session_of_.end()) {
    sessions_.erase(at->second);
    session_of_.erase(at);
  } else if (sessions_.size() >= options_.sessions_max) {
    session_of_.erase(sessions_.back().key);
    sessions_.pop_back();
  }
  sessions_.push_front({.key = key, .instance = instance.number, .bytes = bytes, .used_at = now});
  session_of_[key] = sessions_.begin();
}

}  // namespace loci
