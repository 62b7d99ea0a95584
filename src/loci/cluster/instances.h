// SPDX-License-Identifier: Apache-2.0
// What a front knows of its instances: who there is, what each serves, how much it has to do, who was sent
// what, and what each publishes of the state that it has. Chooses one for a request by the policy.
//
// Only for the network thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "loci/base/clock.h"
#include "loci/cluster/feed/feed_wire.h"
#include "loci/cluster/member.h"
#include "loci/cluster/peers/peer_health.h"
#include "loci/cluster/routed_request.h"
#include "loci/policy/routing/held_prompts.h"
#include "loci/policy/routing/prefill_choice.h"
#include "loci/policy/routing/prompt_tree.h"
#include "loci/policy/routing/routing.h"
#include "loci/serve/generation/prefill.h"

namespace loci {

// What a front does for a request: so many instances are asked one after the other; it is not given to
// another one when so many ended while they had it, since it may be what ended them; and whoever could not be
// reached, or broke off, is asked nothing for so long at first (Instance).
inline constexpr std::size_t kTriesMax = 8;
inline constexpr int kLossesMax = 2;
inline constexpr Nanos kAvoided = kNanosPerSecond;

// A member, as the front sees it.
struct Instance {
  Member member;
  std::uint32_t number = 0;           // never used for another instance
  bool is_listed = true;              // it is in the latest list
  Nanos avoided_until = 0;            // set when it says that its device is lost
  std::uint32_t sent = 0;             // requests that have not ended
  std::uint64_t bytes_before = 0;     // of text to be computed for those that have not begun to answer
  std::uint32_t reported_beyond = 0;  // requests that other fronts sent, by the member's row

  // What it publishes.
  HeldPrompts held;
  std::optional<FeedCosts> costs;  // absent: nothing, or it is not known yet or any more

  // Called when the instance is dead; each ends one of its requests.
  std::map<std::uint64_t, std::function<void()>> enders;

  // Whether it is left alone after failures. Each pause is twice as long as the one before, since to find out
  // that nobody is there may take longer than the first one.
  PeerHealth connects{{.failures_max = 1, .pause_min = kAvoided}};  // of the front's connections
  PeerHealth prefills{{.failures_max = 1, .pause_min = kAvoided}};  // of prompts that it was to compute
  PeerHealth in_time{
      {.failures_max = 3, .pause_min = kAvoided}};  // of the same: they were late, or it was quiet

  // True: it gets requests and prompts only if nobody else can.
  bool is_avoided(Nanos now) const {
    return now < avoided_until || !connects.is_up(now) || !prefills.is_up(now) || !in_time.is_up(now);
  }
  // Takes how a prompt ended that it was to compute. A refusal, or one that is late or that it is quiet
  // about, may be the prompt's fault or its tenant's.
  void note_prefill(PrefillEnd end, Nanos now);
};

struct InstancesOptions {
  RoutingPolicy policy = RoutingPolicy::kFirstToken;
  // Which prompts prefill members compute: by kPredicted none but under kFirstToken, by kAlways under every
  // policy.
  Handover handover = Handover::kPredicted;
  Nanos time_to_live =
      1800 * kNanosPerSecond;  // a prompt or conversation that was not seen for this long is forgotten
  std::size_t tree_entries_max = 1 << 20;
  std::size_t sessions_max = 1 << 18;
  std::uint64_t seed = 0;  // a random word that no member knows (HeldPrompts)
};

class Instances {
 public:
  explicit Instances(const InstancesOptions& options);

  // Takes the latest list. An instance that is not on it stays until remove(), because it may live and only
  // have lost the database. One whose host and port an unknown member has is removed, listed or not: its
  // process is dead, though its row may be young. Returns the numbers of those. `old`: ids of rows that are
  // too old (MemberList::old).
  std::vector<std::uint32_t> update(const std::vector<Member>& members, Nanos now,
                                    std::span<const std::string> old = {});
  // Removes the instance and ends its requests.
  void remove(std::uint32_t number);
  const std::map<std::uint32_t, std::shared_ptr<Instance>>& all() const { return all_; }
  // True: it may get requests. An instance that has left the list gets none, because another server may
  // listen at its address. After a time without lists, new lists are not believed for a member's lifetime, in
  // which members come back; nor are those that say of most instances at once that their rows are too old:
  // the database answers, and takes no renewals.
  bool is_member(const Instance& instance, Nanos now) const {
    return instance.is_listed || now < lists_whole_at_;
  }

