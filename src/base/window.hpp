// SPDX-License-Identifier: MIT
// Which tokens of its sequence a query may see, as a rule on positions: everything before it, everything at all, or
// what a window leaves of that. Models name the rule of each layer, memory turns it into spans of ordinals, kernels see
// spans alone.
#pragma once

#include <cstdint>
#include <limits>

namespace tinfer {

enum class WindowKind : std::uint8_t {
    none,
    standard,   ///< the last `size` tokens, the query among them (arXiv:2310.06825 §2)
    chunked,    ///< the query's own chunk: positions are cut at multiples of `size`
    symmetric,  ///< at most size / 2 to either side
};

/// Positions [begin(p), end(p)) are visible to the query at position p. Neither bound ever falls as p grows.
struct Window {
    WindowKind kind = WindowKind::none;
    std::int32_t size = 0;
    bool causal = true;

    [[nodiscard]] constexpr std::int64_t begin(std::int64_t p) const noexcept {
        switch (kind) {
            case WindowKind::none: break;
            case WindowKind::standard: return p - size + 1;
            case WindowKind::chunked: return p / size * size;
            case WindowKind::symmetric: return p - size / 2;
        }
        return 0;
    }
    [[nodiscard]] constexpr std::int64_t end(std::int64_t p) const noexcept {
        if (causal) return p + 1;
        return kind == WindowKind::symmetric ? p + size / 2 + 1 : std::numeric_limits<std::int64_t>::max();
    }
    bool operator==(const Window&) const = default;
};

}  // namespace tinfer
