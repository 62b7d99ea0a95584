// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/api_key.h"

#include <fmt/format.h>
#include <sodium.h>

#include "loci/base/check.h"
#include "loci/base/hex.h"

namespace loci {
namespace {

constexpr std::string_view kHashPrefix = "blake2b-256:";
constexpr std::string_view kKeyPrefix = "loci-";
constexpr std::size_t kKeyBytes = 32;

}  // namespace

Result<std::string> make_api_key() {
  if (sodium_init() < 0) return internal_error("the system gives no random numbers");
  std::array<unsigned char, kKeyBytes> secret;
  randombytes_buf(secret.data(), secret.size());
  constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
  std::array<char, sodium_base64_ENCODED_LEN(kKeyBytes, kVariant)> text;
  sodium_bin2base64(text.data(), text.size(), secret.data(), secret.size(), kVariant);
  sodium_memzero(secret.data(), secret.size());
  return std::string(kKeyPrefix) + text.data();
}

KeyHash hash_api_key(std::string_view key) {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
  KeyHash hash;
  crypto_generichash(hash.bytes.data(), hash.bytes.size(), reinterpret_cast<const unsigned char*>(key.data()),
                     key.size(), nullptr, 0);
  return hash;
}

std::string to_text(const KeyHash& hash) { return std::string(kHashPrefix) + to_hex(hash.bytes); }

Result<KeyHash> parse_key_hash(std::string_view text) {
  const auto wrong = [] {
    // What stands there is not shown: it may be a key that was pasted in the wrong place.
    return invalid_argument(
        fmt::format("expected \"{}\" and 64 hexadecimal digits, as `loci keys add` writes it", kHashPrefix),
        "hash");
  };
  if (!text.starts_with(kHashPrefix)) return wrong();
  text.remove_prefix(kHashPrefix.size());
  KeyHash hash;
  std::size_t bytes = 0;
  if (text.size() != 2 * hash.bytes.size()) return wrong();
  if (sodium_hex2bin(hash.bytes.data(), hash.bytes.size(), text.data(), text.size(), nullptr, &bytes,
                     nullptr) != 0 ||
      bytes != hash.bytes.size()) {
    return wrong();
  }
  return hash;
}

}  // namespace loci
