// SPDX-License-Identifier: Apache-2.0
// What the servers of one cluster share and nobody else has: 32 random bytes in a file that its owner alone
// may read. From it follow the keys under which they name computed state, so that each finds what another
// computed (MemServe §4.2 names blocks by their tokens; here nobody without the secret can make such a name).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

// All of these: thread-safe.

using ClusterSecret = std::array<std::uint8_t, 32>;

// Writes a new secret to a new file, mode 0600, on the disk before the return. Errors: kInvalidArgument
// (something is at that path: it is never replaced); kUnavailable.
Status make_cluster_secret(const std::string& path);

// Errors, all naming cluster_secret and the path: kNotFound; kInvalidArgument (not a regular file of 32
// bytes, or one that others than its owner may read or write); kUnavailable.
Result<ClusterSecret> read_cluster_secret(const std::string& path);

// What keys the chain keys (memory/chain_key.h) of state with that fingerprint: of the model, and of how its
// state is computed and laid out. Equal on all servers of the cluster that compute the same bits; tells
// nothing of the secret or of another fingerprint's.
std::array<std::uint8_t, 32> cluster_chain_secret(const ClusterSecret& secret,
                                                  const std::array<std::uint8_t, 16>& state_fingerprint);
// Names such state where it is kept, so that state under unlike secrets lies apart. No secret itself.
std::array<std::uint8_t, 16> cluster_state_id(const ClusterSecret& secret,
                                              const std::array<std::uint8_t, 16>& state_fingerprint);

// What the members of the cluster seal what they say of themselves with (cluster/member.h).
std::array<std::uint8_t, 32> cluster_member_key(const ClusterSecret& secret);
// What members that read each other's state prove that they know (cluster/peers/peer_tls.h).
std::array<std::uint8_t, 32> cluster_peer_key(const ClusterSecret& secret);
// What fronts and instances name prompts by (cluster/routed_request.h).
std::array<std::uint8_t, 16> cluster_prompt_key(const ClusterSecret& secret);
// How such state is named and sealed in a store that the cluster shares.
SharedKeys cluster_shared_keys(const ClusterSecret& secret,
                               const std::array<std::uint8_t, 16>& state_fingerprint);

}  // namespace loci
