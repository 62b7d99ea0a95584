// SPDX-License-Identifier: Apache-2.0
// A front in virtual time: what it knows of its instances, and which one gets a request, are the code that
// serves (cluster/instances.h); connections, rows and the feed are modelled.
//
// A dead instance refuses connections at once, and its requests' connections break. Its row counts for five
// seconds more, in which the front finds at each try that it is not there. Its feed breaks with it: the front
// forgets what it published. The instance that comes back is another member, of which the front reads all
// pages, as after any gap.
//
// Prompts are named by their tokens: a token counts as four bytes of text. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "loci/cluster/feed/block_feed.h"
#include "loci/cluster/feed/feed_pauses.h"
#include "loci/cluster/instances.h"
#include "loci/engine/core/plan.h"
#include "loci/serve/generation/prefill.h"
#include "loci/sim/world.h"

namespace loci::sim {

class ModelledFront {
 public:
  // An instance by its place, from 0 on; `process`: which of its processes.
  struct Row {
    std::uint32_t instance = 0;
    std::uint64_t process = 1;
    std::uint32_t running = 0, queued = 0;
    MemberRole role = MemberRole::kBoth;
  };
  // Whether that process of the instance takes connections.
  using Answers = std::function<bool(std::uint32_t instance, std::uint64_t process)>;

  ModelledFront(const ClusterOptions& options, std::uint64_t seed, Answers answers);

  // Takes the latest list. Returns the instances whose feeds it now begins to read.
  std::vector<std::uint32_t> update(const std::vector<Row>& rows, Nanos now);

  // The request's prompt, as it came. `beginning` names its conversation.
  void take(const Arrival& arrival, std::uint64_t beginning);
  struct Sent {
    std::uint32_t instance = 0;
    std::optional<std::uint32_t> prefill;  // another one is to compute the prompt first
    Nanos begin_limit = 0;
  };
  // Chooses an instance that takes the request; absent: there is none, or too many were tried. Then the
  // request has ended.
  std::optional<Sent> send(RequestId id, Nanos now);
  // What became of the prompt at the other instance.
  void prefilled(RequestId id, PrefillEnd end, Nanos now);
  // Its instance died. False: the request may not be sent again.
  bool lost(RequestId id);
  void begun(RequestId id, Nanos now);
  void ended(RequestId id, Nanos now);
  std::size_t open() const { return requests_.size(); }  // requests that have not ended

  // The names of the request's prompt, for its instance.
  PromptNames names(RequestId id) const;

  // Reads what the instance publishes; null: its connection is broken. Returns when to read at the earliest
  // again after the next change; absent: not at all.
  std::optional<Nanos> read_feed(std::uint32_t instance, BlockFeed* feed, Nanos now);

  struct Counts {
    std::array<std::uint64_t, kRoutedWhys> chosen{};
    std::uint64_t refused = 0;  // connections
    std::uint64_t gaps = 0;     // of feeds, after each of which all pages were read
    std::uint64_t changes = 0;  // of feeds
    std::uint64_t feeds_broken = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Request {
    RoutedPrompt prompt;
    std::vector<std::uint32_t> tried;
    int losses = 0;
    std::shared_ptr<Instance> at;
    std::uint64_t bytes = 0;  // of text to be computed that are counted at the instance
    std::shared_ptr<Instance> prefill;
    std::uint64_t prefill_bytes = 0;  // likewise
    bool is_prefill_counted = false;
    bool was_prefilled = false;
    bool has_begun = false;
  };
  struct Follow {
    std::uint32_t number = 0;  // the front's own, of the instance that it follows
    FeedQuestion question;
    FeedPauses pauses;
    bool is_first = true;
  };

  void leave(Request& request);
  void remember(const Request& request, Nanos now);
  static void not_begun(Request& request);
  std::shared_ptr<Instance> find(std::uint32_t number) const;
  void read_pages(Follow& follow, Instance& instance, BlockFeed& feed);

  const bool reads_feeds_;
  const Remembers remembers_;
  const Answers answers_;
  loci::Instances instances_;
  std::map<std::uint64_t, Request> requests_;  // that have not ended
  std::map<std::uint32_t, Follow> follows_;    // by the instance's place
  Counts counts_;
};

}  // namespace loci::sim
