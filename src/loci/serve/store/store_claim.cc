// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace loci {
namespace {

// Two names of one file are one store.
std::string lock_path_of(const std::string& store_path) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(store_path, error);
  return (error ? std::filesystem::path(store_path) : path).string() + ".lock";
}

Status make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error, ignored;
  if (!folder.empty() && std::filesystem::create_directories(folder, error))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  if (!error) return {};
  return {StatusCode::kUnavailable,
          fmt::format("the folder {} cannot be made: {}; choose a place for the file elsewhere",
                      folder.string(), error.message())};
}

Status in_use(const std::string& store_path, int descriptor) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size() - 1, 0);
  const long process = size > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
  return {StatusCode::kUnavailable,
          fmt::format(
              "{}: another server{} keeps its conversations there; stop it, or give this one a file of its "
              "own (or both a PostgreSQL database)",
              store_path, process > 0 ? fmt::format(" (process {})", process) : "")};
}

Status failed(const std::string& path, int error) {
  return {StatusCode::kUnavailable,
          fmt::format("{}: cannot be locked: {}", path, std::generic_category().message(error))};
}

}  // namespace

StoreClaim::StoreClaim(StoreClaim&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

StoreClaim& StoreClaim::operator=(StoreClaim&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

StoreClaim::~StoreClaim() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<StoreClaim> StoreClaim::take(const std::string& store_path) {
  const std::string path = lock_path_of(store_path);
  LOCI_RETURN_IF_ERROR(make_folder_of(path));
  StoreClaim claim(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (claim.descriptor_ < 0) return failed(path, errno);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(claim.descriptor_, F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return in_use(store_path, claim.descriptor_);
    return failed(path, errno);
  }
  const std::string process = fmt::format("{}\n", ::getpid());
  const bool written = ::ftruncate(claim.descriptor_, 0) == 0 &&
                       ::pwrite(claim.descriptor_, process.data(), process.size(), 0) > 0;
  (void)written;  // The number is for people: without it the store is claimed as well.
  return claim;
}

}  // namespace loci
