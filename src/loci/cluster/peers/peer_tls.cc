// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_tls.h"

#include <openssl/ssl.h>
#include <boost/asio/ssl/context.hpp>

#include <cstring>
#include <memory>
#include <string_view>

namespace loci {
namespace {

constexpr std::string_view kIdentity = "loci-peer-1";
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteBytes[] = {0x13, 0x01};

// Where a context keeps its key; OpenSSL frees it with the context.
int key_place() {
  static const int place = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* key, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<PeerKey*>(key); });
  return place;
}

// What TLS 1.3 takes a key that was shared before for. Null: OpenSSL refuses.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* key = static_cast<const PeerKey*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_place()));
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSuiteBytes);
  SSL_SESSION* session = SSL_SESSION_new();
  if (key != nullptr && cipher != nullptr && session != nullptr &&
      SSL_SESSION_set1_master_key(session, key->data(), key->size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

// 1: go on. A session that is null is none that the client named.
int find_session(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (bytes == kIdentity.size() && std::memcmp(identity, kIdentity.data(), bytes) == 0)
    *session = session_of(ssl);
  return 1;
}

int use_session(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* bytes,
                SSL_SESSION** session) {
  *session = nullptr;
  // (A digest is named when the server has asked once more, by then of a suite of its own.)
  if (digest != nullptr && EVP_MD_size(digest) != 32) return 1;
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *bytes = kIdentity.size();
  *session = session_of(ssl);
  return 1;
}

Result<TlsContext> make_tls(const PeerKey& key, boost::asio::ssl::context::method method) {
  auto tls = std::make_shared<boost::asio::ssl::context>(method);
  SSL_CTX* context = tls->native_handle();
  auto kept = std::make_unique<PeerKey>(key);
  const bool ok = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                  SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                  SSL_CTX_set_ciphersuites(context, kSuite) == 1 &&
                  SSL_CTX_set_num_tickets(context, 0) == 1 &&
                  SSL_CTX_set_ex_data(context, key_place(), kept.get()) == 1;
  if (!ok) return internal_error("OpenSSL refuses TLS 1.3 by a shared key");
  (void)kept.release();  // the context's
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return tls;
}

}  // namespace

Result<TlsContext> make_peer_server_tls(const PeerKey& key) {
  LOCI_ASSIGN_OR_RETURN(TlsContext tls, make_tls(key, boost::asio::ssl::context::tls_server));
  SSL_CTX_set_psk_find_session_callback(tls->native_handle(), find_session);
  return tls;
}

// Whoever would show a certificate instead is not trusted: there is no authority.
Result<TlsContext> make_peer_client_tls(const PeerKey& key) {
  LOCI_ASSIGN_OR_RETURN(TlsContext tls, make_tls(key, boost::asio::ssl::context::tls_client));
  SSL_CTX_set_psk_use_session_callback(tls->native_handle(), use_session);
  SSL_CTX_set_verify(tls->native_handle(), SSL_VERIFY_PEER, nullptr);
  return tls;
}

}  // namespace loci
