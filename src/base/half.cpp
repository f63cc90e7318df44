// SPDX-License-Identifier: MIT
#include "base/half.hpp"

namespace tinfer {

namespace {
struct PlainUnit {};  // internal linkage: these instantiations belong to this file alone
}  // namespace

float f16_to_f32(std::uint16_t half) noexcept { return f16_to_f32<PlainUnit>(half); }
std::uint16_t f32_to_f16(float value) noexcept { return f32_to_f16<PlainUnit>(value); }
float bf16_to_f32(std::uint16_t half) noexcept { return bf16_to_f32<PlainUnit>(half); }
std::uint16_t f32_to_bf16(float value) noexcept { return f32_to_bf16<PlainUnit>(value); }

}  // namespace tinfer
