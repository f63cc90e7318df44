// SPDX-License-Identifier: MIT
#include "base/dtype.hpp"

namespace tinfer {

namespace {

constexpr DTypeInfo kDTypes[] = {
    DTypeInfo{DType::f32, "f32", 1, 4, DType::f32},
    DTypeInfo{DType::f16, "f16", 1, 2, DType::f32},
    DTypeInfo{DType::q4_0, "q4_0", 32, 18, DType::x8_32},
    DTypeInfo{DType::q4_1, "q4_1", 32, 20, DType::x8_32},
    DTypeInfo{DType::q5_0, "q5_0", 32, 22, DType::x8_32},
    DTypeInfo{DType::q5_1, "q5_1", 32, 24, DType::x8_32},
    DTypeInfo{DType::q8_0, "q8_0", 32, 34, DType::x8_32},
    DTypeInfo{DType::q8_1, "q8_1", 32, 36, DType::none},
    DTypeInfo{DType::q2_k, "q2_k", 256, 84, DType::x8_256},
    DTypeInfo{DType::q3_k, "q3_k", 256, 110, DType::x8_256},
    DTypeInfo{DType::q4_k, "q4_k", 256, 144, DType::x8_256},
    DTypeInfo{DType::q5_k, "q5_k", 256, 176, DType::x8_256},
    DTypeInfo{DType::q6_k, "q6_k", 256, 210, DType::x8_256},
    DTypeInfo{DType::q8_k, "q8_k", 256, 292, DType::none},
    DTypeInfo{DType::iq2_xxs, "iq2_xxs", 256, 66, DType::x8_256},
    DTypeInfo{DType::iq2_xs, "iq2_xs", 256, 74, DType::x8_256},
    DTypeInfo{DType::iq3_xxs, "iq3_xxs", 256, 98, DType::x8_256},
    DTypeInfo{DType::iq1_s, "iq1_s", 256, 50, DType::x8_256},
    DTypeInfo{DType::iq4_nl, "iq4_nl", 32, 18, DType::x8_32},
    DTypeInfo{DType::iq3_s, "iq3_s", 256, 110, DType::x8_256},
    DTypeInfo{DType::iq2_s, "iq2_s", 256, 82, DType::x8_256},
    DTypeInfo{DType::iq4_xs, "iq4_xs", 256, 136, DType::x8_256},
    DTypeInfo{DType::i8, "i8", 1, 1, DType::none},
    DTypeInfo{DType::i16, "i16", 1, 2, DType::none},
    DTypeInfo{DType::i32, "i32", 1, 4, DType::none},
    DTypeInfo{DType::i64, "i64", 1, 8, DType::none},
    DTypeInfo{DType::f64, "f64", 1, 8, DType::none},
    DTypeInfo{DType::iq1_m, "iq1_m", 256, 56, DType::x8_256},
    DTypeInfo{DType::bf16, "bf16", 1, 2, DType::f32},
    DTypeInfo{DType::tq1_0, "tq1_0", 256, 54, DType::x8_256},
    DTypeInfo{DType::tq2_0, "tq2_0", 256, 66, DType::x8_256},
    DTypeInfo{DType::mxfp4, "mxfp4", 32, 17, DType::x8_32},
    DTypeInfo{DType::nvfp4, "nvfp4", 64, 36, DType::x8_32},
    DTypeInfo{DType::q1_0, "q1_0", 128, 18, DType::x8_32},
    DTypeInfo{DType::q2_0, "q2_0", 64, 18, DType::x8_32},
    DTypeInfo{DType::x8_32, "x8_32", 32, 0, DType::none},
    DTypeInfo{DType::x8_256, "x8_256", 256, 0, DType::none},
};

}  // namespace

const DTypeInfo* find_dtype(std::uint32_t id) noexcept {
    for (const DTypeInfo& info : kDTypes)
        if (static_cast<std::uint32_t>(info.type) == id) return &info;
    return nullptr;
}

bool is_float(DType type) noexcept { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }
bool is_activation(DType type) noexcept { return type == DType::x8_32 || type == DType::x8_256; }

std::int64_t row_bytes(DType type, std::int64_t n) noexcept {
    if (is_activation(type)) return activation_layout(type, n).row_bytes;
    const DTypeInfo* info = find_dtype(type);
    return info == nullptr ? 0 : n / info->block_elems * info->block_bytes;
}

std::string_view to_string(DType type) noexcept {
    const DTypeInfo* info = find_dtype(type);
    return info == nullptr ? "unknown" : info->name;
}

}  // namespace tinfer
