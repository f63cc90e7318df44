// SPDX-License-Identifier: MIT
// What every other header begins with: exported symbols, errors, types. Chapters: errors, types of calls.
#pragma once

// What every part of the public header begins with: the language, and which symbols a shared library exports. Those of
// a static one stay inside of what it is linked into.
#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#    error "tinfer needs C++20: compile with -std=c++20 or later (/std:c++20 with MSVC)"
#endif

#if defined(TINFER_SHARED) && defined(_WIN32)
#    ifdef TINFER_BUILDING
#        define TINFER_API __declspec(dllexport)
#    else
#        define TINFER_API __declspec(dllimport)
#    endif
#elif defined(TINFER_SHARED) && defined(__GNUC__)
#    define TINFER_API __attribute__((visibility("default")))
#else
#    define TINFER_API
#endif

#include <array>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string_view>
#include <type_traits>

// ====================================================== errors =======================================================
// What went wrong: one enum and one exception type for the whole library.
//
//     try {
//         const auto model = tinfer::Model::load("no such file.gguf");
//     } catch (const tinfer::Error& error) {
//         std::cout << error.what() << '\n';   // one line: file, item, number, limit
//         if (error.code() != tinfer::ErrorCode::io_error) throw;
//     }
namespace tinfer {

/// What went wrong, one enum for the whole library.
// clang-format off
enum class ErrorCode : std::uint8_t {
    // anywhere
    io_error, out_of_memory, limit_exceeded, cancelled, not_available, bad_parameter, busy,
    // container
    not_gguf, unsupported_version, wrong_endianness, truncated, bad_metadata, bad_alignment, bad_tensor_info,
    unsupported_tensor_type, size_overflow, bad_offset, tensor_overlap, tensor_out_of_file, bad_split,
    // model
    missing_key, wrong_type, bad_key, bad_override, not_a_model, unknown_arch, unsupported_arch, missing_tensor,
    unused_tensor, bad_tensor_rank, bad_tensor_shape, bad_tensor_data,
    // text
    bad_vocabulary, unknown_pretokenizer, no_tokenizer, missing_special,
    // context and decode
    bad_cache_type, invalid_batch, compute_failed, encoder_missing, no_output, index_out_of_range, non_finite,
    // files of our own: states, traces, adapters
    damaged, not_state_file, model_mismatch, param_mismatch, type_mismatch,
    not_adapter, arch_mismatch, bad_adapter_tensor, missing_base_tensor,
    // cache
    bad_sequence, shared_cell, unsupported_operation, no_room,
    // sampling, chat
    non_finite_logits, no_candidates, bad_grammar, bad_schema, grammar_violation, grammar_too_ambiguous,
    template_syntax, template_runtime, template_error,
};
// clang-format on

/// "tensor_out_of_file" for ErrorCode::tensor_out_of_file.
[[nodiscard]] TINFER_API std::string_view to_string(ErrorCode code) noexcept;

/// The one exception type of the library. Holds its text inline, so that reporting lack of memory needs none.
/// what() is one line naming file, item, offending number and limit.
class TINFER_API Error : public std::exception {
public:
    Error(ErrorCode code, std::string_view message) noexcept;
    [[nodiscard]] ErrorCode code() const noexcept { return code_; }
    [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

private:
    ErrorCode code_;
    std::array<char, 1015> text_{};
};

}  // namespace tinfer

// ================================================== types of calls ===================================================
// The words of every call: ids of tokens, positions and sequences, each a type of its own so that none is taken for
// another, and the callbacks that a caller gives to the library.
//
//     const tinfer::Token token{42};
//     const tinfer::Pos next = tinfer::Pos{7} + 1;
//     std::cout << "token " << token << " at " << next << " of sequence " << tinfer::SeqId{0} << '\n';
//     const tinfer::PosRange all, tail{next}, head{.end = next}, some{tinfer::Pos{3}, tinfer::Pos{7}};
//     if (tail.end == all.end && head.begin == all.begin) std::cout << some.end - some.begin << " positions\n";
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
