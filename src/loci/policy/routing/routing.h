// SPDX-License-Identifier: Apache-2.0
// Which instance gets a request (MemServe, section 6): pure decisions over what a front knows.
//
// - kFirstToken predicts the time to the first token: the queue before the request, then the longer of
//   computing what the instance lacks and bringing what it has elsewhere than on its device, and an eighth of
//   the shorter. Times are those that instances measured, for a byte of text. An example: 6,000 bytes, a
//   microsecond each to compute and 0.1 to bring from the disk. A has 5,000 of them on its disk and 2,000
//   bytes before it, B nothing: A is predicted to take 2,000 + 1,000 + 500 / 8, B 6,000. With 8,000 bytes
//   before it A would take more than 9,000, and B gets the request. What another instance has may be brought
//   from there, where asking and bringing is faster than computing. An instance with many more requests than
//   another is shunned (kCrowdedBytes), so that a beginning which all prompts share
//   does not keep all of them where it was computed first.
// - kPromptTree takes what an instance was sent before for what it has, all of it on the device (MemServe's
//   trees), and all instances to compute alike: the same prediction, in bytes.
// - kSession keeps a conversation where it is; a new one goes where its key's rank is highest (rendezvous
//   hashing), so that fronts agree without asking one another and few conversations move when instances come
//   and go.
// - kLeastLoad takes who has the fewest requests.
//
// Thread-safe: pure functions. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace loci {

enum class RoutingPolicy : std::uint8_t { kFirstToken, kPromptTree, kSession, kLeastLoad };

// "first-token", "prompt-tree", "session", "least-load"; none: no policy of that name.
std::optional<RoutingPolicy> parse_routing_policy(std::string_view name);

// What a byte of a prompt's text costs an instance; in nanoseconds, or in any unit that is the same for all.
struct RoutedCosts {
  double compute = 1;
  double host = 0, disk = 0, peer = 1;  // brought from there
  double ask_peers = 0;                 // of a request, before anything can come from a peer
};

// The median of each cost, so that no single instance decides it; of an even count the smaller one of the two
// in the middle. Of none: as if all computed alike.
RoutedCosts usual_costs(std::span<const RoutedCosts> told);
// What an instance tells, as far as it is believed: at least an eighth of what is usual, at most eight times.
RoutedCosts believed_costs(const RoutedCosts& told, const RoutedCosts& usual);

struct RoutedTo {
  std::uint32_t instance = 0;      // its number
  std::uint64_t rank = 0;          // for rendezvous hashing: a hash of the instance's name
  std::uint32_t requests = 0;      // that run or wait there
  std::uint64_t bytes_before = 0;  // to be computed, of what it was sent and has not begun to answer
  // Of this request's text, in no place twice:
  std::uint64_t bytes_device = 0;
  std::uint64_t bytes_host = 0;
  std::uint64_t bytes_disk = 0;
  std::uint64_t bytes_sent = 0;  // that it was sent, and does not tell of: taken to be on the device
  std::uint64_t bytes_peer = 0;  // that it lacks, and another instance has
  RoutedCosts costs;
  double usual_compute = 0;  // of instances (usual_costs())
  bool is_home = false;      // the conversation's last turn was there

  std::uint64_t bytes_seen() const { return bytes_device + bytes_host + bytes_disk + bytes_sent; }
};

struct RoutedRequest {
  std::uint64_t bytes = 0;    // of text that the model must have seen
  std::uint64_t session = 0;  // the same for all requests of a conversation
};

// What a reply that is being written delays a prompt by, in bytes of text that are computed at the usual
// cost, or at the instance's own if that is higher: one that tells too low a cost is still seen to be busy.
inline constexpr std::uint64_t kBytesOfReply = 64;

// What a request that runs or waits there delays the reply by, in bytes of text that are computed at the
// instance's own cost: a reply takes some 512 passes, each of which gets a token longer. It counts for the
// choice alone, not in what is predicted, and for the requests beyond so many times those of the least busy
// instance, and so many: smaller differences come and go, and would move conversations from their state.
inline constexpr std::uint64_t kCrowdedBytes = 2048;
inline constexpr double kCrowdedTimes = 2, kCrowdedRequests = 4;

// What the request itself is predicted to take there, with nothing before it; in the unit of the costs.
double predicted_work(const RoutedRequest& request, const RoutedTo& instance);
// So much text could be computed there in that time: at most twice the request's own, whatever the costs are.
std::uint64_t predicted_work_bytes(const RoutedRequest& request, const RoutedTo& instance);
// The same, with the queue.
double predicted_first_token(const RoutedRequest& request, const RoutedTo& instance);

// The place in `instances`; nothing where there is none.
std::optional<std::size_t> route(RoutingPolicy policy, const RoutedRequest& request,
                                 std::span<const RoutedTo> instances);

// Why one was chosen, for people: where it has most of what it has of the request.
enum class RoutedWhy : std::uint8_t {
  kDevice,
  kHost,
  kDisk,
  kSent,       // it was sent it, and says nothing of it
  kPeer,       // another one has it
  kNothing,    // nobody has anything of it
  kElsewhere,  // another one has more of it
};
inline constexpr std::size_t kRoutedWhys = 7;
constexpr std::string_view routed_why_name(RoutedWhy why) {
  constexpr std::array<std::string_view, kRoutedWhys> kNames = {"device", "host",    "disk",     "sent",
                                                                "peer",   "nothing", "elsewhere"};
  return kNames[static_cast<std::size_t>(why)];
}
RoutedWhy why_chosen(std::span<const RoutedTo> instances, std::size_t chosen);

}  // namespace loci
