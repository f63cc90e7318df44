// SPDX-License-Identifier: MIT
#include "kernels/dequantize/dequantize.hpp"

#include <cstring>
#include <type_traits>

#include "base/half.hpp"
#include "kernels/quants/formats.hpp"

namespace tinfer::kernels {

namespace {

void dequantize_codes(const Codes256& codes, bool has_min, float* out) noexcept {
    for (int e = 0; e < 256; ++e) {
        const float product = codes.d * codes.scale[e / 16] * codes.q[e];
        out[e] = has_min ? product - codes.dmin * codes.min[e / 16] : product;
    }
}

void dequantize_codes(const Codes32& codes, bool has_min, float* out) noexcept {
    for (int e = 0; e < 32; ++e) {
        const float product = codes.d[e / 16] * codes.q[e];
        out[e] = has_min ? product + codes.m : product;
    }
}

void dequantize_unit(const std::uint8_t* block, int unit, auto format, float* out) noexcept {
    using Format = decltype(format);
    std::conditional_t<Format::kUnit == 256, Codes256, Codes32> codes;
    Format::template unpack<reference>(block, unit, codes);
    dequantize_codes(codes, Format::kHasMin, out);
}

/// Q8_1 and Q8_K, which are meant for activations and rare in files: scale at byte 0, codes from byte 4.
void dequantize_bytes(const std::uint8_t* block, float d, int n, float* out) noexcept {
    for (int e = 0; e < n; ++e) out[e] = d * static_cast<std::int8_t>(block[4 + e]);
}

/// Elements one by one: numbers of type T, which may lie unaligned.
template <class T>
void convert_row(const std::uint8_t* row, std::int64_t n, float* out, auto convert) noexcept {
    for (std::int64_t i = 0; i < n; ++i) {
        T value;
        std::memcpy(&value, row + i * static_cast<std::int64_t>(sizeof value), sizeof value);
        out[i] = convert(value);
    }
}

constexpr auto of_f16 = [](std::uint16_t half) { return f16_to_f32<reference>(half); };
constexpr auto of_bf16 = [](std::uint16_t half) { return bf16_to_f32<reference>(half); };
constexpr auto of_number = [](auto value) { return static_cast<float>(value); };

/// Types that are no block format; false for those that remain.
bool dequantize_plain_row(DType type, const std::uint8_t* row, std::int64_t n, float* out) noexcept {
    switch (type) {
        case DType::f32: std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float)); return true;
        case DType::f16: convert_row<std::uint16_t>(row, n, out, of_f16); return true;
        case DType::bf16: convert_row<std::uint16_t>(row, n, out, of_bf16); return true;
        case DType::f64: convert_row<double>(row, n, out, of_number); return true;
        case DType::i8: convert_row<std::int8_t>(row, n, out, of_number); return true;
        case DType::i16: convert_row<std::int16_t>(row, n, out, of_number); return true;
        case DType::i32: convert_row<std::int32_t>(row, n, out, of_number); return true;
        case DType::i64: convert_row<std::int64_t>(row, n, out, of_number); return true;
        case DType::q8_1:
            for (std::int64_t b = 0; b < n / 32; ++b, row += 36)
                dequantize_bytes(row, load_f16<reference>(row), 32, out + 32 * b);
            return true;
        case DType::q8_k:
            for (std::int64_t b = 0; b < n / 256; ++b, row += 292)
                dequantize_bytes(row, __builtin_bit_cast(float, load_u32<reference>(row)), 256, out + 256 * b);
            return true;
        default: return false;
    }
}

}  // namespace

bool can_dequantize(DType type) noexcept {
    float none = 0;
    return dequantize_plain_row(type, reinterpret_cast<const std::uint8_t*>(&none), 0, &none) ||
           with_format<reference>(type, [](auto) {});
}

void dequantize_row(DType type, const std::byte* row, std::int64_t n, float* out) noexcept {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
    if (dequantize_plain_row(type, bytes, n, out)) return;
    with_format<reference>(type, [&](auto format) {
        using Format = decltype(format);
        const std::uint8_t* block = bytes;
        for (std::int64_t b = 0; b < n / Format::kBlockElems; ++b, block += Format::kBlockBytes)
            for (int unit = 0; unit < Format::kBlockElems / Format::kUnit; ++unit, out += Format::kUnit)
                dequantize_unit(block, unit, format, out);
    });
}

}  // namespace tinfer::kernels
