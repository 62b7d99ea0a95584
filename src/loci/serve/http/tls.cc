// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include <boost/asio/buffer.hpp>

#include "loci/serve/files/text_file.h"

namespace loci {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr const char* kCiphersOfTls12 = "ECDHE+AESGCM:ECDHE+CHACHA20";

Result<std::string> read_for(const char* flag, const std::string& path) {
  Result<std::string> text = read_text_file(path);
  if (text.ok()) return text;
  return Status(text.status().code(), text.status().message(), flag);
}

bool is_reason(const error_code& error, int library, int reason) {
  const auto code = static_cast<unsigned long>(error.value());
  return ERR_GET_LIB(code) == library && ERR_GET_REASON(code) == reason;
}

Result<TlsContext> make_context(asio::ssl::context::method method) {
  error_code error;
  auto context = std::make_shared<asio::ssl::context>(method);
  SSL_CTX* raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  context->set_options(
      asio::ssl::context::default_workarounds | asio::ssl::context::no_compression | SSL_OP_NO_RENEGOTIATION,
      error);
  if (SSL_CTX_set_cipher_list(raw, kCiphersOfTls12) != 1) return internal_error("OpenSSL lacks its ciphers");
  return context;
}

Status use_certificate(asio::ssl::context& context, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string pem, read_for("tls_cert", path));
  error_code error;
  // Nobody is asked for a pass phrase, whatever the file is.
  context.set_password_callback(
      [](std::size_t, asio::ssl::context::password_purpose) { return std::string(); }, error);
  context.use_certificate_chain(asio::buffer(pem), error);
  if (!error) return {};
  const char* expected = "expected a PEM file that begins with the server's certificate";
  return invalid_argument(fmt::format("{}: {} ({})", path, expected, error.message()), "tls_cert");
}

Status use_key(asio::ssl::context& context, const TlsFiles& files) {
  LOCI_ASSIGN_OR_RETURN(const std::string pem, read_for("tls_key", files.key));
  // Nobody is asked for a pass phrase.
  bool is_locked = false;
  error_code error;
  context.set_password_callback(
      [&is_locked](std::size_t, asio::ssl::context::password_purpose) {
        is_locked = true;
        return std::string();
      },
      error);
  context.use_private_key(asio::buffer(pem), asio::ssl::context::pem, error);
  const bool is_of_other = is_reason(error, ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH) ||
                           is_reason(error, ERR_LIB_X509, X509_R_KEY_TYPE_MISMATCH);
  error_code ignored;
  context.set_password_callback(
      [](std::size_t, asio::ssl::context::password_purpose) { return std::string(); }, ignored);
  if (is_of_other || (!error && SSL_CTX_check_private_key(context.native_handle()) != 1)) {
    ERR_clear_error();
    return invalid_argument(
        fmt::format("{} is not the key of the certificate in {}", files.key, files.certificate), "tls_key");
  }
  if (!error) return {};
  if (is_locked) {
    return invalid_argument(
        fmt::format("{} is locked by a pass phrase; give the key without one (openssl pkey -in FILE)",
                    files.key),
        "tls_key");
  }
  return invalid_argument(fmt::format("{}: expected a private key in PEM ({})", files.key, error.message()),
                          "tls_key");
}

}  // namespace

Result<TlsContext> make_server_tls(const TlsFiles& files) {
  if (files.key.empty())
    return invalid_argument("is missing: the option tls_cert needs the key of its certificate", "tls_key");
  if (files.certificate.empty())
    return invalid_argument("is missing: the option tls_key needs the certificate of its key", "tls_cert");
  LOCI_ASSIGN_OR_RETURN(TlsContext context, make_context(asio::ssl::context::tls_server));
  // Clients resume by tickets, which they keep themselves.
  SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  LOCI_RETURN_IF_ERROR(use_certificate(*context, files.certificate));
  LOCI_RETURN_IF_ERROR(use_key(*context, files));
  return context;
}

Result<TlsContext> make_client_tls(const std::string& authorities) {
  LOCI_ASSIGN_OR_RETURN(TlsContext context, make_context(asio::ssl::context::tls_client));
  context->set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  if (authorities.empty()) {
    context->set_default_verify_paths(error);
    if (error) return internal_error("the system's trusted certificates cannot be read: " + error.message());
    return context;
  }
  LOCI_ASSIGN_OR_RETURN(const std::string pem, read_for("tls_ca", authorities));
  context->add_certificate_authority(asio::buffer(pem), error);
  if (!error) return context;
  return invalid_argument(
      fmt::format("{}: expected a PEM file of trusted certificates ({})", authorities, error.message()),
      "tls_ca");
}

}  // namespace loci
