// SPDX-License-Identifier: MIT
// The loops are written in assembly, because a compiler would reorder or merge them. Each runs long enough for the
// clock and is selected at run time, so the file needs no compiler flags.
#include "roof.hpp"

#include <tinfer/tinfer.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <numeric>
#include <optional>
#include <vector>

namespace roof {

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
#    define TINFER_ROOF_X86 1
#else
#    define TINFER_ROOF_X86 0
#endif

constexpr std::int64_t kRounds = 200'000;  // rounds of fourteen instructions: about half a millisecond
constexpr int kChains = 14;                // independent accumulators: two ports with a latency of five need ten

// ---- Multiply-accumulates -------------------------------------------------------------------------------------------

#if TINFER_ROOF_X86
#    define TINFER_ROOF_14(head, tail)                                                                                 \
        head "0" tail head "1" tail head "2" tail head "3" tail head "4" tail head "5" tail head "6" tail head         \
             "7" tail head "8" tail head "9" tail head "10" tail head "11" tail head "12" tail head "13" tail
#    define TINFER_ROOF_CLOBBERS                                                                                       \
        "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",        \
            "xmm12", "xmm13", "xmm14", "xmm15"
// Accumulators start at zero and both factors are one: no denormals, which would be slower.
#    define TINFER_ROOF_LOOP(name, instruction, v, one, beside)                                                        \
        void name() noexcept {                                                                                         \
            std::int64_t rounds = kRounds, sum = one;                                                                  \
            asm volatile("vzeroall\n\tvmovq %1, %%xmm14\n\tvpbroadcastd %%xmm14, %%" v "14\n\t"                        \
                         "vpbroadcastd %%xmm14, %%" v                                                                  \
                         "15\n\t.p2align 5\n1:\n\t" TINFER_ROOF_14(instruction " %%" v "15, %%" v "14, %%" v,          \
                                                                   beside "\n\t") "dec %0\n\tjnz 1b\n\tvzeroupper"     \
                         : "+r"(rounds), "+r"(sum)                                                                     \
                         : "r"(std::int64_t{1})                                                                        \
                         : TINFER_ROOF_CLOBBERS);                                                                      \
        }
// Two variants each: plain, and with a chain of dependent additions, one per instruction. The second takes fourteen
// cycles per round, and so measures the clock at which the core runs these instructions. (Additions of registers,
// because some cores eliminate additions of constants.)
#    define TINFER_ROOF_LOOPS(name, instruction, v, one)                                                               \
        TINFER_ROOF_LOOP(name, instruction, v, one, "")                                                                \
        TINFER_ROOF_LOOP(name##_clock, instruction, v, one, "\n\tadd %2, %1")

TINFER_ROOF_LOOPS(dots_vnni512, "vpdpbusd", "zmm", 0x01010101)
TINFER_ROOF_LOOPS(dots_vnni256, "%{vex%} vpdpbusd", "ymm", 0x01010101)
TINFER_ROOF_LOOPS(maddubs_512, "vpmaddubsw", "zmm", 0x01010101)
TINFER_ROOF_LOOPS(maddubs_256, "vpmaddubsw", "ymm", 0x01010101)
TINFER_ROOF_LOOPS(fmas_512, "vfmadd231ps", "zmm", 0x3F800000)
TINFER_ROOF_LOOPS(fmas_256, "vfmadd231ps", "ymm", 0x3F800000)
#endif

/// Fallback: a plain loop. The factor is reloaded in every round, so that the compiler cannot hoist the multiplication.
template <class T>
void plain_products() noexcept {
    volatile T factor = 1;
    T sums[kChains] = {};
    for (std::int64_t round = 0; round < kRounds; ++round) {
        const T a = factor, b = factor;
        for (T& sum : sums) sum = static_cast<T>(sum + a * b);
    }
    volatile T sink = 0;
    for (const T sum : sums) sink = static_cast<T>(sink + sum);
}

struct Instruction {
    void (*loop)() noexcept;
    void (*clock)() noexcept;
    int products;
};

Instruction int8_instruction(Level level) noexcept {
#if TINFER_ROOF_X86
    if (level == Level::avx512vnni) return {dots_vnni512, dots_vnni512_clock, 64};
    if (level == Level::avx512) return {maddubs_512, maddubs_512_clock, 64};
    if (level == Level::avxvnni) return {dots_vnni256, dots_vnni256_clock, 32};
    if (level == Level::avx2) return {maddubs_256, maddubs_256_clock, 32};
#endif
    static_cast<void>(level);
    return {plain_products<std::uint32_t>, nullptr, 1};
}

Instruction f32_instruction(Level level) noexcept {
#if TINFER_ROOF_X86
    if (level >= Level::avx512) return {fmas_512, fmas_512_clock, 16};
    if (level == Level::avx2 || level == Level::avxvnni) return {fmas_256, fmas_256_clock, 8};
#endif
    static_cast<void>(level);
    return {plain_products<float>, nullptr, 1};
}

double product_rate(Team& team, Instruction instruction, double budget) {
    const double seconds = best_seconds(team, budget, [&](int) { instruction.loop(); });
    return static_cast<double>(kChains * kRounds) * instruction.products * team.size() / seconds;
}

double issue_rate(Team& team, Instruction instruction, double budget) {
    if (instruction.clock == nullptr) return 0;
    return best_seconds(team, budget, [&](int) { instruction.clock(); }) /
           best_seconds(team, budget, [&](int) { instruction.loop(); });
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

constexpr std::size_t kStep = 512;  // bytes per call of load() below
constexpr int kStreams = 4;

using ReadLoop = void(const std::byte* begin, std::size_t bytes);

// One ascending stream, or four at a time, which suits some prefetchers better. `bytes` is a multiple of 4 · kStep.
template <auto load>
void one_stream(const std::byte* begin, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kStep) load(begin + at);
}
template <auto load>
void four_streams(const std::byte* begin, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes / kStreams; at += kStep)
        for (int stream = 0; stream < kStreams; ++stream)
            load(begin + bytes / kStreams * static_cast<std::size_t>(stream) + at);
}

#if TINFER_ROOF_X86
// The loaded values are unused; assembly is not optimised away.
inline void load_256(const std::byte* p) {
    asm volatile(
        "vmovdqu 0(%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\tvmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
        "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\tvmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7\n\t"
        "vmovdqu 256(%0), %%ymm0\n\tvmovdqu 288(%0), %%ymm1\n\tvmovdqu 320(%0), %%ymm2\n\tvmovdqu 352(%0), %%ymm3\n\t"
        "vmovdqu 384(%0), %%ymm4\n\tvmovdqu 416(%0), %%ymm5\n\tvmovdqu 448(%0), %%ymm6\n\tvmovdqu 480(%0), %%ymm7\n\t"
        "vzeroupper" ::"r"(p)
        : TINFER_ROOF_CLOBBERS, "memory");
}
inline void load_512(const std::byte* p) {
    asm volatile("vmovdqu64 0(%0), %%zmm0\n\tvmovdqu64 64(%0), %%zmm1\n\tvmovdqu64 128(%0), %%zmm2\n\t"
                 "vmovdqu64 192(%0), %%zmm3\n\tvmovdqu64 256(%0), %%zmm4\n\tvmovdqu64 320(%0), %%zmm5\n\t"
                 "vmovdqu64 384(%0), %%zmm6\n\tvmovdqu64 448(%0), %%zmm7\n\tvzeroupper" ::"r"(p)
                 : TINFER_ROOF_CLOBBERS, "memory");
}
/// Prefetches the next 512 bytes. (Prefetches past the end do nothing.)
inline void load_512_ahead(const std::byte* p) {
    asm volatile("prefetcht0 512(%0)\n\tprefetcht0 576(%0)\n\tprefetcht0 640(%0)\n\tprefetcht0 704(%0)\n\t"
                 "prefetcht0 768(%0)\n\tprefetcht0 832(%0)\n\tprefetcht0 896(%0)\n\tprefetcht0 960(%0)" ::"r"(p)
                 : "memory");
    load_512(p);
}
#endif

inline void load_words(const std::byte* p) {
    const auto* words = reinterpret_cast<const volatile std::uint64_t*>(p);
    for (std::size_t i = 0; i < kStep / sizeof(std::uint64_t); ++i) static_cast<void>(words[i]);
}

std::vector<ReadLoop*> read_loops() {
    std::vector<ReadLoop*> loops{one_stream<load_words>, four_streams<load_words>};
#if TINFER_ROOF_X86
    if (__builtin_cpu_supports("avx2")) loops = {one_stream<load_256>, four_streams<load_256>};
    if (__builtin_cpu_supports("avx512f"))
        loops.insert(loops.end(), {one_stream<load_512>, four_streams<load_512>, one_stream<load_512_ahead>});
#endif
    return loops;
}

Level own_level(std::string_view isa) noexcept {
#if TINFER_ROOF_X86
    if ((isa == "avx512vnni" || isa == "amx") && __builtin_cpu_supports("avx512vnni")) return Level::avx512vnni;
    if (isa == "avx512" && __builtin_cpu_supports("avx512bw")) return Level::avx512;
    if (isa == "avxvnni") return Level::avxvnni;  // the kernel table of that name exists only if the machine has it
    if (isa == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Level::avx2;
#endif
    static_cast<void>(isa);
    return Level::plain;
}

}  // namespace

Level level_of(std::string_view isa) {
    if (const Level level = own_level(isa); level != Level::plain) return level;
    bool is_below = false;
    for (const tinfer::Isa table : tinfer::available_isas()) {
        is_below = is_below || to_string(table) == isa;
        if (const Level level = own_level(to_string(table)); is_below && level != Level::plain) return level;
    }
    return Level::plain;
}

std::string_view to_string(Level level) noexcept {
    constexpr std::string_view kNames[] = {"plain", "avx2", "avxvnni", "avx512", "avx512vnni"};
    return kNames[static_cast<std::size_t>(level)];
}

double int8_dot_rate(Team& team, Level level, double budget) {
    return product_rate(team, int8_instruction(level), budget);
}
double f32_fma_rate(Team& team, Level level, double budget) {
    return product_rate(team, f32_instruction(level), budget);
}
double int8_issue_rate(Team& team, Level level, double budget) {
    return issue_rate(team, int8_instruction(level), budget);
}
double f32_issue_rate(Team& team, Level level, double budget) {
    return issue_rate(team, f32_instruction(level), budget);
}

// A large buffer is read in parts, and the best time of each part counts, to discard interruptions; no part is still
// cached when it is read again, because all the others come in between.
double read_rate(Team& team, std::span<const std::byte> buffer, double budget, const tinfer::ModelFile* file) {
    constexpr std::size_t kPart = std::size_t{64} << 20, kUnit = kStreams * kStep;
    const auto n_threads = static_cast<std::size_t>(team.size());
    const std::size_t n_parts = std::max<std::size_t>(1, buffer.size() / kPart);
    const std::size_t share = buffer.size() / n_parts / n_threads / kUnit * kUnit;
    const auto loops = read_loops();
    double best = 1e30;
    for (ReadLoop* loop : loops) {
        std::vector<double> seconds(n_parts, 1e30);
        // of the clock, not of the reads: on a busy machine the threads wait for each other much longer
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::duration<double>(budget / static_cast<double>(loops.size()));
        for (int round = 0; round < 3 || std::chrono::steady_clock::now() < end; ++round)
            for (std::size_t part = 0; part < n_parts; ++part) {
                const double once = team.run([&](int thread) {
                    std::optional<tinfer::ReadGuard> guard;  // another program may cut the file short
                    if (file != nullptr) guard.emplace(*file);
                    loop(buffer.data() + (part * n_threads + static_cast<std::size_t>(thread)) * share, share);
                });
                seconds[part] = std::min(seconds[part], once);
            }
        best = std::min(best, std::accumulate(seconds.begin(), seconds.end(), 0.0));
    }
    return static_cast<double>(share * n_threads * n_parts) / best;
}

LargePages::LargePages(std::size_t bytes) : size_(bytes) {
    constexpr std::size_t kPage = std::size_t{2} << 20;
    data_ = static_cast<std::byte*>(::operator new (size_, std::align_val_t{kPage}));
#if defined(MADV_HUGEPAGE)
    ::madvise(data_, size_, MADV_HUGEPAGE);  // before the first touch; if it fails, pages are small
#endif
    std::memset(data_, 1, size_);
}
LargePages::~LargePages() { ::operator delete (data_, std::align_val_t{std::size_t{2} << 20}); }

double file_read_rate(Team& team, const tinfer::ModelFile& file) {
    constexpr std::size_t kMax = std::size_t{1} << 30;
    const tinfer::ReadGuard guard(file);
    const auto bytes = guard.bytes();
    if (bytes.empty()) return 0;
    const double rate = read_rate(team, bytes.first(std::min(bytes.size(), kMax)), 0.6, &file);
    guard.check();
    return rate;
}

tinfer::RooflinePeaks peaks(Team& team, Level level, std::size_t bytes, double stream_seconds) {
    return {read_rate(team, LargePages(bytes).bytes(), stream_seconds), int8_dot_rate(team, level),
            f32_fma_rate(team, level)};
}

std::string cpu_name() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("model name"))
            if (const auto colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
    return "";
}

}  // namespace roof
