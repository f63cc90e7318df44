// SPDX-License-Identifier: MIT
// The words of every call: ids of tokens, positions and sequences, each a type of its own so that none is taken for
// another, and the callbacks that a caller gives to the library.
//
//     const tinfer::Token token{42};
//     const tinfer::Pos next = tinfer::Pos{7} + 1;
//     std::cout << "token " << token << " at " << next << " of sequence " << tinfer::SeqId{0} << '\n';
//     const tinfer::PosRange all, tail{next}, head{.end = next}, some{tinfer::Pos{3}, tinfer::Pos{7}};
//     if (tail.end == all.end && head.begin == all.begin) std::cout << some.end - some.begin << " positions\n";
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string_view>
#include <type_traits>

#include "tinfer/export.hpp"

namespace tinfer {

enum class Token : std::int32_t {};  ///< index into the vocabulary
enum class Pos : std::int32_t {};    ///< position of a token in its sequence, from 0
enum class SeqId : std::int32_t {};  ///< 0 … ContextOptions::n_seq_max-1

/// Positions are counted on and back by numbers of tokens; their difference is such a number. As with int, what does
/// not fit 32 bits is not defined.
[[nodiscard]] constexpr Pos operator+(Pos pos, int n) noexcept { return Pos{static_cast<std::int32_t>(pos) + n}; }
[[nodiscard]] constexpr Pos operator-(Pos pos, int n) noexcept { return Pos{static_cast<std::int32_t>(pos) - n}; }
[[nodiscard]] constexpr int operator-(Pos a, Pos b) noexcept {
    return static_cast<std::int32_t>(a) - static_cast<std::int32_t>(b);
}
constexpr Pos& operator+=(Pos& pos, int n) noexcept { return pos = pos + n; }
constexpr Pos& operator-=(Pos& pos, int n) noexcept { return pos = pos - n; }
constexpr Pos& operator++(Pos& pos) noexcept { return pos += 1; }
constexpr Pos operator++(Pos& pos, int) noexcept {
    const Pos before = pos;
    ++pos;
    return before;
}

/// Behind every position: the end of a range that goes to the end of its sequence.
inline constexpr Pos kPosEnd{std::numeric_limits<std::int32_t>::max()};

/// The positions p of a sequence with begin ≤ p < end; all of them by default. Empty where begin is not before end.
/// A bound below 0 is bad_parameter where a range is used.
struct PosRange {
    Pos begin{0};
    Pos end = kPosEnd;
    bool operator==(const PosRange&) const = default;
};

/// Ids print as their numbers.
TINFER_API std::ostream& operator<<(std::ostream& out, Token token);
TINFER_API std::ostream& operator<<(std::ostream& out, Pos pos);
TINFER_API std::ostream& operator<<(std::ostream& out, SeqId seq);
/// The library's enums print as to_string says, which every one of them has: "no_room" for DecodeStatus::no_room.
template <class Enum>
requires std::is_enum_v<Enum> && requires(Enum value) {
    { to_string(value) } -> std::same_as<std::string_view>;
}
std::ostream& operator<<(std::ostream& out, Enum value) { return out << to_string(value); }

enum class LogLevel : std::uint8_t { debug, info, warning };
[[nodiscard]] TINFER_API std::string_view to_string(LogLevel level) noexcept;
/// Receives the library's messages, one line each; absent = silent. Called on the thread that made the call which took
/// it (ModelOptions::log, ContextOptions::log), during that call alone.
using LogSink = std::function<void(LogLevel, std::string_view)>;
/// Called with fractions 0 … 1 that never fall, on the thread that loads; returning false stops the load
/// (ErrorCode::cancelled, everything freed).
using ProgressFn = std::function<bool(double fraction)>;
/// Polled between steps and between chunks of long steps on the thread that decodes; true cancels. Must not throw.
using CancelFn = std::function<bool()>;

namespace detail {
struct Access;  // how the library reaches the state behind its handles
}

}  // namespace tinfer
