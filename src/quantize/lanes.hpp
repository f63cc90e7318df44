// SPDX-License-Identifier: MIT
// L floats in registers of four, for the inner loops of searches: sums that stay in registers take half the time of
// sums in arrays. Each lane has the arithmetic of a float.
#pragma once

#include <cstring>

namespace tinfer::quantize {

#if defined(__GNUC__)
using Four = float __attribute__((vector_size(16)));
inline Four larger(Four a, Four b) noexcept { return a > b ? a : b; }
inline Four smaller(Four a, Four b) noexcept { return a < b ? a : b; }
#else
struct Four {
    float lane[4];
    Four& each(const Four& b, auto op) noexcept {
        for (int i = 0; i < 4; ++i) lane[i] = op(lane[i], b.lane[i]);
        return *this;
    }
    friend Four operator+(Four a, const Four& b) noexcept {
        return a.each(b, [](float x, float y) { return x + y; });
    }
    friend Four operator-(Four a, const Four& b) noexcept {
        return a.each(b, [](float x, float y) { return x - y; });
    }
    friend Four operator*(Four a, const Four& b) noexcept {
        return a.each(b, [](float x, float y) { return x * y; });
    }
};
inline Four larger(Four a, const Four& b) noexcept {
    return a.each(b, [](float x, float y) { return x > y ? x : y; });
}
inline Four smaller(Four a, const Four& b) noexcept {
    return a.each(b, [](float x, float y) { return x < y ? x : y; });
}
#endif

/// L = 1 … 16 lanes; those behind L, up to a whole register, are zero or thrown away.
template <int L>
struct Registers {
    static constexpr int kCount = (L + 3) / 4;
    Four part[kCount];

    Registers() = default;
    explicit Registers(float all) noexcept {
        for (Four& p : part) p = Four{all, all, all, all};
    }
    explicit Registers(const float* from) noexcept {
        if (L % 4 != 0) *this = Registers(0.0f);
        std::memcpy(part, from, L * sizeof(float));
    }
    void store(float* to) const noexcept { std::memcpy(to, part, L * sizeof(float)); }

    [[nodiscard]] Registers with(const Registers& b, auto op) const noexcept {
        Registers out;
        for (int i = 0; i < kCount; ++i) out.part[i] = op(part[i], b.part[i]);
        return out;
    }
    Registers& operator+=(const Registers& b) noexcept {
        for (int i = 0; i < kCount; ++i) part[i] = part[i] + b.part[i];
        return *this;
    }
    friend Registers operator+(const Registers& a, const Registers& b) noexcept {
        return a.with(b, [](const Four& x, const Four& y) { return x + y; });
    }
    friend Registers operator-(const Registers& a, const Registers& b) noexcept {
        return a.with(b, [](const Four& x, const Four& y) { return x - y; });
    }
    friend Registers operator*(const Registers& a, const Registers& b) noexcept {
        return a.with(b, [](const Four& x, const Four& y) { return x * y; });
    }
};

/// a > b ? a : b and a < b ? a : b of each lane: where a is NaN it is b.
template <int L>
[[nodiscard]] Registers<L> larger(const Registers<L>& a, const Registers<L>& b) noexcept {
    return a.with(b, [](const Four& x, const Four& y) { return larger(x, y); });
}
template <int L>
[[nodiscard]] Registers<L> smaller(const Registers<L>& a, const Registers<L>& b) noexcept {
    return a.with(b, [](const Four& x, const Four& y) { return smaller(x, y); });
}

}  // namespace tinfer::quantize
