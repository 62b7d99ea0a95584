// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/instances.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "loci/policy/routing/named_chunks.h"
#include "loci/serve/generation/prefill.h"

namespace loci {
namespace {

Nanos nanos_of(double predicted) { return static_cast<Nanos>(std::min(predicted, 1e18)); }

// Predictions may be off; but a member that does not begin must not keep the client for much longer than the
// instance itself would have. (One that has begun goes on: to begin anew elsewhere would take longer still.)
Nanos begin_limit(Nanos predicted) {
  constexpr Nanos kPatience = kNanosPerSecond;
  return std::min(kPatience + 2 * std::min(predicted, kPrefillLimitMax), kPrefillLimitMax);
}
// Half of the time that the prefill member is predicted to take. Whoever waited then computes the prompt
// itself, and has lost no more than that half.
Nanos silence_limit(Nanos predicted) {
  return std::clamp(predicted / 2, kPrefillSilenceMin, kPrefillSilenceMax);
}

}  // namespace

Instances::Instances(const InstancesOptions& options)
    : options_(options), tree_(options.tree_entries_max, options.time_to_live) {}

void Instance::note_prefill(PrefillEnd end, Nanos now) {
  switch (end) {
    case PrefillEnd::kDone:
      prefills.succeed();
      in_time.succeed();
      break;
    case PrefillEnd::kLate:
    case PrefillEnd::kQuiet: in_time.fail(now); break;
    case PrefillEnd::kUnreached:
    case PrefillEnd::kLost: prefills.fail(now); break;
    case PrefillEnd::kRefused:
    case PrefillEnd::kUntold:
    case PrefillEnd::kNone: break;
  }
}

// Example: A dies and B is born at its address. For some seconds a list has both. B is unknown, so it
// replaces A; from then on A is left out for as long as B is listed. Were A the one that lives (of two in a
// first list nobody can tell), it is back when B's row has ended.
void Instances::replace(const Instance& dead, const std::string& by) {
  for (auto& [id, its] : replaced_by_) {
    if (its == dead.member.id) its = by;
  }
  replaced_by_[dead.member.id] = by;
  remove(dead.number);
}

void Instances::forget_replaced(const std::vector<Member>& members) {
  std::set<std::string_view> ids;
  for (const Member& member : members) ids.insert(member.id);
  std::erase_if(replaced_by_,
                [&](const auto& one) { return !ids.contains(one.first) || !ids.contains(one.second); });
}

// Example: four members renew their rows each second. The database's standby is gone, so that no commit ends,
// while lists come as before. After five seconds all four rows are too old. If a single member stands still
// or was killed, its row is the only one. (If most of them were killed at once, those are taken for living
// until they do not answer: whoever knows an instance that is not listed asks it, and removes it.)
bool Instances::are_most_old(std::span<const std::string> old) const {
  std::size_t listed = 0, aged = 0;
  for (const auto& [number, instance] : all_) {
    if (instance->is_listed)
      ++listed;
    else
      aged += std::ranges::binary_search(old, instance->member.id);
  }
  return aged > listed;
}

std::vector<std::uint32_t> Instances::update(const std::vector<Member>& members, Nanos now,
                                             std::span<const std::string> old) {
  // A second is between two lists; after more than two the database was away, or slow.
  if (listed_at_ && now - *listed_at_ > 3 * kMemberRenewal) lists_whole_at_ = now + kMemberLifetime;
  listed_at_ = now;
  for (const auto& [number, instance] : all_) instance->is_listed = false;
  forget_replaced(members);
  const auto find = [this](const auto& is_it) -> std::shared_ptr<Instance> {
    const auto at = std::ranges::find_if(all_, [&](const auto& one) { return is_it(*one.second); });
    return at == all_.end() ? nullptr : at->second;
  };
  std::vector<std::uint32_t> replaced;
  for (const Member& member : members) {
    if (replaced_by_.contains(member.id)) continue;
    const auto known = find([&](const Instance& one) { return one.member.id == member.id; });
    if (known == nullptr) {
      const auto before = find([&](const Instance& one) {
        return one.member.host == member.host && one.member.port == member.port;
      });
      if (before != nullptr) {
        replaced.push_back(before->number);
        replace(*before, member.id);
      }
      auto made = std::make_shared<Instance>(Instance{
          .member = member, .number = next_number_++, .held = nothing_held(), .costs = {}, .enders = {}});
      all_.emplace(made->number, made);
      continue;
    }
    known->member = member;
    known->is_listed = true;
    const std::uint32_t reported = member.running + member.queued;
    known->reported_beyond = reported - std::min(reported, known->sent);
  }
  if (are_most_old(old)) lists_whole_at_ = now + kMemberLifetime;
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

ServedAs Instances::served_best(const RoutedPrompt& prompt) const {
  ServedAs best = ServedAs::kNothing;
  for (const auto& [number, one] : all_) best = std::max(best, one->member.serves(prompt.model));
  return best;
}

std::vector<Instance*> Instances::candidates(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried,
                                             Nanos now) const {
  const ServedAs best_service = served_best(prompt);
  std::vector<Instance*> out = candidates_serving(best_service, prompt, tried, now);
  // Those that have the name drain, or were tried.
  if (out.empty() && best_service == ServedAs::kNamed)
    out = candidates_serving(ServedAs::kAnything, prompt, tried, now);
  return out;
}

std::vector<Instance*> Instances::candidates_serving(ServedAs least, const RoutedPrompt& prompt,
                                                     std::span<const std::uint32_t> tried, Nanos now) const {
  const auto untried = [&](const Instance& one) {
    return std::find(tried.begin(), tried.end(), one.number) == tried.end();
  };
  const Session* session_now = session(prompt, now);
  const std::uint32_t home = session_now != nullptr ? session_now->instance : 0;
  std::vector<Instance*> best;
  int best_fitness = -1;
  for (const auto& [number, instance] : all_) {
    if (!untried(*instance) || !is_member(*instance, now)) continue;
    if (!prompt.model.empty() && instance->member.serves(prompt.model) < least) continue;
    // New work goes elsewhere; what asks after work there does not.
    if (instance->member.draining && !(number == home && !prompt.is_new_work())) continue;
    const bool has_the_work = number == home && !prompt.is_new_work();
    const int fitness = instance->is_avoided(now)                       ? 0
                        : has_the_work                                  ? 3
                        : instance->member.role == MemberRole::kPrefill ? 1
                                                                        : 2;
    if (fitness > best_fitness) best.clear();
    best_fitness = std::max(best_fitness, fitness);
    if (fitness == best_fitness) best.push_back(instance.get());
  }
  return best;
}

std::vector<Instance*> Instances::helpers(const RoutedPrompt& prompt,
                                          const std::vector<Instance*>& candidates, Nanos now) const {
  std::vector<Instance*> out;
  const bool always = options_.handover == Handover::kAlways;
  if (!prompt.is_generated || !prompt.may_be_handed ||
      !(always || options_.policy == RoutingPolicy::kFirstToken))
    return out;
  for (const auto& [number, one] : all_) {
    const Member& member = one->member;
    if (member.role == MemberRole::kPrefill && member.peer_port != 0 && !member.draining &&
        is_member(*one, now) && !one->is_avoided(now) && (always || one->costs) &&
        std::ranges::find(candidates, one.get()) == candidates.end())
      out.push_back(one.get());
  }
  return out;
}

std::optional<Instances::Prefill> Instances::prefill_for(const RoutedRequest& request, const Instance& decode,
                                                         const RoutedTo& to,
                                                         const std::vector<Instance*>& helpers,
                                                         std::span<const RoutedTo> views,
                                                         Choice& choice) const {
  const bool always = options_.handover == Handover::kAlways;
  if (decode.member.peer_port == 0 || !(always || decode.costs)) return std::nullopt;
  // Of those whose state is the instance's.
  std::vector<Instance*> alike;
  std::vector<RoutedTo> theirs;
  for (std::size_t i = 0; i < helpers.size(); ++i) {
    const Member& member = helpers[i]->member;
    if (member.fingerprint != decode.member.fingerprint || member.numerics != decode.member.numerics ||
        member.block_tokens != decode.member.block_tokens)
      continue;
    alike.push_back(helpers[i]);
    theirs.push_back(views[i]);
  }
  const std::optional<PrefillChoice> chosen =
      always ? always_prefill(options_.policy, request, to, theirs) : choose_prefill(request, to, theirs);
  if (!chosen) return std::nullopt;
  choice.work_bytes = predicted_work_bytes(request, chosen->decode);
  if (choice.predicted) choice.predicted = nanos_of(chosen->first_token);
  const Instance& prefill = *alike[chosen->place];
  const bool is_predicted = choice.predicted && prefill.costs;
  const Nanos computed = is_predicted ? nanos_of(chosen->computed) : 0;
  return Prefill{.instance = all_.at(prefill.number),
                 .work_bytes = predicted_work_bytes(request, theirs[chosen->place]),
                 .predicted = computed,
                 .begin_limit = is_predicted ? begin_limit(computed) : kPrefillLimitMax,
                 .silence_limit = is_predicted ? silence_limit(computed) : kPrefillSilenceMax};
}

namespace {

// What was said before, in a conversation of which this front knows nothing but who has it.
constexpr std::uint64_t kUnknownBefore = 8 << 10;
// That a request costs this front at most, of all instances together, but for kLooksMin of each.
constexpr std::uint32_t kLooksMax = 8'192, kLooksMin = 16;
// For so long a conversation's last turn is taken to be where it was sent, though it does not say so yet.
constexpr Nanos kComing = 10 * kNanosPerSecond;

// What a request waits for peers' answers (docs/cluster.md#state-from-one-another: 20 ms at least).
constexpr double kAskPeers = 20'000'000;

// From so many members on that tell costs, what one tells is believed only as far as it is like the others'.
constexpr std::size_t kTellersMin = 3;

// Nothing takes no time, whatever a member says.
double of_byte(std::uint32_t chunk_us) {
  return static_cast<double>(std::max(chunk_us, 1u)) * 1'000 / static_cast<double>(kPromptChunkBytes);
}

RoutedCosts routed_costs(const FeedCosts& costs) {
  return {.compute = of_byte(costs.compute_us),
          .host = of_byte(costs.host_us),
          .disk = of_byte(costs.disk_us),
          .peer = of_byte(costs.peer_us),
          .ask_peers = kAskPeers};
}

// Of the text that an instance lacks, what some other instance that publishes has or was sent: it may be read
// from there.
void add_peers(const std::vector<Instance*>& candidates, std::uint64_t bytes, std::vector<RoutedTo>& views) {
  // Who has most sees what the second one has.
  std::size_t first = views.size();
  std::uint64_t most = 0, second = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!candidates[i]->costs) continue;
    const std::uint64_t seen = views[i].bytes_seen();
    if (first == views.size() || seen > most) {
      second = std::exchange(most, seen);
      first = i;
    } else {
      second = std::max(second, seen);
    }
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!candidates[i]->costs) continue;
    const std::uint64_t others = i == first ? second : most, own = views[i].bytes_seen();
    views[i].bytes_peer = std::min(others - std::min(others, own), bytes - std::min(bytes, own));
  }
}

}  // namespace

