// SPDX-License-Identifier: MIT
// Splits a template into tokens. Handles whitespace control: trim_blocks and lstrip_blocks are on, "-" strips and "+"
// keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::chat {

/// Line and column in the source, from 1; columns count bytes.
struct Place {
    std::uint32_t line = 1, column = 1;
};

struct LexToken {
    enum class Kind : std::uint8_t {
        data,  ///< text between tags
        output_begin,
        output_end,  ///< {{ and }}
        block_begin,
        block_end,  ///< {% and %}
        name,
        string,
        integer,
        real,
        symbol,  ///< operators and brackets
        end,
    } kind;
    std::string text{};  ///< of data, names, symbols and strings (escapes resolved)
    std::int64_t integer = 0;
    double real = 0;
    Place place{};
};

/// Throws template_syntax with line and column.
[[nodiscard]] std::vector<LexToken> lex(std::string_view source);

[[noreturn]] void syntax_error(Place place, std::string_view message);

}  // namespace tinfer::chat
