// SPDX-License-Identifier: Apache-2.0
// The secret that the servers of one cluster share: 32 random bytes in a file that only its owner may read.
// The keys under which servers name computed state are derived from it, so that each server finds what
// another computed. (MemServe §4.2 names blocks by their tokens; here nobody without the secret can make such
// a name.)
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "loci/base/status.h"
#include "loci/memory/shared/shared_format.h"

namespace loci {

// All functions are thread-safe.

using ClusterSecret = std::array<std::uint8_t, 32>;

// Writes a new secret to a new file with mode 0600, and returns when it is on the disk. Errors:
// kInvalidArgument (something is at that path: it is never replaced); kUnavailable.
Status make_cluster_secret(const std::string& path);

// Errors, all naming cluster_secret and the path: kNotFound; kInvalidArgument (not a regular file of 32
// bytes, or one that others than its owner may read or write); kUnavailable.
Result<ClusterSecret> read_cluster_secret(const std::string& path);

// The key of the chain keys' hash (memory/chain_key.h) for state with this fingerprint, which is of the model
// and of how its state is computed and laid out. It is equal on all servers of the cluster that compute the
// same bits. It reveals nothing about the secret or about the key of another fingerprint.
std::array<std::uint8_t, 32> cluster_chain_secret(const ClusterSecret& secret,
                                                  const std::array<std::uint8_t, 16>& state_fingerprint);
// A name for such state where it is kept, so that state under different secrets is kept apart. It is not
// secret.
std::array<std::uint8_t, 16> cluster_state_id(const ClusterSecret& secret,
                                              const std::array<std::uint8_t, 16>& state_fingerprint);

// The key with which members seal their rows (cluster/member.h).
std::array<std::uint8_t, 32> cluster_member_key(const ClusterSecret& secret);
// The key that members prove to know when they read each other's state (cluster/peers/peer_tls.h).
std::array<std::uint8_t, 32> cluster_peer_key(const ClusterSecret& secret);
// The key with which fronts and instances name prompts (cluster/routed_request.h).
std::array<std::uint8_t, 16> cluster_prompt_key(const ClusterSecret& secret);
// The key with which fronts seal what they say of replies (cluster/resumed_request.h).
std::array<std::uint8_t, 32> cluster_reply_key(const ClusterSecret& secret);
// The key with which fronts seal what they say of prompts (cluster/handed_prompt.h).
std::array<std::uint8_t, 32> cluster_prefill_key(const ClusterSecret& secret);
// The keys with which such state is named and sealed in a store that the cluster shares.
SharedKeys cluster_shared_keys(const ClusterSecret& secret,
                               const std::array<std::uint8_t, 16>& state_fingerprint);

}  // namespace loci