std::vector<RoutedCosts> Instances::told_costs(const RoutedPrompt& prompt) const {
  std::vector<RoutedCosts> all, serving;
  const ServedAs best_service = served_best(prompt);
  for (const auto& [number, one] : all_) {
    if (!one->costs) continue;
    all.push_back(routed_costs(*one->costs));
    if (one->member.serves(prompt.model) == best_service) serving.push_back(all.back());
  }
  return serving.empty() ? all : serving;
}

std::vector<RoutedTo> Instances::views(const RoutedPrompt& prompt, const std::vector<Instance*>& candidates,
                                       std::uint64_t& before, Nanos now) const {
  const bool looks = options_.policy == RoutingPolicy::kFirstToken;
  std::vector<std::uint32_t> numbers;
  for (const Instance* one : candidates) numbers.push_back(one->number);
  const std::vector<std::uint32_t> sent = tree_.match(prompt.keys, numbers, now);
  const Session* session_now = session(prompt, now);
  // What a conversation said before is not in the request, and is computed anew elsewhere.
  before = prompt.continues && session_now != nullptr ? session_now->bytes : 0;
  if (looks && prompt.continues && session_now == nullptr &&
      std::any_of(candidates.begin(), candidates.end(),
                  [&](const Instance* one) { return one->held.find(*prompt.continues).has_value(); }))
    before = kUnknownBefore;
  const std::vector<RoutedCosts> told = looks ? told_costs(prompt) : std::vector<RoutedCosts>();
  const RoutedCosts usual = usual_costs(told);  // of those that tell none, too
  const auto looks_max = static_cast<std::uint32_t>(kLooksMax / std::max<std::size_t>(1, candidates.size()));
  std::vector<RoutedTo> out;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Instance& one = *candidates[i];
    const bool tells = looks && one.costs.has_value();
    const bool is_home =
        session_now != nullptr && (session_now->instance == one.number || session_now->prefill == one.number);
    RoutedTo to{.instance = one.number,
                .rank = XXH3_64bits(one.member.id.data(), one.member.id.size()),
                .requests = one.sent + one.reported_beyond,
                .bytes_before = one.bytes_before,
                .costs = usual,
                .usual_compute = usual.compute,
                .is_home = is_home};
    HeldChunks chunks{.sent = static_cast<std::uint32_t>(chunks_of_names(sent[i]))};
    if (tells) {
      to.costs = routed_costs(*one.costs);
      if (told.size() >= kTellersMin) to.costs = believed_costs(to.costs, usual);
      chunks = one.held.match(prompt.keys, sent[i], std::max(looks_max, kLooksMin));
    }
    const std::optional<Tier> end =
        tells && prompt.continues ? one.held.find(*prompt.continues) : std::nullopt;
    const auto bytes_in = [&](Tier tier) {
      const std::uint64_t of_before = end == tier ? before : 0;
      return of_before + std::uint64_t{chunks.in[static_cast<std::size_t>(tier)]} * kPromptChunkBytes;
    };
    to.bytes_device = bytes_in(Tier::kDevice);
    to.bytes_host = bytes_in(Tier::kHost);
    to.bytes_disk = bytes_in(Tier::kDisk);
    const bool is_coming = is_home && !end && (!tells || now - session_now->used_at <= kComing);
    to.bytes_sent = std::uint64_t{chunks.sent} * kPromptChunkBytes + (is_coming ? before : 0);
    out.push_back(to);
  }
  if (looks) add_peers(candidates, prompt.bytes + before, out);
  return out;
}

