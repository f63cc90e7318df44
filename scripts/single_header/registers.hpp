// SPDX-License-Identifier: MIT
// The part of xsimd that the kernels use, for the single header (scripts/amalgamate.py puts it where the library
// includes xsimd). xsimd decides by the compiler's flags which registers there are; the single header compiles each
// kernel table inside a region with a target of its own, of which the flags know nothing. So the header needs no xsimd
// either.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#    include <immintrin.h>
#elif defined(__aarch64__)
#    include <arm_neon.h>
#endif

namespace tinfer::kernels::xsimd {

#define TINFER_REGISTER __attribute__((always_inline)) inline

// What differs between registers: types, a value in every lane, comparison and choice. Lanes of integers are unsigned,
// so that they wrap.
#if defined(__x86_64__)
struct avx2 {
    using Floats = __m256;
    using Ints = __m256i;
    using Mask = __m256;
    using FloatLanes = float __attribute__((vector_size(32)));
    using IntLanes = std::uint32_t __attribute__((vector_size(32)));
    using SignedLanes = std::int32_t __attribute__((vector_size(32)));
    static TINFER_REGISTER Floats set(float x) noexcept { return _mm256_set1_ps(x); }
    static TINFER_REGISTER Ints set(std::int32_t x) noexcept { return _mm256_set1_epi32(x); }
    static TINFER_REGISTER Mask greater(Floats a, Floats b) noexcept { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
    static TINFER_REGISTER Floats select(Mask m, Floats a, Floats b) noexcept { return _mm256_blendv_ps(b, a, m); }
    static TINFER_REGISTER Ints larger(Ints a, Ints b) noexcept { return _mm256_max_epi32(a, b); }
};
template <class Registers>
struct fma3 : Registers {};
#    if defined(__AVX512BW__)
struct avx512bw {
    using Floats = __m512;
    using Ints = __m512i;
    using Mask = __mmask16;
    using FloatLanes = float __attribute__((vector_size(64)));
    using IntLanes = std::uint32_t __attribute__((vector_size(64)));
    using SignedLanes = std::int32_t __attribute__((vector_size(64)));
    static TINFER_REGISTER Floats set(float x) noexcept { return _mm512_set1_ps(x); }
    static TINFER_REGISTER Ints set(std::int32_t x) noexcept { return _mm512_set1_epi32(x); }
    static TINFER_REGISTER Mask greater(Floats a, Floats b) noexcept { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
    static TINFER_REGISTER Floats select(Mask m, Floats a, Floats b) noexcept { return _mm512_mask_blend_ps(m, b, a); }
    static TINFER_REGISTER Ints larger(Ints a, Ints b) noexcept { return _mm512_max_epi32(a, b); }
};
#    else
struct avx512bw;  // named by tags, and never used below AVX-512
#    endif
#elif defined(__aarch64__)
struct neon64 {
    using Floats = float32x4_t;
    using Ints = int32x4_t;
    using Mask = uint32x4_t;
    using FloatLanes = float __attribute__((vector_size(16)));
    using IntLanes = std::uint32_t __attribute__((vector_size(16)));
    using SignedLanes = std::int32_t __attribute__((vector_size(16)));
    static TINFER_REGISTER Floats set(float x) noexcept { return vdupq_n_f32(x); }
    static TINFER_REGISTER Ints set(std::int32_t x) noexcept { return vdupq_n_s32(x); }
    static TINFER_REGISTER Mask greater(Floats a, Floats b) noexcept { return vcgtq_f32(a, b); }
    static TINFER_REGISTER Floats select(Mask m, Floats a, Floats b) noexcept { return vbslq_f32(m, a, b); }
    static TINFER_REGISTER Ints larger(Ints a, Ints b) noexcept { return vmaxq_s32(a, b); }
};
#endif

template <class T, class Registers>
struct Types;
template <class Registers>
struct Types<float, Registers> {
    using Register = typename Registers::Floats;
    using Lanes = typename Registers::FloatLanes;
};
template <class Registers>
struct Types<std::int32_t, Registers> {
    using Register = typename Registers::Ints;
    using Lanes = typename Registers::IntLanes;
};

/// A register of floats or 32-bit integers.
template <class T, class Registers>
struct batch {
    using Register = typename Types<T, Registers>::Register;
    using Lanes = typename Types<T, Registers>::Lanes;
    Register value;

    batch() = default;
    TINFER_REGISTER batch(Register v) noexcept : value(v) {}
    TINFER_REGISTER batch(T x) noexcept : value(Registers::set(x)) {}
    TINFER_REGISTER operator Register() const noexcept { return value; }
    [[nodiscard]] TINFER_REGISTER Lanes lanes() const noexcept { return (Lanes)value; }
    [[nodiscard]] static TINFER_REGISTER batch of(Lanes lanes) noexcept { return (Register)lanes; }

    [[nodiscard]] static TINFER_REGISTER batch load_unaligned(const T* p) noexcept {
        Register out;
        std::memcpy(&out, p, sizeof out);
        return out;
    }
    [[nodiscard]] static TINFER_REGISTER batch load_aligned(const T* p) noexcept {
        return load_unaligned(static_cast<const T*>(__builtin_assume_aligned(p, sizeof(Register))));
    }
    TINFER_REGISTER void store_unaligned(T* p) const noexcept { std::memcpy(p, &value, sizeof value); }
    TINFER_REGISTER void store_aligned(T* p) const noexcept {
        store_unaligned(static_cast<T*>(__builtin_assume_aligned(p, sizeof(Register))));
    }

    friend TINFER_REGISTER batch operator+(batch a, batch b) noexcept { return of(a.lanes() + b.lanes()); }
    friend TINFER_REGISTER batch operator-(batch a, batch b) noexcept { return of(a.lanes() - b.lanes()); }
    friend TINFER_REGISTER batch operator*(batch a, batch b) noexcept { return of(a.lanes() * b.lanes()); }
    friend TINFER_REGISTER batch operator&(batch a, batch b) noexcept { return of(a.lanes() & b.lanes()); }
    friend TINFER_REGISTER batch operator|(batch a, batch b) noexcept { return of(a.lanes() | b.lanes()); }
    friend TINFER_REGISTER batch operator^(batch a, batch b) noexcept { return of(a.lanes() ^ b.lanes()); }
    friend TINFER_REGISTER batch operator<<(batch a, int n) noexcept { return of(a.lanes() << n); }
    friend TINFER_REGISTER batch operator>>(batch a, int n) noexcept {  // of signed lanes
        return of((Lanes)((typename Registers::SignedLanes)a.value >> n));
    }
    TINFER_REGISTER batch& operator+=(batch b) noexcept { return *this = *this + b; }
    friend TINFER_REGISTER auto operator>(batch a, batch b) noexcept { return Registers::greater(a, b); }
    friend TINFER_REGISTER auto operator<(batch a, batch b) noexcept { return Registers::greater(b, a); }
};

/// Lane by lane: condition ? a : b.
template <class Registers>
TINFER_REGISTER batch<float, Registers> select(typename Registers::Mask condition, batch<float, Registers> a,
                                               batch<float, Registers> b) noexcept {
    return Registers::select(condition, a, b);
}
template <class Registers>
TINFER_REGISTER batch<std::int32_t, Registers> max(batch<std::int32_t, Registers> a,
                                                   batch<std::int32_t, Registers> b) noexcept {
    return Registers::larger(a, b);
}

#undef TINFER_REGISTER

}  // namespace tinfer::kernels::xsimd
