// SPDX-License-Identifier: MIT
// The table of operations (tinfer/ops.def) as data: what the verifier, plans, kernels and traces ask of an op.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tinfer/operations.hpp"

namespace tinfer {

/// Which rows of its operands an op uses where indices select them. All other operands are used as a whole.
enum class Touches : std::uint8_t {
    whole,
    norm,     ///< all as a whole; slot 3 is a second result
    rows,     ///< slot 1: rows that slot 2 lists
    experts,  ///< slot 1: matrices that slot 3 lists
    biases,   ///< slot 2: rows that slot 3 lists
    kv_rows,  ///< slot 0: slots of the cache that slot 2 lists
    visible,  ///< slots 2 and 3: what queries see (slots 4 to 6)
    chosen,   ///< slots 2 and 3: slots of the cache that slot 4 lists
    entries,  ///< slot 2: what queries see (slots 4 to 6); slot 3: what slot 7 lists
    ranked,   ///< slots 1 and 3: queries that need scores; slot 2: what they see (slots 4 to 6)
    marks,    ///< slot 2: what queries see (slots 4 to 6)
    state,    ///< the last operand but one: rows that the last one lists, read and written
    shifts,   ///< slots 0 and 1, one cache: slots that slot 3 lists
    pages,    ///< slots 0 and 1, one cache: pages that slot 2 lists
    moves,    ///< slots 0 and 1, one cache: slots that slot 2 lists
};

/// For which types an op has kernels.
enum class KernelTypes : std::uint8_t { none, any, weight, lookup, codes, cache };

struct OpInfo {
    std::string_view name;
    KernelTypes types;
    Touches touches;
    std::uint8_t work;            ///< time, as a multiple of what bytes and multiply-adds alone would take
    std::uint8_t n_operands = 0;  ///< at most so many,
    std::uint8_t n_needed = 0;    ///< at least so many; of those
    std::uint16_t optional = 0;   ///< the bits say which may be absent

    /// `operands` as the table writes them: words, then " -> " and the result.
    consteval OpInfo(std::string_view name_, KernelTypes types_, Touches touches_, std::uint8_t work_,
                     std::string_view operands)
        : name(name_), types(types_), touches(touches_), work(work_) {
        operands = operands.substr(0, operands.find(" -> "));
        while (!operands.empty()) {
            const std::string_view operand = operands.substr(0, operands.find(' '));
            if (operand.back() == '?') optional = static_cast<std::uint16_t>(optional | 1u << n_operands);
            else n_needed = static_cast<std::uint8_t>(n_operands + 1);
            ++n_operands;
            operands.remove_prefix(operand.size() < operands.size() ? operand.size() + 1 : operand.size());
        }
    }
    [[nodiscard]] constexpr bool may_be_absent(std::size_t operand) const noexcept {
        return (optional >> operand & 1) != 0;
    }
};

inline constexpr std::array<OpInfo, static_cast<std::size_t>(Op::count_)> kOps{{
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands)                                   \
    {#name, KernelTypes::types, Touches::touches, work, operands},
#include "tinfer/ops.def"
}};

constexpr const OpInfo& info(Op op) noexcept { return kOps[static_cast<std::size_t>(op)]; }

/// The operand whose type selects the kernel; -1 where one kernel is for all types.
constexpr int selecting_slot(Op op) noexcept {
    switch (info(op).types) {
        case KernelTypes::weight:
        case KernelTypes::lookup: return 1;
        case KernelTypes::codes:
        case KernelTypes::cache: return 0;
        default: return -1;
    }
}

/// A product of a matrix, or of one of several, and rows of activations.
constexpr bool is_product(Op op) noexcept { return info(op).types == KernelTypes::weight; }

}  // namespace tinfer