Instances::Choice Instances::choose(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried,
                                    Nanos now) const {
  std::uint64_t before = 0;
  const std::vector<Instance*> candidates_now = candidates(prompt, tried, now);
  const std::vector<Instance*> helpers_now = helpers(prompt, candidates_now, now);
  std::vector<Instance*> seen = candidates_now;  // state may come from a helper, too
  seen.insert(seen.end(), helpers_now.begin(), helpers_now.end());
  const std::vector<RoutedTo> all = views(prompt, seen, before, now);
  const std::span<const RoutedTo> choices = std::span(all).first(candidates_now.size());
  const RoutedRequest request{.bytes = prompt.bytes + before,
                              .session = prompt.continues.value_or(prompt.beginning)};
  const std::optional<std::size_t> chosen = route(options_.policy, request, choices);
  if (!chosen) return {};
  const RoutedTo& to = choices[*chosen];
  Choice out{.instance = all_.at(to.instance),
             .work_bytes = predicted_work_bytes(request, to),
             .why = why_chosen(choices, *chosen),
             .predicted = {}};
  const Instance& decode = *candidates_now[*chosen];
  if (decode.costs && options_.policy == RoutingPolicy::kFirstToken)
    out.predicted = nanos_of(predicted_first_token(request, to));
  out.prefill = prefill_for(request, decode, to, helpers_now, std::span(all).subspan(choices.size()), out);
  return out;
}

