// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/faulty_disk_testing.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/durable_file.h"
#include "loci/memory/disk/disk_format.h"

namespace loci {

class FaultyDisk::File final : public DiskFile {
 public:
  File(FaultyDisk& disk, std::string directory, std::string name, std::shared_ptr<Content> content,
       bool direct)
      : disk_(disk),
        directory_(std::move(directory)),
        name_(std::move(name)),
        content_(std::move(content)),
        direct_(direct) {}

  std::int64_t read(std::uint64_t offset, std::span<std::byte> into) override {
    check_aligned(offset, into);
    return disk_.move({directory_, name_, false, offset, into.size()}, into.data(), *content_);
  }
  std::int64_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    check_aligned(offset, from);
    return disk_.move({directory_, name_, true, offset, from.size()}, const_cast<std::byte*>(from.data()),
                      *content_);
  }
  std::uint64_t size_bytes() const override { return content_->bytes.size(); }
  std::uint64_t next_data(std::uint64_t offset) const override { return offset; }
  std::int64_t discard(std::uint64_t offset, std::uint64_t bytes) override {
    std::vector<std::byte> zeros(kDiskAlignment);
    for (std::uint64_t done = 0; done < bytes; done += zeros.size()) {
      const FaultyOperation piece{
          directory_, name_, true, offset + done, std::min<std::uint64_t>(zeros.size(), bytes - done), true};
      if (const std::int64_t put = disk_.move(piece, zeros.data(), *content_); put < 0) return put;
    }
    return 0;
  }
  std::int64_t grow(std::uint64_t bytes) override {
    const MutexLock lock(disk_.mutex_);
    content_->bytes.resize(bytes);
    return 0;
  }
  bool direct() const override { return direct_; }
  int descriptor() const override { return -1; }

 private:
  void check_aligned(std::uint64_t offset, std::span<const std::byte> bytes) const {
    LOCI_CHECK(
        !direct_ ||
            (offset | bytes.size() | reinterpret_cast<std::uintptr_t>(bytes.data())) % kDiskAlignment == 0,
        "O_DIRECT needs aligned places, sizes and memory");
  }

  FaultyDisk& disk_;
  const std::string directory_, name_;
  const std::shared_ptr<Content> content_;
  const bool direct_;
};

class FaultyDisk::Folder final : public DiskFolder {
 public:
  Folder(FaultyDisk& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }
  Status lock(const DiskLockWish&) override { return {}; }
  void go_on() override {}
  std::string keep_lock() override { return {}; }
  Result<std::shared_ptr<DiskFile>> open(std::string_view name, FileCaching caching) override {
    const MutexLock lock(disk_.mutex_);
    const auto& files = disk_.directories_[path_];
    const auto found = files.find(std::string(name));
    if (found == files.end()) return not_found("no such file");
    return std::shared_ptr<DiskFile>(std::make_shared<File>(disk_, path_, std::string(name), found->second,
                                                            caching == FileCaching::kDirect));
  }
  Result<std::shared_ptr<DiskFile>> create(std::string_view name, std::uint64_t bytes,
                                           FileCaching caching) override {
    {
      const MutexLock lock(disk_.mutex_);
      disk_.directories_[path_][std::string(name)] =
          std::make_shared<Content>(Content{std::vector<std::byte>(bytes), {}});
    }
    return open(name, caching);
  }
  Status replace(std::string_view name, std::span<const std::byte> content) override {
    const auto fresh = std::make_shared<Content>(Content{std::vector<std::byte>(content.size()), {}});
    const std::int64_t put = disk_.move({path_, std::string(name), true, 0, content.size()},
                                        const_cast<std::byte*>(content.data()), *fresh);
    if (put != static_cast<std::int64_t>(content.size()))
      return {code_of_failed_write(static_cast<int>(-put)), std::string(name) + " cannot be written", "disk"};
    const MutexLock lock(disk_.mutex_);
    fresh->older.clear();
    disk_.directories_[path_][std::string(name)] = fresh;
    return {};
  }
  Status remove(std::string_view name) override {
    const MutexLock lock(disk_.mutex_);
    disk_.directories_[path_].erase(std::string(name));
    return {};
  }
  std::uint64_t free_bytes() const override { return ~std::uint64_t{0}; }

