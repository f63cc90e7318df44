// SPDX-License-Identifier: MIT
#include "base/error.hpp"

#include <charconv>
#include <cstring>

#include "base/hex.hpp"
#include "base/utf8.hpp"

namespace tinfer {

Error::Error(ErrorCode code, std::string_view message) noexcept : code_(code) {
    const std::size_t room = text_.size() - 1;
    if (message.size() <= room) {
        std::memcpy(text_.data(), message.data(), message.size());
        return;
    }
    constexpr std::string_view ellipsis = "…";
    const std::size_t kept = room - ellipsis.size();
    std::memcpy(text_.data(), message.data(), kept);
    std::memcpy(text_.data() + kept, ellipsis.data(), ellipsis.size());
}

std::string_view to_string(ErrorCode code) noexcept {
    switch (code) {
        case ErrorCode::io_error: return "io_error";
        case ErrorCode::out_of_memory: return "out_of_memory";
        case ErrorCode::limit_exceeded: return "limit_exceeded";
        case ErrorCode::cancelled: return "cancelled";
        case ErrorCode::not_available: return "not_available";
        case ErrorCode::bad_parameter: return "bad_parameter";
        case ErrorCode::busy: return "busy";
        case ErrorCode::not_gguf: return "not_gguf";
        case ErrorCode::unsupported_version: return "unsupported_version";
        case ErrorCode::wrong_endianness: return "wrong_endianness";
        case ErrorCode::truncated: return "truncated";
        case ErrorCode::bad_metadata: return "bad_metadata";
        case ErrorCode::bad_alignment: return "bad_alignment";
        case ErrorCode::bad_tensor_info: return "bad_tensor_info";
        case ErrorCode::unsupported_tensor_type: return "unsupported_tensor_type";
        case ErrorCode::size_overflow: return "size_overflow";
        case ErrorCode::bad_offset: return "bad_offset";
        case ErrorCode::tensor_overlap: return "tensor_overlap";
        case ErrorCode::tensor_out_of_file: return "tensor_out_of_file";
        case ErrorCode::bad_split: return "bad_split";
        case ErrorCode::missing_key: return "missing_key";
        case ErrorCode::wrong_type: return "wrong_type";
        case ErrorCode::bad_key: return "bad_key";
        case ErrorCode::bad_override: return "bad_override";
        case ErrorCode::not_a_model: return "not_a_model";
        case ErrorCode::unknown_arch: return "unknown_arch";
        case ErrorCode::unsupported_arch: return "unsupported_arch";
        case ErrorCode::missing_tensor: return "missing_tensor";
        case ErrorCode::unused_tensor: return "unused_tensor";
        case ErrorCode::bad_tensor_rank: return "bad_tensor_rank";
        case ErrorCode::bad_tensor_shape: return "bad_tensor_shape";
        case ErrorCode::bad_tensor_data: return "bad_tensor_data";
        case ErrorCode::bad_vocabulary: return "bad_vocabulary";
        case ErrorCode::unknown_pretokenizer: return "unknown_pretokenizer";
        case ErrorCode::no_tokenizer: return "no_tokenizer";
        case ErrorCode::missing_special: return "missing_special";
        case ErrorCode::bad_cache_type: return "bad_cache_type";
        case ErrorCode::invalid_batch: return "invalid_batch";
        case ErrorCode::compute_failed: return "compute_failed";
        case ErrorCode::encoder_missing: return "encoder_missing";
        case ErrorCode::no_output: return "no_output";
        case ErrorCode::index_out_of_range: return "index_out_of_range";
        case ErrorCode::damaged: return "damaged";
        case ErrorCode::not_state_file: return "not_state_file";
        case ErrorCode::model_mismatch: return "model_mismatch";
        case ErrorCode::param_mismatch: return "param_mismatch";
        case ErrorCode::type_mismatch: return "type_mismatch";
        case ErrorCode::not_adapter: return "not_adapter";
        case ErrorCode::arch_mismatch: return "arch_mismatch";
        case ErrorCode::bad_adapter_tensor: return "bad_adapter_tensor";
        case ErrorCode::missing_base_tensor: return "missing_base_tensor";
        case ErrorCode::bad_sequence: return "bad_sequence";
        case ErrorCode::shared_cell: return "shared_cell";
        case ErrorCode::unsupported_operation: return "unsupported_operation";
        case ErrorCode::no_room: return "no_room";
        case ErrorCode::non_finite: return "non_finite";
        case ErrorCode::non_finite_logits: return "non_finite_logits";
        case ErrorCode::no_candidates: return "no_candidates";
        case ErrorCode::bad_grammar: return "bad_grammar";
        case ErrorCode::bad_schema: return "bad_schema";
        case ErrorCode::grammar_violation: return "grammar_violation";
        case ErrorCode::grammar_too_ambiguous: return "grammar_too_ambiguous";
        case ErrorCode::template_syntax: return "template_syntax";
        case ErrorCode::template_runtime: return "template_runtime";
        case ErrorCode::template_error: return "template_error";
    }
    return "unknown";
}

void fail(ErrorCode code, std::string_view message) { throw Error(code, message); }

void invariant_broken(const char* condition, const char* file, int line) {
    fail(ErrorCode::compute_failed, cat("internal check failed: ", condition, " (", file, ":", line, ")"));
}

std::string escaped(std::string_view text, std::size_t limit) {
    std::string out;
    while (!text.empty()) {
        if (out.size() >= limit) return out + "…";
        const std::size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += "\\x";
            append_hex(out, byte);
            text.remove_prefix(1);
        } else {
            if (byte == '\'' || byte == '\\') out += '\\';
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    return out;
}

namespace text {

namespace {

template <class T>
void append_shortest(std::string& out, T value) {
    std::array<char, 32> digits;
    out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

}  // namespace

void append(std::string& out, double value) { append_shortest(out, value); }
void append(std::string& out, float value) { append_shortest(out, value); }

}  // namespace text

}  // namespace tinfer
