// SPDX-License-Identifier: MIT
// Ids as text, and the names of enums that belong to no other folder.
#include "tinfer/base.hpp"

#include <ostream>

namespace tinfer {

std::ostream& operator<<(std::ostream& out, Token token) { return out << static_cast<std::int32_t>(token); }
std::ostream& operator<<(std::ostream& out, Pos pos) { return out << static_cast<std::int32_t>(pos); }
std::ostream& operator<<(std::ostream& out, SeqId seq) { return out << static_cast<std::int32_t>(seq); }

std::string_view to_string(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::debug: return "debug";
        case LogLevel::info: return "info";
        case LogLevel::warning: return "warning";
    }
    return "unknown";
}

}  // namespace tinfer
