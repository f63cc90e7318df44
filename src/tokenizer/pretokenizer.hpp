// SPDX-License-Identifier: MIT
// Cuts text into the pieces that byte-level BPE works on, with the regular expressions that the models publish: by
// PCRE2, or by equivalent hand-written scanners. Compiled once and shared; a match writes only to the caller's
// RegexScratch. Every family runs in linear time on any text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pretokenizer_scan.hpp"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace tinfer::tokenizer {

struct PretokenizerFamily;

struct FreeRegex {
    void operator()(pcre2_real_code_8* code) const noexcept;
    void operator()(pcre2_real_match_data_8* data) const noexcept;
    void operator()(pcre2_real_match_context_8* context) const noexcept;
};

/// Limits of one match; beyond them it ends with an error.
struct RegexLimits {
    std::uint32_t n_steps = 1'000'000'000;
    std::uint32_t heap_kib = 64 * 1024;  ///< for the interpreter's backtracking
};

/// Match data and limits, and the pieces between two expressions; not thread-safe.
class RegexScratch {
public:
    explicit RegexScratch(RegexLimits limits = {});  ///< throws bad_alloc

private:
    friend class Pretokenizer;
    RegexLimits limits_;
    std::unique_ptr<pcre2_real_match_data_8, FreeRegex> data_;
    std::unique_ptr<pcre2_real_match_context_8, FreeRegex> context_;
    std::vector<std::size_t> previous_;
};

/// Hand-written scanners where available, or PCRE2 alone, with which tests compare them.
enum class Matching : std::uint8_t { scanners_first, expressions_only };

class Pretokenizer {
public:
    using Code = std::unique_ptr<pcre2_real_code_8, FreeRegex>;

    Pretokenizer() = default;
    /// Throws bad_alloc; not_available if this version of PCRE2 does not support an expression.
    explicit Pretokenizer(const PretokenizerFamily& family, Matching matching = Matching::scanners_first);

    /// Writes the ends of the pieces of `subject`, which is valid UTF-8, in order. Throws bad_alloc, or limit_exceeded
    /// if a match exceeds the limits of `scratch`, which no family of the table does.
    void split(std::string_view subject, RegexScratch& scratch, std::vector<std::size_t>& ends) const;

private:
    // Splits one piece by one expression.
    void split_piece(const pcre2_real_code_8* code, std::string_view piece, std::size_t base, RegexScratch& scratch,
                     std::vector<std::size_t>& ends) const;
    [[noreturn]] void refuse(int error, std::size_t n_bytes, const RegexLimits& limits) const;

    struct Step {
        ScanFn scan = nullptr;  // instead of code
        Code code;
    };
    std::string name_;               // of the family
    std::unique_ptr<bool> refused_;  // whether an allocation failed during compilation
    std::vector<Step> steps_;
};

/// Translates a pattern for PCRE2: expands abbreviations, `\s` becomes White_Space, `\p{Han}` the script.
[[nodiscard]] std::string expand_pattern(std::string_view pattern);

/// "10.42 2022-12-11, Unicode 14.0.0"
[[nodiscard]] std::string regex_version();

}  // namespace tinfer::tokenizer