std::shared_ptr<Instance> Instances::find_store(std::string_view store, Nanos now) const {
  const auto at = std::ranges::find_if(all_, [&](const auto& one) {
    return one.second->member.store == store && is_member(*one.second, now);
  });
  return at == all_.end() ? nullptr : at->second;
}

std::vector<std::shared_ptr<Instance>> Instances::in_turn(Nanos now) {
  std::vector<std::shared_ptr<Instance>> out;
  auto at = all_.upper_bound(turn_);
  for (std::size_t i = 0; i < all_.size(); ++i, ++at) {
    if (at == all_.end()) at = all_.begin();
    if (is_member(*at->second, now)) out.push_back(at->second);
  }
  const auto rank = [&](const std::shared_ptr<Instance>& one) {
    return one->is_avoided(now) ? 2 : one->member.draining ? 1 : 0;
  };
  std::ranges::stable_sort(out, {}, rank);
  if (!out.empty()) turn_ = out.front()->number;
  return out;
}

void Instances::publish(Instance& instance, const FeedEntry& entry) {
  const std::optional<Tier> tier = entry.tier();
  instance.held.set(entry.name(), tier);
  if (!tier) tree_.forget(entry.name(), instance.number);
}

// What it was sent stays: what of it is gone was not told, and is taken to be coming until it is forgotten.
void Instances::publish_all(Instance& instance, HeldPrompts held) { instance.held = std::move(held); }

