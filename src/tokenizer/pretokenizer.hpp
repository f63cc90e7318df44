// SPDX-License-Identifier: MIT
// Cuts text into the pieces byte-level BPE works on, by running the regular expressions that the models publish through
// PCRE2, or through the scanners that equal some of them. Compiled once and shared; everything a match writes to is in a RegexScratch of the caller.
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
struct pcre2_real_jit_stack_8;

namespace tinfer::tokenizer {

struct PretokenizerFamily;

struct FreeRegex {
    void operator()(pcre2_real_code_8* code) const noexcept;
    void operator()(pcre2_real_match_data_8* data) const noexcept;
    void operator()(pcre2_real_match_context_8* context) const noexcept;
    void operator()(pcre2_real_jit_stack_8* stack) const noexcept;
};

/// Match data, limits and JIT stack for one thread at a time, and the list of pieces that expressions pass on.
class RegexScratch {
public:
    RegexScratch();

private:
    friend class Pretokenizer;
    std::unique_ptr<pcre2_real_match_data_8, FreeRegex> data_;
    std::unique_ptr<pcre2_real_jit_stack_8, FreeRegex> stack_;       // null: matching lives on the machine stack
    std::unique_ptr<pcre2_real_match_context_8, FreeRegex> context_;
    std::vector<std::size_t> previous_;
};

/// Who matches: hand-written scanners where there are any, or PCRE2 alone, which tests compare with.
enum class Matching : std::uint8_t { scanners_first, expressions_only };

class Pretokenizer {
public:
    Pretokenizer() = default;
    explicit Pretokenizer(const PretokenizerFamily& family, Matching matching = Matching::scanners_first);

    /// Ends of the pieces of `subject` in order, the last being its size. The subject is valid UTF-8.
    void split(std::string_view subject, RegexScratch& scratch, std::vector<std::size_t>& ends) const;

private:
    using Code = std::unique_ptr<pcre2_real_code_8, FreeRegex>;

    // One piece by one expression; false when PCRE2 gave up on it, `ends` is then as before.
    static bool split_piece(const pcre2_real_code_8* code, std::string_view piece, std::size_t base,
                            RegexScratch& scratch, std::vector<std::size_t>& ends);

    struct Step {
        ScanFn scan = nullptr;   // instead of code
        Code code;
    };
    std::vector<Step> steps_;
};

/// A pattern as PCRE2 is to see it: abbreviations expanded, `\s` as White_Space, `\p{Han}` as the script.
[[nodiscard]] std::string expand_pattern(std::string_view pattern);

/// "10.42 2022-12-11, Unicode 14.0.0"
[[nodiscard]] std::string regex_version();

}  // namespace tinfer::tokenizer
