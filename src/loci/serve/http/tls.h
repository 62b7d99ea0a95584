// SPDX-License-Identifier: Apache-2.0
// What the two sides of a TLS connection are set up with: a server with its certificate and key, a client
// with the authorities that it trusts. TLS 1.2 and 1.3; of 1.2 only authenticated ciphers with forward
// secrecy (ECDHE with AES-GCM or ChaCha20).
#pragma once

#include <memory>
#include <string>

#include "loci/base/status.h"

namespace boost::asio::ssl {
class context;
}

namespace loci {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// A server's files, PEM both.
struct TlsFiles {
  std::string certificate;  // its own first, then those that lead to an authority
  std::string key;          // without a pass phrase
  // Whether TLS is spoken.
  bool given() const { return !certificate.empty() || !key.empty(); }
};

// Thread-safe. Errors name tls_cert or tls_key and the path: kInvalidArgument (one without the other, not
// PEM, locked by a pass phrase, a key of another certificate), kNotFound, kUnavailable.
Result<TlsContext> make_server_tls(const TlsFiles& files);

// Trusts the certificates of `authorities` (a PEM file) alone; where it is empty, those that the system
// trusts. Thread-safe. Errors name tls_ca and the path: kInvalidArgument, kNotFound, kUnavailable.
Result<TlsContext> make_client_tls(const std::string& authorities);

}  // namespace loci
