// SPDX-License-Identifier: MIT
// Cuts text into the pieces byte-level BPE works on, by running the regular expressions that the models publish through
// PCRE2, or through the scanners that equal some of them. Compiled once and shared; everything a match writes to is in
// a RegexScratch of the caller. Every family takes time that grows as the text does, whatever the text is.
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

/// What one match may take before it is given up with an error.
struct RegexLimits {
    std::uint32_t n_steps = 1'000'000'000;
    std::uint32_t heap_kib = 64 * 1024;  ///< where the interpreter remembers ways back
};

/// Match data and limits for one thread at a time, and the list of pieces that expressions pass on.
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

/// Who matches: hand-written scanners where there are any, or PCRE2 alone, which tests compare with.
enum class Matching : std::uint8_t { scanners_first, expressions_only };

class Pretokenizer {
public:
    using Code = std::unique_ptr<pcre2_real_code_8, FreeRegex>;

    Pretokenizer() = default;
    /// Throws bad_alloc; not_available where this PCRE2 does not know an expression.
    explicit Pretokenizer(const PretokenizerFamily& family, Matching matching = Matching::scanners_first);

    /// Ends of the pieces of `subject` in order, the last being its size. The subject is valid UTF-8. Throws bad_alloc,
    /// and limit_exceeded where a match needs more than the limits of `scratch`: no family of the table does.
    void split(std::string_view subject, RegexScratch& scratch, std::vector<std::size_t>& ends) const;

private:
    // One piece by one expression.
    void split_piece(const pcre2_real_code_8* code, std::string_view piece, std::size_t base, RegexScratch& scratch,
                     std::vector<std::size_t>& ends) const;
    [[noreturn]] void refuse(int error, std::size_t n_bytes, const RegexLimits& limits) const;

    struct Step {
        ScanFn scan = nullptr;  // instead of code
        Code code;
    };
    std::string name_;               // of the family
    std::unique_ptr<bool> refused_;  // whether an allocation failed while an expression was compiled
    std::vector<Step> steps_;
};

/// A pattern as PCRE2 is to see it: abbreviations expanded, `\s` as White_Space, `\p{Han}` as the script.
[[nodiscard]] std::string expand_pattern(std::string_view pattern);

/// "10.42 2022-12-11, Unicode 14.0.0"
[[nodiscard]] std::string regex_version();

}  // namespace tinfer::tokenizer
