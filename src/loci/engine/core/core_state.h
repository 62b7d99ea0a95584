// SPDX-License-Identifier: Apache-2.0
// The core's state machine. It routes events between owners (docs/ARCHITECTURE.md has what each of them owns,
// and whom it calls) and holds the requests. In these source files:
//   core.cc            construction, events in, plans out
//   core_admission.cc  taking a request into the batch; what it is told of its prompt's state
//   core_schedule.cc   in which order requests grow and a pass is filled
//   core_ahead.cc      the pass that is planned while another is in flight
//   core_fair.cc       whose requests are admitted next; the queue; whoever gives way is suspended
//   core_tiers.cc      before the queue; looking ahead; the ends of moves; saves
//   core_public.cc     whether a public prefix has room, and what its computation leaves to others
//   core_commit.cc     what a pass has brought; how requests end
//   core_check.cc      invariants over all owners
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/admission.h"
#include "loci/engine/core/arrivals.h"
#include "loci/engine/core/batch.h"
#include "loci/engine/core/before_queue.h"
#include "loci/engine/core/beginnings.h"
#include "loci/engine/core/block_tables.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/core_pass.h"
#include "loci/engine/core/deadlines.h"
#include "loci/engine/core/device_memory.h"
#include "loci/engine/core/distances.h"
#include "loci/engine/core/flights.h"
#include "loci/engine/core/forgotten.h"
#include "loci/engine/core/giving_way.h"
#include "loci/engine/core/pass_former.h"
#include "loci/engine/core/pass_times.h"
#include "loci/engine/core/peer_reads.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/preloads.h"
#include "loci/engine/core/prompt_sources.h"
#include "loci/engine/core/queue_needs.h"
#include "loci/engine/core/queue_rate.h"
#include "loci/engine/core/recovery.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/restores.h"
#include "loci/engine/core/room.h"
#include "loci/engine/core/share_follower.h"
#include "loci/engine/core/shared_questions.h"
#include "loci/engine/core/suspension_cost.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/slot_pool.h"
#include "loci/policy/admission.h"

namespace loci {

class Core::State {
 public:
  State(const CoreConfig& config, IndexPools pools);

  Plan step(Nanos now, Event&& event);
  CoreStats stats() const;
  std::vector<PublicPrefix> public_prefixes() const { return prefixes_.public_prefixes(); }
  std::shared_ptr<const PublicChains> public_chains() const { return prefixes_.public_chains(); }
  void watch_places() { index_.watch_places(); }
  std::vector<BlockPlace> take_moved() { return index_.take_moved(); }
  void check_invariants() const;

 private:
  // core.cc
  void on(Arrival&& event, Plan& plan);
  void on(const Cancel& event, Plan& plan);
  void on(const PassDone& event, Plan& plan);
  void on(const Tick& event, Plan& plan);
  void on(const Drain& event, Plan& plan);
  void on(const Withdraw& event, Plan& plan);
  void on(const MovesEnded& event, Plan& plan);
  void on(const Recovered& event, Plan& plan);
  void on(const DiskRoom& event, Plan& plan);
  void on(Forget&& event, Plan& plan);
  void on(const CostsMeasured& event, Plan& plan);
  void on(const Pause& event, Plan& plan);
  void on(const SharedAnswer& event, Plan& plan);
  void on(const MemoryRoom& event, Plan& plan);
  void on(const PeerQuestion& event, Plan& plan);
  void on(const PeerRead& event, Plan& plan);
  void on(const PeerLeft& event, Plan& plan);
  bool drain_waits_for_entries() const;
  bool find_place(const Arrival& event, Plan& plan);
  void reject(RequestId request, Status status, Plan& plan);
  void reject_waiting(CoreRequest& request, Status status, Plan& plan);
  void expire(Plan& plan);
  Nanos next_deadline() const;

  // core_admission.cc
  bool try_admit(CoreRequest& request, std::uint64_t& booked, CorePass& pass, Plan& plan);
  void start(CoreRequest& request, FoundSources found, Plan& plan);
  void settle_sources(CoreRequest& request, Plan& plan);

