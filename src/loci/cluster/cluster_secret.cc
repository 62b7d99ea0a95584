// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/cluster_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

#include "loci/base/check.h"
#include "loci/base/descriptor.h"
#include "loci/base/durable_file.h"

namespace loci {
namespace {

constexpr const char* kOption = "cluster_secret";

// BLAKE2b, keyed by the secret, of the purpose and the fingerprint.
void derive(const ClusterSecret& secret, std::string_view purpose,
            const std::array<std::uint8_t, 16>& fingerprint, std::span<std::uint8_t> out) {
  LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret.data(), secret.size(), out.size());
  crypto_generichash_update(&state, fingerprint.data(), fingerprint.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size());
  crypto_generichash_final(&state, out.data(), out.size());
}

}  // namespace

Status make_cluster_secret(const std::string& path) {
  if (sodium_init() < 0) return internal_error("the system gives no random numbers");
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) {
    if (errno == EEXIST)
      return invalid_argument(fmt::format("{} is there already, and is not replaced", path), "FILE");
    return {StatusCode::kUnavailable, fmt::format("{} can't be made: {}", path, std::strerror(errno)),
            "FILE"};
  }
  ClusterSecret secret;
  randombytes_buf(secret.data(), secret.size());
  const bool is_written =
      ::fchmod(file.get(), 0600) == 0 &&
      ::write(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()) &&
      ::fsync(file.get()) == 0;
  const int error = errno;
  sodium_memzero(secret.data(), secret.size());
  if (is_written && sync_folder_of(path)) return {};
  ::unlink(path.c_str());
  return {StatusCode::kUnavailable, fmt::format("{} can't be written: {}", path, std::strerror(error)),
          "FILE"};
}

Result<ClusterSecret> read_cluster_secret(const std::string& path) {
  // Opening a pipe would wait for whoever writes it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT) {
    return Status(
        StatusCode::kNotFound,
        fmt::format("{} is not there; `loci keys cluster {}` makes one, for all servers of a cluster", path,
                    path),
        kOption);
  }
  struct stat facts{};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0)
    return Status(StatusCode::kUnavailable, fmt::format("{} can't be read: {}", path, std::strerror(errno)),
                  kOption);
  ClusterSecret secret{};
  if (!S_ISREG(facts.st_mode) || facts.st_size != static_cast<off_t>(secret.size())) {
    return invalid_argument(
        fmt::format("{}: expected a file of {} bytes, as `loci keys cluster` makes it, found {}", path,
                    secret.size(),
                    S_ISREG(facts.st_mode) ? fmt::format("{} bytes", facts.st_size) : "no regular file"),
        kOption);
  }
  if ((facts.st_mode & 077) != 0) {
    return invalid_argument(
        fmt::format("{}: expected mode 0600, so that its owner alone reads it, found {:04o}; "
                    "chmod 600 {}",
                    path, static_cast<unsigned>(facts.st_mode & 07777), path),
        kOption);
  }
  if (::read(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    return Status(StatusCode::kUnavailable, fmt::format("{} can't be read", path), kOption);
  return secret;
}

std::array<std::uint8_t, 32> cluster_chain_secret(const ClusterSecret& secret,
                                                  const std::array<std::uint8_t, 16>& state_fingerprint) {
  std::array<std::uint8_t, 32> out{};
  derive(secret, "loci cluster chain keys", state_fingerprint, out);
  return out;
}

std::array<std::uint8_t, 16> cluster_state_id(const ClusterSecret& secret,
                                              const std::array<std::uint8_t, 16>& state_fingerprint) {
  std::array<std::uint8_t, 16> out{};
  derive(secret, "loci cluster state id", state_fingerprint, out);
  return out;
}

std::array<std::uint8_t, 32> cluster_member_key(const ClusterSecret& secret) {
  std::array<std::uint8_t, 32> out{};
  derive(secret, "loci cluster members", {}, out);
  return out;
}

std::array<std::uint8_t, 32> cluster_peer_key(const ClusterSecret& secret) {
  std::array<std::uint8_t, 32> out{};
  derive(secret, "loci cluster peers", {}, out);
  return out;
}

std::array<std::uint8_t, 16> cluster_prompt_key(const ClusterSecret& secret) {
  std::array<std::uint8_t, 16> out{};
  derive(secret, "loci cluster prompts", {}, out);
  return out;
}

std::array<std::uint8_t, 32> cluster_reply_key(const ClusterSecret& secret) {
  std::array<std::uint8_t, 32> out{};
  derive(secret, "loci cluster replies", {}, out);
  return out;
}

std::array<std::uint8_t, 32> cluster_prefill_key(const ClusterSecret& secret) {
  std::array<std::uint8_t, 32> out{};
  derive(secret, "loci cluster prefills", {}, out);
  return out;
}

SharedKeys cluster_shared_keys(const ClusterSecret& secret,
                               const std::array<std::uint8_t, 16>& state_fingerprint) {
  SharedKeys keys;
  derive(secret, "loci shared store names", state_fingerprint, keys.names);
  derive(secret, "loci shared store seals", state_fingerprint, keys.seals);
  return keys;
}

}  // namespace loci
