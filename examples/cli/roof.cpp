// SPDX-License-Identifier: MIT
// Measures the roofs: plain loops over memory, and dot-product instructions without memory. The instructions are written
// in assembly, because a compiler would move or merge them and measure its own wit.
#include "roof.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace cli {

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
#  define TINFER_ROOF_X86 1
#else
#  define TINFER_ROOF_X86 0
#endif

/// Best of `repeats` runs of `work(thread)` on all threads, in seconds from the common start to the last end.
double best_time(int n_threads, int repeats, const std::function<void(int)>& work) {
    double best = 1e30;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        std::atomic<int> ready = 0;
        std::atomic<bool> go = false;
        std::vector<std::thread> threads;
        for (int t = 0; t < n_threads; ++t)
            threads.emplace_back([&, t] {
                ++ready;
                while (!go) std::this_thread::yield();
                work(t);
            });
        while (ready != n_threads) std::this_thread::yield();
        const auto start = std::chrono::steady_clock::now();
        go = true;
        for (auto& thread : threads) thread.join();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

// ---- Stream read ----------------------------------------------------------------------------------------------------

constexpr std::size_t kLine = 64;

#if TINFER_ROOF_X86
/// Sixteen independent loads per round. What they load is dropped: assembly is not optimised away.
__attribute__((target("avx2"))) void read_avx2(const std::byte* begin, const std::byte* end) {
    for (const std::byte* p = begin; p < end; p += 8 * kLine)
        asm volatile("vmovdqu 0(%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\tvmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
                     "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\tvmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7\n\t"
                     "vmovdqu 256(%0), %%ymm0\n\tvmovdqu 288(%0), %%ymm1\n\tvmovdqu 320(%0), %%ymm2\n\tvmovdqu 352(%0), %%ymm3\n\t"
                     "vmovdqu 384(%0), %%ymm4\n\tvmovdqu 416(%0), %%ymm5\n\tvmovdqu 448(%0), %%ymm6\n\tvmovdqu 480(%0), %%ymm7"
                     :: "r"(p) : "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "memory");
    asm volatile("vzeroupper");
}
#endif

void read_plain(const std::byte* begin, const std::byte* end) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(begin);
    std::uint64_t sums[8] = {};
    for (const auto* last = reinterpret_cast<const std::uint64_t*>(end); words < last; words += 8)
        for (int i = 0; i < 8; ++i) sums[i] ^= words[i];
    volatile std::uint64_t sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
    static_cast<void>(sink);
}

// ---- Dot products ---------------------------------------------------------------------------------------------------

constexpr std::int64_t kRounds = 4'000'000;

#if TINFER_ROOF_X86
/// Twelve independent chains hide the latency of four cycles on two ports. 64 products an instruction.
__attribute__((target("avx512f,avx512bw,avx512vnni"))) double dot_vnni512() {
    std::int64_t rounds = kRounds;
    asm volatile("1:\n\t"
                 "vpdpbusd %%zmm31, %%zmm30, %%zmm0\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm1\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm2\n\t"
                 "vpdpbusd %%zmm31, %%zmm30, %%zmm3\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm4\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm5\n\t"
                 "vpdpbusd %%zmm31, %%zmm30, %%zmm6\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm7\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm8\n\t"
                 "vpdpbusd %%zmm31, %%zmm30, %%zmm9\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm10\n\tvpdpbusd %%zmm31, %%zmm30, %%zmm11\n\t"
                 "dec %0\n\tjnz 1b\n\tvzeroupper"
                 : "+r"(rounds) :: "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11");
    return 12.0 * 64 * kRounds;
}

/// The bare vpmaddubsw rate: 32 products an instruction.
__attribute__((target("avx2"))) double dot_avx2() {
    std::int64_t rounds = kRounds;
    asm volatile("1:\n\t"
                 "vpmaddubsw %%ymm15, %%ymm14, %%ymm0\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm1\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm2\n\t"
                 "vpmaddubsw %%ymm15, %%ymm14, %%ymm3\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm4\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm5\n\t"
                 "vpmaddubsw %%ymm15, %%ymm14, %%ymm6\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm7\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm8\n\t"
                 "vpmaddubsw %%ymm15, %%ymm14, %%ymm9\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm10\n\tvpmaddubsw %%ymm15, %%ymm14, %%ymm11\n\t"
                 "dec %0\n\tjnz 1b\n\tvzeroupper"
                 : "+r"(rounds) :: "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11");
    return 12.0 * 32 * kRounds;
}
#endif

/// Where there is no better instruction: scalar products, what a plain loop gets.
double dot_plain() {
    volatile std::int8_t a = 3, b = 5;
    std::int32_t sums[8] = {};
    const std::int8_t x = a, y = b;
    for (std::int64_t round = 0; round < kRounds; ++round)
        for (int i = 0; i < 8; ++i) sums[i] += x * (y + static_cast<std::int8_t>(round));
    volatile std::int32_t sink = sums[0] ^ sums[7];
    static_cast<void>(sink);
    return 8.0 * kRounds;
}

}  // namespace

double stream_read_rate(int n_threads) {
    constexpr std::size_t kBytes = std::size_t{1} << 30, kStep = 8 * kLine;
    std::vector<std::byte> buffer(kBytes, std::byte{1});
    const std::size_t part = kBytes / static_cast<std::size_t>(n_threads) / kStep * kStep;
    auto read = read_plain;
#if TINFER_ROOF_X86
    if (__builtin_cpu_supports("avx2")) read = read_avx2;
#endif
    const double seconds = best_time(n_threads, 7, [&](int t) {
        const std::byte* begin = buffer.data() + part * static_cast<std::size_t>(t);
        read(begin, begin + part);
    });
    return double(part) * n_threads / seconds;
}

double int8_dot_rate(int n_threads) {
    auto dot = dot_plain;
#if TINFER_ROOF_X86
    if (__builtin_cpu_supports("avx2")) dot = dot_avx2;
    if (__builtin_cpu_supports("avx512vnni")) dot = dot_vnni512;
#endif
    double products = 0;
    const double seconds = best_time(n_threads, 5, [&](int t) {
        const double done = dot();
        if (t == 0) products = done;
    });
    return products * n_threads / seconds;
}

}  // namespace cli
