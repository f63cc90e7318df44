// SPDX-License-Identifier: MIT
// The loops are written in assembly, because a compiler would move or merge them and measure its own wit. Each runs long
// enough to be seen by the clock and is chosen at run time, so the file needs no flags.
#include "roof.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

namespace roof {

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
#  define TINFER_ROOF_X86 1
#else
#  define TINFER_ROOF_X86 0
#endif

constexpr std::int64_t kRounds = 200'000;   // of fourteen instructions: about half a millisecond
constexpr int kChains = 14;                 // independent: two ports with a latency of five need ten

// ---- Multiply-accumulates -------------------------------------------------------------------------------------------

#if TINFER_ROOF_X86
#  define TINFER_ROOF_14(head, tail)                                                                           \
    head "0" tail head "1" tail head "2" tail head "3" tail head "4" tail head "5" tail head "6" tail          \
    head "7" tail head "8" tail head "9" tail head "10" tail head "11" tail head "12" tail head "13" tail
#  define TINFER_ROOF_CLOBBERS                                                                                 \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",    \
    "xmm12", "xmm13", "xmm14", "xmm15"
// Accumulators begin at zero and both factors are ones (of floats, 1.0): no denormals, which cost extra.
#  define TINFER_ROOF_LOOP(name, instruction, v, one)                                                          \
    void name() noexcept {                                                                                     \
        std::int64_t rounds = kRounds;                                                                         \
        asm volatile("vzeroall\n\tvmovd %1, %%xmm14\n\tvpbroadcastd %%xmm14, %%" v "14\n\t"                    \
                     "vpbroadcastd %%xmm14, %%" v "15\n\t.p2align 5\n1:\n\t"                                   \
                     TINFER_ROOF_14(instruction " %%" v "15, %%" v "14, %%" v, "\n\t")                         \
                     "dec %0\n\tjnz 1b\n\tvzeroupper"                                                          \
                     : "+r"(rounds) : "r"(one) : TINFER_ROOF_CLOBBERS);                                        \
    }

TINFER_ROOF_LOOP(dots_vnni512, "vpdpbusd", "zmm", 0x01010101)
TINFER_ROOF_LOOP(maddubs_512, "vpmaddubsw", "zmm", 0x01010101)
TINFER_ROOF_LOOP(maddubs_256, "vpmaddubsw", "ymm", 0x01010101)
TINFER_ROOF_LOOP(fmas_512, "vfmadd231ps", "zmm", 0x3F800000)
TINFER_ROOF_LOOP(fmas_256, "vfmadd231ps", "ymm", 0x3F800000)

/// One addition a cycle: it depends on the one before. (Of registers: constants are added for free on some cores.)
void additions() noexcept {
    std::int64_t rounds = kRounds, sum = 0;
    asm volatile("1:\n\t"
                 "add %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\t"
                 "add %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\tadd %2, %1\n\t"
                 "dec %0\n\tjnz 1b"
                 : "+r"(rounds), "+r"(sum) : "r"(std::int64_t{3}) : "cc");
}
#endif

/// Where there is no better instruction: what a plain loop gets.
template <class T>
void plain_products() noexcept {
    volatile T factor = 1;
    T sums[kChains] = {};
    const T a = factor, b = factor;
    for (std::int64_t round = 0; round < kRounds; ++round)
        for (T& sum : sums) sum = static_cast<T>(sum + a * b);
    volatile T sink = 0;
    for (const T sum : sums) sink = static_cast<T>(sink + sum);
}

struct Instruction { void (*loop)() noexcept; int products; };

Instruction int8_instruction(Level level) noexcept {
#if TINFER_ROOF_X86
    if (level == Level::avx512vnni) return {dots_vnni512, 64};
    if (level == Level::avx512) return {maddubs_512, 64};
    if (level == Level::avx2) return {maddubs_256, 32};
#endif
    static_cast<void>(level);
    return {plain_products<std::int32_t>, 1};
}

Instruction f32_instruction(Level level) noexcept {
#if TINFER_ROOF_X86
    if (level >= Level::avx512) return {fmas_512, 16};
    if (level == Level::avx2) return {fmas_256, 8};
#endif
    static_cast<void>(level);
    return {plain_products<float>, 1};
}

double product_rate(Team& team, Instruction instruction, double budget) {
    const double seconds = best_seconds(team, budget, [&](int) { instruction.loop(); });
    return static_cast<double>(kChains * kRounds) * instruction.products * team.size() / seconds;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

constexpr std::size_t kStep = 512;   // bytes of one round of any loop below

using ReadLoop = void(const std::byte* begin, const std::byte* end);

#if TINFER_ROOF_X86
// What they load is dropped: assembly is not optimised away.
void read_256(const std::byte* begin, const std::byte* end) {
    for (const std::byte* p = begin; p < end; p += kStep)
        asm volatile("vmovdqu 0(%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\tvmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
                     "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\tvmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7\n\t"
                     "vmovdqu 256(%0), %%ymm0\n\tvmovdqu 288(%0), %%ymm1\n\tvmovdqu 320(%0), %%ymm2\n\tvmovdqu 352(%0), %%ymm3\n\t"
                     "vmovdqu 384(%0), %%ymm4\n\tvmovdqu 416(%0), %%ymm5\n\tvmovdqu 448(%0), %%ymm6\n\tvmovdqu 480(%0), %%ymm7"
                     :: "r"(p) : TINFER_ROOF_CLOBBERS, "memory");
    asm volatile("vzeroupper");
}

#  define TINFER_ROOF_READ_512                                                                                  \
    "vmovdqu64 0(%0), %%zmm0\n\tvmovdqu64 64(%0), %%zmm1\n\tvmovdqu64 128(%0), %%zmm2\n\t"                      \
    "vmovdqu64 192(%0), %%zmm3\n\tvmovdqu64 256(%0), %%zmm4\n\tvmovdqu64 320(%0), %%zmm5\n\t"                   \
    "vmovdqu64 384(%0), %%zmm6\n\tvmovdqu64 448(%0), %%zmm7\n\t"

void read_512(const std::byte* begin, const std::byte* end) {
    for (const std::byte* p = begin; p < end; p += kStep)
        asm volatile(TINFER_ROOF_READ_512 :: "r"(p) : TINFER_ROOF_CLOBBERS, "memory");
    asm volatile("vzeroupper");
}

/// With every line asked for 4 KiB ahead. (Prefetches past the end do nothing.)
void read_512_ahead(const std::byte* begin, const std::byte* end) {
    for (const std::byte* p = begin; p < end; p += kStep)
        asm volatile("prefetcht0 4096(%0)\n\tprefetcht0 4160(%0)\n\tprefetcht0 4224(%0)\n\tprefetcht0 4288(%0)\n\t"
                     "prefetcht0 4352(%0)\n\tprefetcht0 4416(%0)\n\tprefetcht0 4480(%0)\n\tprefetcht0 4544(%0)\n\t"
                     TINFER_ROOF_READ_512 :: "r"(p) : TINFER_ROOF_CLOBBERS, "memory");
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

std::vector<ReadLoop*> read_loops() {
    std::vector<ReadLoop*> loops{read_plain};
#if TINFER_ROOF_X86
    if (__builtin_cpu_supports("avx2")) loops.push_back(read_256);
    if (__builtin_cpu_supports("avx512f")) loops.insert(loops.end(), {read_512, read_512_ahead});
#endif
    return loops;
}

}  // namespace

Level level_of(std::string_view isa) noexcept {
#if TINFER_ROOF_X86
    if (isa == "avx512vnni" && __builtin_cpu_supports("avx512vnni")) return Level::avx512vnni;
    if (isa == "avx512" && __builtin_cpu_supports("avx512bw")) return Level::avx512;
    if (isa == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Level::avx2;
#endif
    static_cast<void>(isa);
    return Level::plain;
}

std::string_view to_string(Level level) noexcept {
    constexpr std::string_view kNames[] = {"plain", "avx2", "avx512", "avx512vnni"};
    return kNames[static_cast<std::size_t>(level)];
}

int int8_products(Level level) noexcept { return level == Level::plain ? 0 : int8_instruction(level).products; }
int f32_products(Level level) noexcept { return level == Level::plain ? 0 : f32_instruction(level).products; }

double int8_dot_rate(Team& team, Level level, double budget) { return product_rate(team, int8_instruction(level), budget); }
double f32_fma_rate(Team& team, Level level, double budget) { return product_rate(team, f32_instruction(level), budget); }

double clock_rate(double budget) {
#if TINFER_ROOF_X86
    Team team(1);
    return kChains * kRounds / best_seconds(team, budget, [](int) { additions(); });
#else
    static_cast<void>(budget);
    return 0;
#endif
}

double read_rate(Team& team, std::span<const std::byte> buffer, double budget) {
    const std::size_t share = buffer.size() / static_cast<std::size_t>(team.size()) / kStep * kStep;
    const auto loops = read_loops();
    double best = 1e30;
    for (ReadLoop* loop : loops)
        best = std::min(best, best_seconds(team, budget / static_cast<double>(loops.size()), [&](int thread) {
            const std::byte* begin = buffer.data() + share * static_cast<std::size_t>(thread);
            loop(begin, begin + share);
        }));
    return static_cast<double>(share) * team.size() / best;
}

double stream_read_rate(Team& team) {
    const std::vector<std::byte> buffer(std::size_t{1} << 30, std::byte{1});
    return read_rate(team, buffer, 1.0);
}

}  // namespace roof
