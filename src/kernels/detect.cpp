// SPDX-License-Identifier: MIT
// Which kernel tables this build has (TINFER_TABLE_…) and this machine can run. A level counts only if the processor
// has its instructions and the operating system saves its registers: CPUID leaves 1 and 7, and XCR0 (Intel SDM vol. 1,
// §13.3 and §15.2); on ARM what the system says of the processor.
#include "kernels/kernel.hpp"
#include "kernels/tables.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#    if defined(_MSC_VER)
#        include <intrin.h>
#    else
#        include <cpuid.h>
#    endif
#    if defined(__linux__)
#        include <sys/syscall.h>
#        include <unistd.h>
#    endif
#elif defined(__aarch64__) && defined(__linux__)
#    include <sys/auxv.h>
#endif

namespace tinfer {

namespace kernels {

namespace {

#if defined(__x86_64__) || defined(_M_X64)

struct CpuidLeaf {
    std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) noexcept {
    CpuidLeaf out;
#    if defined(_MSC_VER)
    int words[4];
    __cpuidex(words, static_cast<int>(leaf), static_cast<int>(subleaf));
    out = {static_cast<std::uint32_t>(words[0]), static_cast<std::uint32_t>(words[1]),
           static_cast<std::uint32_t>(words[2]), static_cast<std::uint32_t>(words[3])};
#    else
    __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);  // zeros where the leaf does not exist
#    endif
    return out;
}

/// Register state the system saves: bit 1 xmm, 2 ymm, 5 to 7 masks and zmm, 17 and 18 tiles.
std::uint64_t saved_state() noexcept {
#    if defined(_MSC_VER)
    return _xgetbv(0);
#    else
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | static_cast<std::uint64_t>(high) << 32;
#    endif
}

constexpr int kTileData = 18;  // a state component of XCR0

/// Whether Linux would keep the tiles' 8 KB of state for this process if it asked.
bool system_has_tiles() noexcept {
#    if defined(__linux__)
    constexpr int kGetSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP
    std::uint64_t supported = 0;
    return syscall(SYS_arch_prctl, kGetSupported, &supported) == 0 && (supported >> kTileData & 1) != 0;
#    else
    return false;
#    endif
}
/// Requests that state for the whole process; again changes nothing. It is refused where a thread's alternative signal
/// stack is too small for it.
bool request_tiles() noexcept {
#    if defined(__linux__)
    constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#    else
    return false;
#    endif
}
bool request_state(Isa isa) noexcept { return isa != Isa::amx || request_tiles(); }

bool machine_has(Isa isa) noexcept {
    const auto all = [](std::uint32_t word, std::initializer_list<int> bits) {
        for (const int bit : bits)
            if ((word >> bit & 1) == 0) return false;
        return true;
    };
    const CpuidLeaf one = cpuid(1), seven = cpuid(7);
    if (!all(one.ecx, {12 /*fma*/, 27 /*osxsave*/, 28 /*avx*/, 29 /*f16c*/})) return false;
    if (!all(seven.ebx, {5 /*avx2*/})) return false;
    const std::uint64_t saved = saved_state();
    if ((saved & 0x06) != 0x06) return false;
    if (isa == Isa::avx2) return true;
    if (isa == Isa::avxvnni) return seven.eax >= 1 && all(cpuid(7, 1).eax, {4 /*avx-vnni*/});
    if (!all(seven.ebx, {16 /*f*/, 17 /*dq*/, 28 /*cd*/, 30 /*bw*/, 31 /*vl*/}) || (saved & 0xE6) != 0xE6) return false;
    if (isa == Isa::avx512) return true;
    if (!all(seven.ecx, {11 /*vnni*/})) return false;
    if (isa == Isa::avx512vnni) return true;
    return all(seven.edx, {24 /*amx-tile*/, 25 /*amx-int8*/}) && (saved & 0x60000) == 0x60000 && system_has_tiles();
}

/// The family of AMD's processors, 0 for those of others (AMD64 Architecture Programmer's Manual vol. 3, appendix E.3).
std::uint32_t amd_family(const CpuidLeaf& vendor) noexcept {
    const bool is_amd =
        vendor.ebx == 0x68747541 && vendor.edx == 0x69746E65 && vendor.ecx == 0x444D4163;  // "AuthenticAMD"
    const std::uint32_t version = cpuid(1).eax, family = version >> 8 & 0xF;
    return !is_amd ? 0 : family == 0xF ? family + (version >> 20 & 0xFF) : family;
}
Processor known_processor() noexcept {
    const CpuidLeaf vendor = cpuid(0);
    const std::uint32_t family = amd_family(vendor);  // 25: Zen 3 and 4; 26: Zen 5
    const bool is_intel =
        vendor.ebx == 0x756E6547 && vendor.edx == 0x49656E69 && vendor.ecx == 0x6C65746E;  // "GenuineIntel"
    const bool has_avx512 = machine_has(Isa::avx512);
    return {.prefetch_to_l1 = family >= 26,
            .prefetch_in_turn = is_intel,
            .single_512_fma = family == 25,
            .permutes_bytes = has_avx512 && (cpuid(7).ecx >> 1 & 1) != 0};
}

constexpr Isa kBestFirst[] = {Isa::amx, Isa::avx512vnni, Isa::avx512, Isa::avxvnni, Isa::avx2, Isa::reference};

#elif defined(__aarch64__)

/// Elsewhere than on Linux an extension counts where the compiler was told to expect it, as on every Mac.
bool machine_has(Isa isa) noexcept {
#    if defined(__linux__)
    constexpr unsigned long kDotProduct = 1UL << 20, kMatrixProducts = 1UL << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
    const bool dot_product = (getauxval(AT_HWCAP) & kDotProduct) != 0;
    const bool matrix_products = dot_product && (getauxval(AT_HWCAP2) & kMatrixProducts) != 0;
#    else
#        if defined(__ARM_FEATURE_DOTPROD)
    const bool dot_product = true;
#        else
    const bool dot_product = false;
#        endif
#        if defined(__ARM_FEATURE_MATMUL_INT8)
    const bool matrix_products = dot_product;
#        else
    const bool matrix_products = false;
#        endif
#    endif
    return isa == Isa::neon || (isa == Isa::neon_dot && dot_product) || (isa == Isa::neon_i8mm && matrix_products);
}

Processor known_processor() noexcept { return {}; }
bool request_state(Isa) noexcept { return true; }

constexpr Isa kBestFirst[] = {Isa::neon_i8mm, Isa::neon_dot, Isa::neon, Isa::reference};

#else

bool machine_has(Isa) noexcept { return false; }
Processor known_processor() noexcept { return {}; }
bool request_state(Isa) noexcept { return true; }
constexpr Isa kBestFirst[] = {Isa::reference};

#endif

const KernelTable* table_of(Isa isa) noexcept {
    switch (isa) {
        case Isa::reference: return &reference_table;
#if defined(TINFER_TABLE_AVX2)
        case Isa::avx2: return &avx2_table;
#endif
#if defined(TINFER_TABLE_AVXVNNI)
        case Isa::avxvnni: return &avxvnni_table;
#endif
#if defined(TINFER_TABLE_AVX512)
        case Isa::avx512: return &avx512_table;
#endif
#if defined(TINFER_TABLE_AVX512VNNI)
        case Isa::avx512vnni: return &avx512vnni_table;
#endif
#if defined(TINFER_TABLE_AMX)
        case Isa::amx: return &amx_table;
#endif
#if defined(TINFER_TABLE_NEON)
        case Isa::neon: return &neon_table;
#endif
#if defined(TINFER_TABLE_NEON_DOT)
        case Isa::neon_dot: return &neon_dot_table;
#endif
#if defined(TINFER_TABLE_NEON_I8MM)
        case Isa::neon_i8mm: return &neon_i8mm_table;
#endif
        default: return nullptr;
    }
}

}  // namespace

const KernelTable* look_up_table(Isa isa) noexcept {
    if (isa != Isa::automatic) return isa == Isa::reference || machine_has(isa) ? table_of(isa) : nullptr;
    for (const Isa level : kBestFirst)
        if (const KernelTable* table = look_up_table(level)) return table;
    return nullptr;
}

const KernelTable* find_table(Isa isa) noexcept {
    if (isa != Isa::automatic) {
        const KernelTable* table = look_up_table(isa);
        return table != nullptr && request_state(isa) ? table : nullptr;
    }
    for (const Isa level : kBestFirst)
        if (const KernelTable* table = find_table(level)) return table;
    return nullptr;
}

Processor this_processor() noexcept { return known_processor(); }

}  // namespace kernels

std::string_view to_string(Isa isa) noexcept {
    switch (isa) {
        case Isa::automatic: return "automatic";
        case Isa::reference: return "reference";
        case Isa::avx2: return "avx2";
        case Isa::avxvnni: return "avxvnni";
        case Isa::avx512: return "avx512";
        case Isa::avx512vnni: return "avx512vnni";
        case Isa::amx: return "amx";
        case Isa::neon: return "neon";
        case Isa::neon_dot: return "neon_dot";
        case Isa::neon_i8mm: return "neon_i8mm";
    }
    return "unknown";
}

std::vector<Isa> available_isas() {
    std::vector<Isa> isas;
    for (const Isa isa : kernels::kBestFirst)
        if (kernels::look_up_table(isa) != nullptr) isas.push_back(isa);
    return isas;
}

}  // namespace tinfer