  // core_public.cc
  Status refusal(const Arrival& event) const;
  void keep_public(CoreRequest& request);
  void end_without_memory(CoreRequest& request, Plan& plan);

  // core_tiers.cc
  void take_in(CoreRequest& request);
  bool await_beginning(CoreRequest& request);
  bool ask(CoreRequest& request, Plan& plan);
  CoreRequest* waiting_request(RequestId id) const;
  void look_ahead(bool pass_waits);
  void save();
  void settle_disk();

  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }

  // core_schedule.cc
  void schedule(Plan& plan);
  void form(CorePass& pass, Plan& plan);
  void add_decodes(CorePass& pass);
  void take_prompts(CorePass& pass, Plan& plan);
  void grow(Plan& plan);
  void add_spans(CoreRequest& request, CorePass& pass);
  void emit(CorePass formed, Plan& plan);

  // core_ahead.cc
  void schedule_ahead(Plan& plan);
  bool form_ahead(CorePass& pass, Plan& plan);

  // core_fair.cc
  void admit_waiting(CorePrompts& prompts, std::uint64_t& booked, CorePass& pass, Plan& plan);
  void enqueue(CoreRequest& request);
  void take_off_queue(CoreRequest& request);
  void leave_queue(CoreRequest& request);
  void take_distances();
  void charge(const CoreRequest& request, std::uint64_t tokens);
  void suspend(CoreRequest& request);
  std::vector<CoreRequest*> front_of_queue();
  CoreRequest* gives_place(const std::vector<CoreRequest*>& front) const;
  void make_room();
  bool someone_gives_way();
  void make_memory(const CoreRequest& head, std::uint32_t group);
  void give_way(CoreRequest& request, const CoreRequest& head);

  // core_commit.cc
  void commit(const PassDone& done, Plan& plan);
  void read_ahead(const CorePass& pass) const;
  void end_flight(CorePass& pass);
  void take_sample(CoreRequest& request, const SpanOutcome& outcome, Plan& plan);
  void end(CoreRequest& request, FinishReason reason, Plan& plan);
  void stop_running(CoreRequest& request);
  void end_when_free(CoreRequest& request, FinishReason reason, Plan& plan);

  // core_check.cc
  void check_owners() const;
  void check_slots() const;
  void check_pins() const;
  void check_lives() const;

  CoreConfig config_;
  std::uint32_t group_count_;
  CostModel costs_;
  PassTimes pass_times_;
  bool split_ = false;  // prompts and decodes take turns
  BlockIndex index_;

  // No decision depends on the order of this table. The pins and tokens inside are dropped before the index:
  // members end in reverse order.
  std::unordered_map<RequestId, std::unique_ptr<CoreRequest>> requests_;
  std::size_t paused_ = 0;  // requests whose client does not read
  Batch batch_;
  FairQueue queue_;
  Room room_;
  Deadlines deadlines_;
  BeforeQueue before_queue_;

  Transfers transfers_;
  Places places_;
  ShareFollower share_follower_;
  Prefixes prefixes_;
  Windows windows_;
  Arrivals arrivals_;
  Flights flights_;
  Distances distances_;
  Recovery recovery_;
  bool disk_is_beyond_ = false;  // it may have more than its room
  bool disk_gives_up_ = false;   // as the latest step saw it
  Forgotten forgotten_;
  DeviceMemory device_memory_;
  Restores restores_;
  QueueNeeds queue_needs_;
  Admission admission_;
  PassFormer former_;
  SuspensionCost suspension_cost_;
  GivingWay giving_way_;
  BlockTables tables_;
  Preloads preloads_;
  Beginnings beginnings_;
  PeerReads peer_reads_;
  StateAge state_age_;
  SharedQuestions shared_questions_;
  PromptSources sources_;

  Nanos now_ = 0;
  bool decodes_next_ = false;  // split_: the last pass was of prompts
  bool drained_ = false;
  QueueRate queue_rate_;
  CoreStats totals_;  // the counters that only grow
};

}  // namespace loci
