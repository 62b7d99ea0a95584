// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 between members of a cluster by a shared key, without certificates. Without the cluster's secret no
// handshake succeeds, on either side. The key alone does not decrypt recorded connections, because each
// connection also agrees on a secret of its own (psk_dhe_ke).
#pragma once

#include <array>
#include <cstdint>

#include "loci/base/status.h"
#include "loci/serve/http/tls.h"

namespace loci {

// Derived from the cluster's secret (cluster_peer_key(), cluster_secret.h).
using PeerKey = std::array<std::uint8_t, 32>;

// Contexts for the side that accepts and for the side that connects. Thread-safe. Errors: kInternal (OpenSSL
// refuses).
Result<TlsContext> make_peer_server_tls(const PeerKey& key);
Result<TlsContext> make_peer_client_tls(const PeerKey& key);

}  // namespace loci
