// SPDX-License-Identifier: MIT
#include "base/data_check.hpp"

#include "base/bytes.hpp"
#include "base/dtype.hpp"

namespace tinfer {

namespace {

// Not finite = all bits of the exponent set.
bool is_finite_f16(const std::byte* p) noexcept { return (load<std::uint16_t>(p) & 0x7C00) != 0x7C00; }
bool is_finite_bf16(const std::byte* p) noexcept { return (load<std::uint16_t>(p) & 0x7F80) != 0x7F80; }
bool is_finite_f32(const std::byte* p) noexcept { return (load<std::uint32_t>(p) & 0x7F800000) != 0x7F800000; }
bool is_finite_f64(const std::byte* p) noexcept {
    constexpr std::uint64_t exponent = 0x7FF0000000000000;
    return (load<std::uint64_t>(p) & exponent) != exponent;
}

// The scale of an iq1_m block is spread over the top nibbles of its four u16, the first the lowest.
bool is_finite_iq1_m(const std::byte* block) noexcept {
    unsigned d = 0;
    for (int i = 0; i < 4; ++i) d |= static_cast<unsigned>(load<std::uint16_t>(block + 48 + 2 * i) >> 12) << (4 * i);
    return (d & 0x7C00) != 0x7C00;
}

// Byte offset of one f16 field that must be finite.
template <int Offset>
bool is_finite_at(const std::byte* block) noexcept {
    return is_finite_f16(block + Offset);
}
template <int First, int Second>
bool are_finite_at(const std::byte* block) noexcept {
    return is_finite_f16(block + First) && is_finite_f16(block + Second);
}

using BlockCheck = bool (*)(const std::byte* block) noexcept;

// Null: every bit pattern is a finite number.
BlockCheck check_of(DType type) noexcept {
    switch (type) {
        case DType::f32:
        case DType::q8_k: return is_finite_f32;  // q8_k starts with its float scale
        case DType::f64: return is_finite_f64;
        case DType::f16: return is_finite_f16;
        case DType::bf16: return is_finite_bf16;
        case DType::q8_1: return is_finite_at<0>;
        case DType::q4_1:
        case DType::q5_1:
        case DType::q4_k:
        case DType::q5_k: return are_finite_at<0, 2>;
        case DType::q2_k: return are_finite_at<80, 82>;
        case DType::q3_k: return is_finite_at<108>;
        case DType::q6_k: return is_finite_at<208>;
        case DType::tq1_0: return is_finite_at<52>;
        case DType::tq2_0: return is_finite_at<64>;
        case DType::iq1_m: return is_finite_iq1_m;
        case DType::mxfp4: return [](const std::byte* block) noexcept { return block[0] != std::byte{255}; };
        case DType::nvfp4: return nullptr;
        default: break;
    }
    // The blocks of every other format of weights begin with the scale.
    const DTypeInfo* info = find_dtype(type);
    return info != nullptr && is_activation(info->activation) ? is_finite_at<0> : nullptr;
}

}  // namespace

std::optional<std::uint64_t> first_bad_block(DType type, std::span<const std::byte> bytes) noexcept {
    const DTypeInfo* info = find_dtype(type);
    const BlockCheck is_finite = check_of(type);
    if (info == nullptr || is_finite == nullptr) return std::nullopt;
    const std::size_t block = static_cast<std::size_t>(info->block_bytes), count = bytes.size() / block;
    for (std::size_t i = 0; i < count; ++i)
        if (!is_finite(bytes.data() + i * block)) return i;
    return std::nullopt;
}

}  // namespace tinfer