  // A prefill member that computes the prompt first.
  struct Prefill {
    std::shared_ptr<Instance> instance;
    std::uint64_t work_bytes = 0;
    Nanos predicted = 0;                       // until it has computed the prompt; 0: not known
    Nanos begin_limit = 0, silence_limit = 0;  // of PrefillPlace
  };
  struct Choice {
    std::shared_ptr<Instance> instance;
    std::uint64_t work_bytes = 0;  // of text to be computed in the time that the request is to take there
    RoutedWhy why = RoutedWhy::kNothing;
    std::optional<Nanos> predicted;  // until it begins to answer, where costs are known
    std::optional<Prefill> prefill;  // absent: the instance computes the prompt itself
  };
  // Chooses the instance for the request, among those not in `tried`; null: there is none. It serves the
  // request's model; if none does, any instance is chosen, whose answer then says so. Avoided instances are
  // chosen only if there are no others, draining ones only for requests about work that they have, prefill
  // members only if all others are avoided.
  Choice choose(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried, Nanos now) const;
  // The member that is called so in the store of conversations; null: there is none.
  std::shared_ptr<Instance> find_store(std::string_view store, Nanos now) const;
  // Whom the front may ask something itself: those first that take new work and are not avoided. Each call
  // begins with another one.
  std::vector<std::shared_ptr<Instance>> in_turn(Nanos now);
  // Takes one entry of what the instance publishes.
  void publish(Instance& instance, const FeedEntry& entry);
  // Replaces what was known of the instance by all that it publishes now.
  void publish_all(Instance& instance, HeldPrompts held);
  // Forgets all that it published, because it tells nothing now.
  void unpublish(Instance& instance);
  // To be filled for publish_all().
  HeldPrompts nothing_held() const { return {kFeedChunksMax, options_.seed}; }

  // Who answers a prompt: an instance, and the prefill member that computed the prompt; null: none did.
  struct Answering {
    const Instance& instance;
    const Instance* prefill = nullptr;
  };
  // Notes that this prompt's answer has begun, so that the next turn goes there.
  void remember(const RoutedPrompt& prompt, const Answering& by, Nanos now);
  // Notes that the prefill member computed the prompt, where remember() had to be told before that was known.
  void remember_prefill(const RoutedPrompt& prompt, const Answering& by, Nanos now);
  // Notes that what the prompt asks after, as a response in the background, was asked after where it is.
  void renew(const RoutedPrompt& prompt, const Instance& by, Nanos now);
  // Notes that the next turn of a conversation or response should go there.
  void remember_session(std::uint64_t key, const RoutedPrompt& prompt, const Answering& by, Nanos now);

 private:
  // True: of the instances that are known more have a row that is too old than are listed.
  bool are_most_old(std::span<const std::string> old) const;
  // Removes the instance, whose address the member of that id has now.
  void replace(const Instance& dead, const std::string& by);
  // Forgets those that were replaced if their rows, or those of who replaced them, have ended.
  void forget_replaced(const std::vector<Member>& members);

  struct Session {
    std::uint64_t key = 0;
    std::uint32_t instance = 0;
    std::uint32_t prefill = 0;  // that computed the latest turn's prompt; 0: none
    std::uint64_t bytes = 0;    // bytes that the next turn will share
    Nanos used_at = 0;
  };

  const Session* session(const RoutedPrompt& prompt, Nanos now) const;
  // What the instances that serve the request's model tell.
  std::vector<RoutedCosts> told_costs(const RoutedPrompt& prompt) const;
  // Of all instances: those that have the model's name go before those that take any.
  ServedAs served_best(const RoutedPrompt& prompt) const;
  // What is known of the request's text at each.
  std::vector<RoutedTo> views(const RoutedPrompt& prompt, const std::vector<Instance*>& candidates,
                              std::uint64_t& before, Nanos now) const;
  std::vector<Instance*> candidates(const RoutedPrompt& prompt, std::span<const std::uint32_t> tried,
                                    Nanos now) const;
  // Of those that serve the request's model at least so.
  std::vector<Instance*> candidates_serving(ServedAs least, const RoutedPrompt& prompt,
                                            std::span<const std::uint32_t> tried, Nanos now) const;
  // Members that may compute prompts for the candidates.
  std::vector<Instance*> helpers(const RoutedPrompt& prompt, const std::vector<Instance*>& candidates,
                                 Nanos now) const;
  std::optional<Prefill> prefill_for(const RoutedRequest& request, const Instance& decode, const RoutedTo& to,
                                     const std::vector<Instance*>& helpers, std::span<const RoutedTo> views,
                                     Choice& choice) const;

  const InstancesOptions options_;
  std::map<std::uint32_t, std::shared_ptr<Instance>> all_;  // by number
  std::uint32_t next_number_ = 1;
  // Ids of members that were replaced, and those of the members that have their addresses now.
  std::map<std::string, std::string> replaced_by_;
  std::uint32_t turn_ = 0;          // number of the instance with which in_turn() began
  std::optional<Nanos> listed_at_;  // when the latest list came
  Nanos lists_whole_at_ = 0;        // from then on an instance that is missing from a list is not a member
  PromptTree tree_;
  std::list<Session> sessions_;  // the latest used first
  std::unordered_map<std::uint64_t, std::list<Session>::iterator> session_of_;
};

}  // namespace loci
