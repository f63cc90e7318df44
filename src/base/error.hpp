// SPDX-License-Identifier: MIT
// Throwing tinfer::Error and composing its one-line messages. Items that come from files are shown escaped and cut to
// 64 bytes, because nothing in a file may forge a message or a terminal sequence.
#pragma once

#include <concepts>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tinfer/base.hpp"

#if defined(TINFER_CHECKED)
// clang-format off
#    define TINFER_ASSERT(condition) ((condition) ? void() : ::tinfer::invariant_broken(#condition, __FILE__, __LINE__))
// clang-format on
#else
#    define TINFER_ASSERT(condition) void()
#endif

namespace tinfer {

[[noreturn]] void fail(ErrorCode code, std::string_view message);
/// A bug of ours: throws compute_failed naming the broken invariant (checked builds only, see TINFER_ASSERT).
[[noreturn]] void invariant_broken(const char* condition, const char* file, int line);

/// Calls fn at the public boundary: an allocation that fails inside, also one of the standard library, becomes
/// out_of_memory, whose message needs no memory.
template <class Fn>
decltype(auto) reporting_memory(std::string_view where, Fn&& fn) {
    try {
        return fn();
    } catch (const std::bad_alloc&) {
        throw Error(ErrorCode::out_of_memory, where);
    } catch (const std::length_error&) {
        throw Error(ErrorCode::out_of_memory, where);
    }
}

/// Control characters, quotes and invalid UTF-8 as \xNN; longer texts end in "…".
[[nodiscard]] std::string escaped(std::string_view text, std::size_t limit = 64);

namespace text {
inline void append(std::string& out, std::string_view value) { out += value; }
inline void append(std::string& out, const char* value) { out += value; }
inline void append(std::string& out, char value) { out += value; }
inline void append(std::string& out, bool value) { out += value ? "true" : "false"; }
void append(std::string& out, double value);  ///< shortest form that reads back equal, independent of locale
void append(std::string& out, float value);   ///< the same
// clang-format off
template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
void append(std::string& out, T value) { out += std::to_string(value); }
// clang-format on
}  // namespace text

/// cat("tensor '", name, "' has ", n, " bytes"): numbers in full, texts as they are.
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
    std::string out;
    (text::append(out, parts), ...);
    return out;
}

}  // namespace tinfer