void Instances::unpublish(Instance& instance) {
  instance.held.clear();
  instance.costs.reset();
}

void Instances::remember(const RoutedPrompt& prompt, const Answering& by, Nanos now) {
  tree_.insert(prompt.keys, by.instance.number, now);
  if (by.prefill != nullptr) tree_.insert(prompt.keys, by.prefill->number, now);
  if (prompt.bytes == 0) return;
  if (!prompt.continues) remember_session(prompt.beginning, prompt, by, now);
  if (prompt.is_conversation) remember_session(*prompt.continues, prompt, by, now);
}

void Instances::remember_prefill(const RoutedPrompt& prompt, const Answering& by, Nanos now) {
  if (by.prefill == nullptr) return;
  tree_.insert(prompt.keys, by.prefill->number, now);
  if (prompt.bytes == 0 || (prompt.continues && !prompt.is_conversation)) return;
  const auto at = session_of_.find(prompt.continues.value_or(prompt.beginning));
  if (at != session_of_.end() && at->second->instance == by.instance.number)
    at->second->prefill = by.prefill->number;
}

void Instances::renew(const RoutedPrompt& prompt, const Instance& by, Nanos now) {
  if (!prompt.continues) return;
  const auto at = session_of_.find(*prompt.continues);
  if (at == session_of_.end() || at->second->instance != by.number) return;
  at->second->used_at = now;
  sessions_.splice(sessions_.begin(), sessions_, at->second);
}

void Instances::remember_session(std::uint64_t key, const RoutedPrompt& prompt, const Answering& by,
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
  sessions_.push_front({.key = key,
                        .instance = by.instance.number,
                        .prefill = by.prefill != nullptr ? by.prefill->number : 0,
                        .bytes = bytes,
                        .used_at = now});
  session_of_[key] = sessions_.begin();
}

}  // namespace loci