 private:
  FaultyDisk& disk_;
  const std::string path_;
};

MakeDiskFolder FaultyDisk::folders() {
  return [this](std::string path) { return std::make_unique<Folder>(*this, std::move(path)); };
}

void FaultyDisk::set_judge(Judge judge) {
  const MutexLock lock(mutex_);
  judge_ = std::move(judge);
}

void FaultyDisk::release() {
  const MutexLock lock(mutex_);
  ++releases_;
  released_.notify_all();
}

FaultyDisk::~FaultyDisk() { wait_for_rest(); }

void FaultyDisk::wait_for_rest() {
  MutexLock lock(mutex_);
  released_.wait(lock, [&]() REQUIRES(mutex_) { return under_way_ == 0; });
}

std::int64_t FaultyDisk::move(const FaultyOperation& operation, std::byte* data, Content& content) {
  {
    const MutexLock lock(mutex_);
    ++under_way_;
  }
  const std::int64_t result = carry_out(operation, data, content);
  const MutexLock lock(mutex_);
  if (--under_way_ == 0) released_.notify_all();
  return result;
}

std::int64_t FaultyDisk::carry_out(const FaultyOperation& operation, std::byte* data, Content& content) {
  MutexLock lock(mutex_);
  const Judge judge = judge_;
  const std::uint64_t seen = releases_;  // a release that comes while it is judged counts
  lock.unlock();
  const FaultAnswer answer = judge ? judge(operation) : FaultAnswer{};
  if (answer.kind == FaultAnswer::Kind::kError) return -answer.error;
  lock.lock();
  if (answer.kind == FaultAnswer::Kind::kHangs) {
    released_.wait(lock, [&]() REQUIRES(mutex_) { return releases_ != seen; });
  }
  const std::size_t wanted =
      answer.kind == FaultAnswer::Kind::kShort ? std::min(answer.bytes, operation.bytes) : operation.bytes;
  if (operation.offset >= content.bytes.size()) return 0;
  const std::size_t bytes = std::min<std::size_t>(wanted, content.bytes.size() - operation.offset);
  std::byte* place = content.bytes.data() + operation.offset;
  if (!operation.write) {
    std::memcpy(data, place, bytes);
    return static_cast<std::int64_t>(bytes);
  }
  if (bytes == 0) return 0;
  for (std::uint64_t sector = operation.offset / kDiskSector; sector * kDiskSector < operation.offset + bytes;
       ++sector) {
    const auto first = content.bytes.begin() + static_cast<std::ptrdiff_t>(sector * kDiskSector);
    const auto size = std::min<std::uint64_t>(kDiskSector, content.bytes.size() - sector * kDiskSector);
    content.older[sector].emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
  }
  std::memcpy(place, data, bytes);
  return static_cast<std::int64_t>(bytes);
}

void FaultyDisk::sync() {
  const MutexLock lock(mutex_);
  for (auto& [path, files] : directories_) {
    for (auto& [name, content] : files) content->older.clear();
  }
}

void FaultyDisk::lose_power(Random& random) {
  const MutexLock lock(mutex_);
  for (auto& [path, files] : directories_) {
    for (auto& [name, content] : files) {
      // Some files lose nearly all, some nearly nothing, some a part.
      const double kept = random.below(3) == 0 ? 1 : random.unit();
      for (const auto& [sector, versions] : content->older) {
        if (random.unit() < kept) continue;
        const std::vector<std::byte>& survivor = versions[random.below(versions.size())];
        std::copy(survivor.begin(), survivor.end(),
                  content->bytes.begin() + static_cast<std::ptrdiff_t>(sector * kDiskSector));
      }
      content->older.clear();
    }
  }
}

void FaultyDisk::flip(const std::string& directory, const std::string& file, std::uint64_t offset) {
  const MutexLock lock(mutex_);
  directories_.at(directory).at(file)->bytes.at(offset) ^= std::byte{0x10};
}

std::uint64_t FaultyDisk::bytes_of(const std::string& directory) const {
  const MutexLock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [name, content] : directories_.at(directory)) sum += content->bytes.size();
  return sum;
}

}  // namespace loci
