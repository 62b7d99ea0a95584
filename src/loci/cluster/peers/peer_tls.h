// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 between members of a cluster by the key that they share, without certificates: who lacks the
// cluster's secret gets through no handshake, on either side. The key alone opens no old recording, as each
// connection agrees on a secret of its own too (psk_dhe_ke).
#pragma once

#include <array>
#include <cstdint>

#include "loci/base/status.h"
#include "loci/serve/http/tls.h"

namespace loci {

// Follows from the cluster's secret (cluster_peer_key(), cluster_secret.h).
using PeerKey = std::array<std::uint8_t, 32>;

// For the side that accepts, and that which connects. Thread-safe. Errors: kInternal (OpenSSL refuses).
Result<TlsContext> make_peer_server_tls(const PeerKey& key);
Result<TlsContext> make_peer_client_tls(const PeerKey& key);

}  // namespace loci
