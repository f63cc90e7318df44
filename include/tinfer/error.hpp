// SPDX-License-Identifier: MIT
// What went wrong: one enum and one exception type for the whole library.
//
//     try {
//         const auto model = tinfer::Model::load("no such file.gguf");
//     } catch (const tinfer::Error& error) {
//         std::cout << error.what() << '\n';   // one line: file, item, number, limit
//         if (error.code() != tinfer::ErrorCode::io_error) throw;
//     }
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string_view>

#include "tinfer/export.hpp"

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
