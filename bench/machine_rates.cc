// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, for the limits beside each figure of docs/performance.md: how fast
// all threads together read memory, and the peak rates of the int8 dot product and of the float32
// multiply-add. One JSON line. `compare.py` compiles and runs it; it needs no other file.
//
//   machine_rates THREADS MODEL_MIB [avx2]
//
// "avx2" leaves AVX-512 aside.
//
// The read rate is taken twice: over a buffer that no cache holds, and over one of the model's size,
// which a large last cache holds in part; both are the best of several passes.
#include <immintrin.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs work(thread index) on all threads at once, `passes` times; the shortest pass in seconds.
double best_seconds(int threads, int passes, const std::function<void(int)>& work) {
  double best = 1e30;
  std::barrier start_line(threads);
  std::vector<std::thread> pool;
  Clock::time_point start;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (int pass = 0; pass < passes; ++pass) {
        start_line.arrive_and_wait();
        if (t == 0) start = Clock::now();
        start_line.arrive_and_wait();
        work(t);
        start_line.arrive_and_wait();
        if (t == 0) best = std::min(best, seconds_since(start));
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  return best;
}

// Four streams of 64 bytes a step; the sum keeps the loads alive.
__attribute__((target("avx2"))) std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  __m256i sum[8] = {};
  for (std::size_t i = 0; i + 256 <= bytes; i += 256) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2112), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2176), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2240), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sum[k] =
          _mm256_xor_si256(sum[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm256_xor_si256(sum[0], sum[k]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

double read_rate(int threads, std::size_t bytes, int passes) {
  const std::size_t each = bytes / static_cast<std::size_t>(threads) / 4096 * 4096;
  const std::size_t total = each * static_cast<std::size_t>(threads);
  std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(2 << 20, (total + (2 << 20)) >> 21 << 21), &std::free);
  std::byte* data = static_cast<std::byte*>(memory.get());
  std::memset(data, 1, total);
  volatile std::uint64_t sink = 0;
  const double seconds = best_seconds(threads, passes, [&](int t) {
    sink = sink ^ read_all(data + each * static_cast<std::size_t>(t), each);
  });
  return static_cast<double>(total) / seconds;
}

constexpr int kSteps = 200'000;  // short, so that some passes are undisturbed
constexpr int kChains = 12;      // enough to hide the instruction's latency

// Each returns the operations (multiplications and additions) that it did. An empty asm keeps the
// compiler from folding the loop.
__attribute__((target("avx512f,avx512vnni"))) double dot_avx512_vnni() {
  __m512i sum[kChains] = {};
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (__m512i& chain : sum) {
      chain = _mm512_dpbusd_epi32(chain, a, b);
      asm volatile("" : "+v"(chain));
    }
  }
  return 128.0 * kChains * kSteps;
}

__attribute__((target("avx2"))) double dot_avx2() {
  __m256i sum[kChains] = {};
  const __m256i a = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i b = _mm256_set1_epi8(5);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (__m256i& chain : sum) {
      asm volatile("" : "+x"(b));
      chain = _mm256_add_epi32(chain, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      asm volatile("" : "+x"(chain));
    }
  }
  return 64.0 * kChains * kSteps;
}

__attribute__((target("avx512f"))) double fma_avx512() {
  __m512 sum[kChains] = {};
  const __m512 a = _mm512_set1_ps(0.5F), b = _mm512_set1_ps(0.25F);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (__m512& chain : sum) {
      chain = _mm512_fmadd_ps(chain, a, b);
      asm volatile("" : "+v"(chain));
    }
  }
  return 32.0 * kChains * kSteps;
}

__attribute__((target("avx2,fma"))) double fma_avx2() {
  __m256 sum[kChains] = {};
  const __m256 a = _mm256_set1_ps(0.5F), b = _mm256_set1_ps(0.25F);
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (__m256& chain : sum) {
      chain = _mm256_fmadd_ps(chain, a, b);
      asm volatile("" : "+x"(chain));
    }
  }
  return 16.0 * kChains * kSteps;
}

double peak_rate(int threads, double (*loop)()) {
  std::vector<double> operations(static_cast<std::size_t>(threads));
  const double seconds =
      best_seconds(threads, 300, [&](int t) { operations[static_cast<std::size_t>(t)] = loop(); });
  double total = 0;
  for (double one : operations) total += one;
  return total / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const int model_mib = argc > 2 ? std::atoi(argv[2]) : 0;
  if (threads < 1 || threads > 1024 || model_mib < 1 || model_mib > 1 << 20) {
    std::fprintf(stderr, "usage: machine_rates THREADS MODEL_MIB [avx2]\n");
    return 2;
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fprintf(stderr, "machine_rates: this processor has no AVX2\n");
    return 1;
  }
  const bool only_avx2 = argc > 3 && std::strcmp(argv[3], "avx2") == 0;
  const bool avx512 = !only_avx2 && __builtin_cpu_supports("avx512f") != 0;
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  const double large = read_rate(threads, std::size_t{1} << 30, 12);
  const double model = read_rate(threads, static_cast<std::size_t>(model_mib) << 20, 30);
  const double dot = peak_rate(threads, vnni ? dot_avx512_vnni : dot_avx2);
  const double fma = peak_rate(threads, avx512 ? fma_avx512 : fma_avx2);
  std::printf(
      "{\"threads\": %d, \"read_bytes_per_second\": %.4g, \"read_model_bytes_per_second\": %.4g, "
      "\"int8_operations_per_second\": %.4g, \"int8_instruction\": \"%s\", "
      "\"float32_operations_per_second\": %.4g}\n",
      threads, large, model, dot, vnni ? "AVX-512 vpdpbusd" : "AVX2 vpmaddubsw + vpmaddwd", fma);
  return 0;
}
