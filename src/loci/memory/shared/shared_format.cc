// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/shared_format.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/hex.h"
#include "loci/base/little_endian.h"

namespace loci {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kNonceBytes = 12, kTagBytes = 16;

// What a pack is; bound into its seal.
std::vector<std::uint8_t> description(const ChainKey& key, std::uint32_t group,
                                      const SharedFormat::Pack& pack, std::uint64_t slice_bytes) {
  std::vector<std::uint8_t> out(key.bytes.begin(), key.bytes.end());
  put_number(out, kVersion);
  put_number(out, group);
  put_number(out, pack.first);
  put_number(out, pack.count);
  put_number(out, slice_bytes);
  return out;
}

void keyed_hash(const std::array<std::uint8_t, 32>& secret, const ChainKey& key, std::uint32_t group,
                std::span<std::uint8_t> out) {
  std::vector<std::uint8_t> text(key.bytes.begin(), key.bytes.end());
  put_number(text, group);
  crypto_generichash(out.data(), out.size(), text.data(), text.size(), secret.data(), secret.size());
}

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* bytes_of(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }
int length(std::size_t bytes) {
  LOCI_CHECK(bytes <= INT32_MAX, "a pack is smaller than 2 GiB");
  return static_cast<int>(bytes);
}

}  // namespace

SharedFormat::SharedFormat(const SharedKeys& keys, std::vector<SharedGroup> groups)
    : keys_(keys), groups_(std::move(groups)) {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
  LOCI_CHECK(!groups_.empty() && groups_.size() <= kLayerGroupsMax, "groups of layers");
  for (const SharedGroup& group : groups_)
    LOCI_CHECK(group.layers > 0 && group.layer_slice_bytes > 0, "a group has layers, and these have state");
}

std::string SharedFormat::name(const ChainKey& key, std::uint32_t group) const {
  std::array<std::uint8_t, 16> hash{};
  keyed_hash(keys_.names, key, group, hash);
  return fmt::format("loci:{}:{}", kVersion, to_hex(hash));
}

// As even as whole layers allow.
std::uint32_t SharedFormat::layers_of_pack(std::uint32_t group) const {
  const SharedGroup& shape = groups_[group];
  const std::uint64_t most =
      std::clamp<std::uint64_t>(kPackBytesMax / shape.layer_slice_bytes, 1, shape.layers);
  const std::uint64_t packs = (shape.layers + most - 1) / most;
  return static_cast<std::uint32_t>((shape.layers + packs - 1) / packs);
}

std::uint32_t SharedFormat::pack_count(std::uint32_t group) const {
  const std::uint32_t each = layers_of_pack(group);
  return (groups_[group].layers + each - 1) / each;
}

SharedFormat::Pack SharedFormat::pack(std::uint32_t group, std::uint32_t index) const {
  LOCI_CHECK(index < pack_count(group), "a pack outside the value");
  const SharedGroup& shape = groups_[group];
  const std::uint32_t each = layers_of_pack(group);
  Pack pack{.first = index * each, .count = std::min(each, shape.layers - index * each)};
  pack.offset = index * (each * shape.layer_slice_bytes + kSealBytes);
  pack.bytes = pack.count * shape.layer_slice_bytes + kSealBytes;
  return pack;
}

std::uint64_t SharedFormat::value_bytes(std::uint32_t group) const {
  return groups_[group].layers * groups_[group].layer_slice_bytes + pack_count(group) * kSealBytes;
}

SharedFormat::SealKey SharedFormat::seal_key(const ChainKey& key, std::uint32_t group) const {
  SealKey out{};
  keyed_hash(keys_.seals, key, group, out);
  return out;
}

std::vector<std::byte> SharedFormat::seal(const ChainKey& key, std::uint32_t group,
                                          std::span<const std::byte> block) const {
  const std::uint64_t slice_bytes = groups_[group].layer_slice_bytes;
  LOCI_CHECK(block.size() == groups_[group].layers * slice_bytes, "a block's part has all its layers");
  const SealKey secret = seal_key(key, group);
  std::vector<std::byte> value(value_bytes(group));
  const Cipher cipher(EVP_CIPHER_CTX_new());
  for (std::uint32_t i = 0; i < pack_count(group); ++i) {
    const Pack p = pack(group, i);
    const std::span<std::byte> sealed = std::span(value).subspan(p.offset, p.bytes);
    const std::span<const std::byte> plain = block.subspan(p.first * slice_bytes, p.count * slice_bytes);
    const std::vector<std::uint8_t> about = description(key, group, p, slice_bytes);
    randombytes_buf(sealed.data(), kNonceBytes);
    int done = 0;
    const bool ok =
        cipher != nullptr &&
        EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, secret.data(), bytes_of(sealed)) == 1 &&
        EVP_EncryptUpdate(cipher.get(), nullptr, &done, about.data(), length(about.size())) == 1 &&
        EVP_EncryptUpdate(cipher.get(), bytes_of(sealed.subspan(kNonceBytes)), &done, bytes_of(plain),
                          length(plain.size())) == 1 &&
        EVP_EncryptFinal_ex(cipher.get(), nullptr, &done) == 1 &&
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                            bytes_of(sealed.last(kTagBytes))) == 1;
    LOCI_CHECK(ok, "OpenSSL has AES-256-GCM");
  }
  return value;
}

Status SharedFormat::open(const ChainKey& key, std::uint32_t group, const Pack& pack,
                          std::span<const std::byte> sealed, std::span<std::byte> slices) const {
  LOCI_CHECK(slices.size() == slices_bytes(group, pack), "room for the pack's slices");
  if (sealed.size() != pack.bytes) {
    return data_loss(fmt::format("expected {} bytes of a sealed value, found {}", pack.bytes, sealed.size()));
  }
  const SealKey secret = seal_key(key, group);
  const std::vector<std::uint8_t> about = description(key, group, pack, groups_[group].layer_slice_bytes);
  const std::span<const std::byte> text = sealed.subspan(kNonceBytes, slices.size());
  std::array<unsigned char, kTagBytes> tag{};
  std::copy_n(bytes_of(sealed.last(kTagBytes)), kTagBytes, tag.begin());
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int done = 0;
  const bool ready =
      cipher != nullptr &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, secret.data(), bytes_of(sealed)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &done, about.data(), length(about.size())) == 1;
  LOCI_CHECK(ready, "OpenSSL has AES-256-GCM");
  const bool genuine =
      EVP_DecryptUpdate(cipher.get(), bytes_of(slices), &done, bytes_of(text), length(text.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), nullptr, &done) == 1;
  return genuine ? Status() : data_loss("a value in the shared store is not what was written under its name");
}

}  // namespace loci
