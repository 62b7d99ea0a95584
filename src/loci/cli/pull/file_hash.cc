// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/pull/file_hash.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "loci/base/hex.h"

namespace loci {
namespace {

// Calls `take` with the file's content, piece by piece.
template <class Take>
Status read_file(const std::string& path, Take take) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found(fmt::format("{} cannot be read", path));
  std::vector<char> buffer(std::size_t{1} << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    take(std::string_view(buffer.data(), static_cast<std::size_t>(in.gcount())));
  }
  if (in.bad()) return internal_error(fmt::format("{} cannot be read to its end", path));
  return {};
}

}  // namespace

void Sha1::update(std::string_view data) {
  bytes_ += data.size();
  while (!data.empty()) {
    const std::size_t take = std::min(data.size(), sizeof(buffer_) - filled_);
    std::memcpy(buffer_ + filled_, data.data(), take);
    filled_ += take;
    data.remove_prefix(take);
    if (filled_ < sizeof(buffer_)) return;
    block(buffer_);
    filled_ = 0;
  }
}

std::string Sha1::hex() {
  const std::uint64_t bits = bytes_ * 8;
  update("\x80");
  while (filled_ != 56) update(std::string_view("\0", 1));
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(bits >> (56 - 8 * i));
  update(std::string_view(length, 8));
  std::string out;
  for (const std::uint32_t word : state_) out += fmt::format("{:08x}", word);
  return out;
}

void Sha1::block(const unsigned char* bytes) {
  std::uint32_t w[80];
  for (int i = 0; i < 16; ++i) {
    w[i] = std::uint32_t{bytes[4 * i]} << 24 | std::uint32_t{bytes[4 * i + 1]} << 16 |
           std::uint32_t{bytes[4 * i + 2]} << 8 | std::uint32_t{bytes[4 * i + 3]};
  }
  for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = std::to_array(state_);
  for (int i = 0; i < 80; ++i) {
    std::uint32_t f = b ^ c ^ d;
    std::uint32_t k = i < 40 ? 0x6ed9eba1 : 0xca62c1d6;
    if (i < 20) {
      f = (b & c) | (~b & d);
      k = 0x5a827999;
    } else if (i >= 40 && i < 60) {
      f = (b & c) | (b & d) | (c & d);
      k = 0x8f1bbcdc;
    }
    const std::uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
  state_[4] += e;
}

Result<std::string> sha256_of_file(const std::string& path) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  LOCI_RETURN_IF_ERROR(read_file(path, [&state](std::string_view data) {
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(data.data()), data.size());
  }));
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, digest);
  return to_hex(digest);
}

Result<std::string> git_sha1_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return not_found(fmt::format("{} cannot be read", path));
  Sha1 hash;
  hash.update(fmt::format("blob {}", size));
  hash.update(std::string_view("\0", 1));
  LOCI_RETURN_IF_ERROR(read_file(path, [&hash](std::string_view data) { hash.update(data); }));
  return hash.hex();
}

}  // namespace loci
