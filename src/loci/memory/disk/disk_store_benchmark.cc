// SPDX-License-Identifier: Apache-2.0
// How fast a disk store is found again after a restart, and how fast it loads and saves whole entries;
// bench/disk_store.py puts it beside fio. The store is made in LOCI_BENCH_DIR, or the temporary folder (which
// must not be in memory).
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string>

#include "loci/memory/disk/disk_files.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/open_disk_store.h"

namespace loci {
namespace {

// A folder of its own, removed at the end.
class BenchFolder {
 public:
  BenchFolder() {
    const char* base = std::getenv("LOCI_BENCH_DIR");
    std::string pattern =
        std::string(base != nullptr ? base : std::filesystem::temp_directory_path()) + "/loci_bench_XXXXXX";
    LOCI_CHECK(::mkdtemp(pattern.data()) != nullptr, "LOCI_BENCH_DIR must be writable");
    path_ = pattern;
  }
  ~BenchFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Slots take no space, so that headers of a million fit on a small disk.
class SparseFolder final : public DiskFolder {
 public:
  explicit SparseFolder(std::string path) : real_(make_disk_folder(std::move(path))) {}
  const std::string& path() const override { return real_->path(); }
  Status lock(const DiskLockWish& wish) override { return real_->lock(wish); }
  void go_on() override {}
  std::string keep_lock() override { return {}; }
  Result<std::shared_ptr<DiskFile>> open(std::string_view name, FileCaching caching) override {
    return real_->open(name, caching);
  }
  Result<std::shared_ptr<DiskFile>> create(std::string_view name, std::uint64_t bytes,
                                           FileCaching caching) override {
    if (!name.ends_with(".slots")) return real_->create(name, bytes, caching);
    LOCI_RETURN_IF_ERROR(real_->create(name, 4096, FileCaching::kCached).status());
    std::filesystem::resize_file(path() + "/" + std::string(name), bytes);
    return real_->open(name, caching);
  }
  Status replace(std::string_view name, std::span<const std::byte> content) override {
    return real_->replace(name, content);
  }
  Status remove(std::string_view name) override { return real_->remove(name); }
  std::uint64_t free_bytes() const override { return ~std::uint64_t{0}; }

