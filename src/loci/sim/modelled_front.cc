// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/modelled_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/base/random.h"
#include "loci/cluster/feed/feed_wire.h"
#include "loci/policy/routing/named_chunks.h"

namespace loci::sim {
namespace {

constexpr std::uint64_t kTokenBytes = 4;
constexpr std::uint64_t kChunkTokens = kPromptChunkBytes / kTokenBytes;

constexpr std::uint32_t kPortFirst = 1;

RoutedPrompt prompt_of(const Arrival& arrival, std::uint64_t beginning) {
  RoutedPrompt out;
  out.bytes = arrival.prompt.size() * kTokenBytes;
  out.beginning = beginning;
  out.is_generated = out.is_streamed = true;
  std::uint64_t name = 1;
  const std::size_t chunks = std::min(arrival.prompt.size() / kChunkTokens, kPromptChunksMax);
  for (std::size_t i = 0; i < chunks; ++i) {
    for (std::size_t t = i * kChunkTokens; t < (i + 1) * kChunkTokens; ++t)
      name = mix64(name ^ (arrival.prompt[t].value + 1));
    if (i + 1 == chunks_of_names(out.keys.size() + 1)) out.keys.push_back(name & ~kTierBits);
  }
  return out;
}

Member member_of(const ModelledFront::Row& row) {
  Member member;
  member.id = fmt::format("{:08x}{:08x}", row.instance, row.process);
  member.host = "sim";
  member.port = static_cast<std::uint16_t>(kPortFirst + row.instance);
  member.models = {"sim"};
  member.any_model = true;
  member.running = row.running;
  member.queued = row.queued;
  member.peer_port = 1;
  member.role = row.role;
  return member;
}

std::uint32_t place_of(const Instance& instance) { return instance.member.port - kPortFirst; }

std::uint64_t process_of(const Instance& instance) {
  return std::stoull(instance.member.id.substr(8), nullptr, 16);
}

}  // namespace

ModelledFront::ModelledFront(const ClusterOptions& options, std::uint64_t seed, Answers answers)
    : reads_feeds_(options.policy == RoutingPolicy::kFirstToken),
      remembers_(options.remembers),
      answers_(std::move(answers)),
      instances_({.policy = options.policy,
                  .handover = options.handover,
                  .tree_entries_max = options.tree_entries_max,
                  .seed = seed}) {}

std::vector<std::uint32_t> ModelledFront::update(const std::vector<Row>& rows, Nanos now) {
  std::vector<Member> members;
  for (const Row& row : rows) members.push_back(member_of(row));
  // One that came back has another's address, and that one's requests have ended with it.
  instances_.update(members, now);
  // Who is not listed any more is asked whether it lives.
  std::vector<std::uint32_t> gone;
  for (const auto& [number, instance] : instances_.all()) {
    if (!instance->is_listed && !answers_(place_of(*instance), process_of(*instance))) gone.push_back(number);
  }
  for (const std::uint32_t number : gone) instances_.remove(number);
  std::vector<std::uint32_t> begun;
  for (const auto& [number, instance] : instances_.all()) {
    Follow& follow = follows_[place_of(*instance)];
    if (!reads_feeds_ || !instance->is_listed || follow.number >= number) continue;
    follow = {.number = number};
    begun.push_back(place_of(*instance));
  }
  return begun;
}

// --- requests ---

void ModelledFront::take(const Arrival& arrival, std::uint64_t beginning) {
  requests_[arrival.request.value].prompt = prompt_of(arrival, beginning);
}

PromptNames ModelledFront::names(RequestId id) const {
  const RoutedPrompt& prompt = requests_.at(id.value).prompt;
  return {.chunks = prompt.keys,
          .chunk_bytes = kPromptChunkBytes,
          .bytes = prompt.bytes,
          .ends = {},
          .tenant = 1};
}

std::optional<ModelledFront::Sent> ModelledFront::send(RequestId id, Nanos now) {
  Request& request = requests_.at(id.value);
  while (request.tried.size() < kTriesMax) {
    const loci::Instances::Choice choice = instances_.choose(request.prompt, request.tried, now);
    if (choice.instance == nullptr) break;
    ++counts_.chosen[static_cast<std::size_t>(choice.why)];
    request.tried.push_back(choice.instance->number);
    if (!answers_(place_of(*choice.instance), process_of(*choice.instance))) {
      choice.instance->connects.fail(now);
      ++counts_.refused;
      continue;
    }
    request.at = choice.instance;
    request.bytes = choice.work_bytes;
    ++request.at->sent;
    request.at->bytes_before += request.bytes;
    Sent sent{.instance = place_of(*request.at), .prefill = {}};
    request.was_prefilled = false;
    request.prefill = nullptr;
    if (choice.prefill) {
      request.prefill = choice.prefill->instance;
      request.prefill_bytes = choice.prefill->work_bytes;
      ++request.prefill->sent;
      request.prefill->bytes_before += request.prefill_bytes;
      request.is_prefill_counted = true;
      sent.prefill = place_of(*request.prefill);
      sent.begin_limit = choice.prefill->begin_limit;
    }
    return sent;
  }
  requests_.erase(id.value);
  return std::nullopt;
}

void ModelledFront::not_begun(Request& request) {
  request.at->bytes_before -= std::exchange(request.bytes, 0);
  if (!std::exchange(request.is_prefill_counted, false)) return;
  request.prefill->bytes_before -= request.prefill_bytes;
  --request.prefill->sent;
}

void ModelledFront::prefilled(RequestId id, PrefillEnd end, Nanos now) {
  Request& request = requests_.at(id.value);
  request.was_prefilled = end == PrefillEnd::kDone;
  request.prefill->note_prefill(end, now);
  if (end != PrefillEnd::kLost) return;
  ++request.losses;
  request.prompt.may_be_handed = false;
}

void ModelledFront::leave(Request& request) {
  not_begun(request);
  --request.at->sent;
  request.at = nullptr;
}

void ModelledFront::begun(RequestId id, Nanos now) {
  Request& request = requests_.at(id.value);
  not_begun(request);
  request.at->connects.succeed();
  request.has_begun = true;
  if (remembers_ == Remembers::kBegun) remember(request, now);
}

void ModelledFront::remember(const Request& request, Nanos now) {
  instances_.remember(request.prompt, {*request.at, request.was_prefilled ? request.prefill.get() : nullptr},
                      now);
}

void ModelledFront::ended(RequestId id, Nanos now) {
  const auto at = requests_.find(id.value);
  if (at == requests_.end()) return;
  Request& request = at->second;
  if (remembers_ == Remembers::kEnded && request.has_begun && request.at != nullptr) remember(request, now);
  if (request.at != nullptr) leave(request);
  requests_.erase(at);
}

bool ModelledFront::lost(RequestId id) {
  Request& request = requests_.at(id.value);
  leave(request);
  request.has_begun = false;
  if (++request.losses < kLossesMax) return true;
  requests_.erase(id.value);
  return false;
}

// --- feeds ---

std::shared_ptr<Instance> ModelledFront::find(std::uint32_t number) const {
  const auto at = instances_.all().find(number);
  return at == instances_.all().end() ? nullptr : at->second;
}

std::optional<Nanos> ModelledFront::read_feed(std::uint32_t instance, BlockFeed* feed, Nanos now) {
  const auto at = follows_.find(instance);
  if (at == follows_.end()) return std::nullopt;
  Follow& follow = at->second;
  const std::shared_ptr<Instance> known = find(follow.number);
  if (known == nullptr) return std::nullopt;
  if (feed == nullptr || !answers_(instance, process_of(*known))) {
    ++counts_.feeds_broken;
    instances_.unpublish(*known);
    return std::nullopt;
  }
  for (bool has_more = true; has_more;) {
    const FeedChanges changes = feed->changes(follow.question);
    known->costs = changes.costs;
    if (changes.is_gap) {
      read_pages(follow, *known, *feed);
      if (!std::exchange(follow.is_first, false)) return follow.pauses.next(now);
      continue;
    }
    for (const FeedEntry& change : changes.changes) instances_.publish(*known, change);
    counts_.changes += changes.changes.size();
    follow.question.after = changes.last;
    has_more = changes.changes.size() == kFeedEntriesMax;
  }
  return kFeedPeriod;
}

void ModelledFront::read_pages(Follow& follow, Instance& instance, BlockFeed& feed) {
  ++counts_.gaps;
  HeldPrompts held = instances_.nothing_held();
  FeedPageQuestion from;
  bool is_first = true;
  do {
    const FeedPage page = feed.page(from);
    if (std::exchange(is_first, false)) follow.question = {.epoch = page.epoch, .after = page.last};
    for (const FeedEntry& entry : page.entries) held.set(entry.name(), entry.tier());
    from = {.epoch = page.epoch, .place = page.next};
  } while (from.place != 0);
  instances_.publish_all(instance, std::move(held));
}

}  // namespace loci::sim