 private:
  std::unique_ptr<DiskFolder> real_;
};

constexpr std::uint32_t kLayers = 30;
constexpr std::uint64_t kSliceBytes = 24 << 10;  // 32 tokens of a layer of SmolLM2-135M

DiskStoreOptions options(const BenchFolder& folder, std::uint64_t entries) {
  return {.directories = {{folder.file("state"), entries * (kLayers * kSliceBytes + 1024) + (1 << 20)}},
          .groups = {{.layers = kLayers, .layer_slice_bytes = kSliceBytes}}};
}

void drop_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  LOCI_CHECK(file >= 0 && ::fdatasync(file) == 0, "a file of the store");
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

// Headers of `entries` conversations' blocks, 100 to a chain.
void write_headers(const DiskStoreOptions& with, std::uint64_t entries, const MakeDiskFolder& make_folder) {
  const DiskFileSet files = open_disk_files(with, make_folder).value();
  LOCI_CHECK(files.layout.groups[0].slots >= entries, "room for the entries");
  const std::vector<std::uint64_t> checksums(kLayers, 1);
  std::vector<std::byte> record(record_bytes(kLayers));
  for (std::uint32_t i = 0; i < entries; ++i) {
    const DiskFileSet::Place place = files.record_place(0, SlotId(i));
    encode_record(place.record, test_entry(i, 1 + i % 100), checksums, record);
    LOCI_CHECK(place.file->write(place.offset, record) > 0, "a header");
  }
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Opening and recovery of so many entries; the second argument says whether headers are in the page cache.
void recover_entries(benchmark::State& state) {
  const BenchFolder folder;
  const auto entries = static_cast<std::uint64_t>(state.range(0));
  const DiskStoreOptions with = options(folder, entries);
  const MakeDiskFolder make_folder = [](std::string path) {
    return std::make_unique<SparseFolder>(std::move(path));
  };
  write_headers(with, entries, make_folder);
  const SystemClock clock;
  double open_seconds = 0;
  double cpu = 0;
  for (auto _ : state) {
    if (state.range(1) == 0) {
      for (const char* name : {"group-0.headers", "holes.headers"}) {
        drop_cache(with.directories[0].path + "/" + name);
      }
    }
    const double cpu_before = cpu_seconds();
    const Nanos start = clock.now();
    const auto store = open_disk_store(with, make_folder, clock).value();
    const Nanos opened = clock.now();
    const std::vector<RecoveredEntry> found = recover_all(*store);
    LOCI_CHECK(found.size() == entries, "all entries are found");
    open_seconds = static_cast<double>(opened - start) / kNanosPerSecond;
    cpu = cpu_seconds() - cpu_before;
    state.SetIterationTime(static_cast<double>(clock.now() - start) / kNanosPerSecond);
  }
  state.counters["open_s"] = open_seconds;
  state.counters["cpu_s"] = cpu;  // of all threads
  state.counters["entries/s"] =
      benchmark::Counter(static_cast<double>(entries), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(recover_entries)
    ->ArgNames({"entries", "cached"})
    ->Args({100'000, 0})
    ->Args({100'000, 1})
    ->Args({1'000'000, 0})
    ->Args({1'000'000, 1})
    ->Iterations(2)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Copies, as a mover does.
class CopyingSink final : public BlockReadSink {
 public:
  CopyingSink(std::size_t items, std::byte* into) : into_(into), left_(items) {}
  void slices(std::size_t item, std::uint32_t first, std::uint32_t,
              std::span<const std::byte> bytes) override {
    std::memcpy(into_ + (item * kLayers + first) * kSliceBytes, bytes.data(), bytes.size());
  }
  void done(std::size_t, Status status) override {
    LOCI_CHECK(status.ok(), "every entry is read");
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) all_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    all_.wait(lock, [&] { return left_ == 0; });
  }

 private:
  std::byte* into_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::size_t left_;
};

// Conversations of 4,000 tokens (125 entries), one after another. The argument is the layers at once.
void load_entries(benchmark::State& state, const std::string& io) {
  constexpr std::uint32_t kEntries = 1500, kConversation = 125;
  const BenchFolder folder;
  DiskStoreOptions with = options(folder, kEntries);
  with.io = io;
  const auto store = DiskStore::open(with).value();
  const std::vector<std::byte> bytes = test_bytes(1, store->groups()[0]);
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    LOCI_CHECK(write_one(*store, 0, SlotId(i), test_entry(i), bytes).ok(), "an entry");
  }
  std::vector<std::byte> memory(std::size_t{kConversation} * kLayers * kSliceBytes);
  std::uint32_t next = 0;
  const double cpu_before = cpu_seconds();
  for (auto _ : state) {
    std::vector<BlockRead> items;
    for (std::uint32_t i = 0; i < kConversation; ++i, next = (next + 1) % kEntries) {
      items.push_back({0, SlotId(next), test_key(next)});
    }
    const auto sink = std::make_shared<CopyingSink>(items.size(), memory.data());
    store->read(std::move(items), static_cast<std::uint32_t>(state.range(0)), sink);
    sink->wait();
  }
  const std::uint64_t moved = state.iterations() * memory.size();
  state.SetBytesProcessed(static_cast<std::int64_t>(moved));
  // Of all threads: what loading takes from computing.
  state.counters["cpu_s/GiB"] = (cpu_seconds() - cpu_before) / (static_cast<double>(moved) / (1 << 30));
}
BENCHMARK_CAPTURE(load_entries, io_uring, std::string("auto"))
    ->ArgName("layers")
    ->Arg(0)
    ->Arg(1)
    ->Arg(4)
    ->Arg(30)
    ->Iterations(24)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_entries, threads, std::string("threads"))
    ->ArgName("layers")
    ->Arg(0)
    ->Arg(1)
    ->Arg(4)
    ->Arg(30)
    ->Iterations(24)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Saving, with as many entries under way as the second argument says.
void save_entries(benchmark::State& state) {
  constexpr std::uint32_t kEntries = 1000;
  const BenchFolder folder;
  const auto store = DiskStore::open(options(folder, kEntries)).value();
  const std::vector<std::byte> bytes = test_bytes(1, store->groups()[0]);
  for (auto _ : state) {
    std::vector<std::future<Status>> writes;
    for (std::uint32_t i = 0; i < kEntries; ++i) {
      writes.push_back(write_later(*store, 0, SlotId(i), test_entry(i), bytes));
      if (i >= 8) LOCI_CHECK(writes[i - 8].get().ok(), "an entry");
    }
    for (std::uint32_t i = kEntries - 8; i < kEntries; ++i) LOCI_CHECK(writes[i].get().ok(), "an entry");
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kEntries * bytes.size()));
}
BENCHMARK(save_entries)->Iterations(3)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
