// SPDX-License-Identifier: MIT
#include "api_error.hpp"

namespace tinfer::server {

std::string_view ApiError::type() const noexcept {
    switch (status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 429: return "rate_limit_error";
        case 503: return "overloaded_error";
        default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

Json ApiError::to_json() const {
    const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return {{"error", {{"message", what()}, {"type", type()}, {"code", or_null(code)}, {"param", or_null(param)}}}};
}

Json ApiError::to_messages_json() const {
    const std::string_view name = status >= 500 && status != 503 ? "api_error" : type();
    return {{"type", "error"}, {"error", {{"type", name}, {"message", what()}}}};
}

Json ApiError::to_text_json() const { return {{"error", what()}}; }

ApiError bad_request(std::string param, const std::string& message, std::string code) {
    const std::string text = param.empty() ? message : param + ": " + message;
    return {400, text, std::move(code), std::move(param)};
}

ApiError translate(const tinfer::Error& error, std::string param) {
    using tinfer::ErrorCode;
    const std::string code(tinfer::to_string(error.code()));
    switch (error.code()) {
        case ErrorCode::no_room: return {400, error.what(), "context_length_exceeded", std::move(param)};
        case ErrorCode::limit_exceeded:
        case ErrorCode::bad_parameter:
        case ErrorCode::index_out_of_range:
        case ErrorCode::bad_grammar:
        case ErrorCode::bad_schema:
        case ErrorCode::grammar_too_ambiguous:
        case ErrorCode::missing_special:
        case ErrorCode::no_tokenizer:  // token ids work
        case ErrorCode::template_error:
        case ErrorCode::template_runtime:
        case ErrorCode::template_syntax:
        case ErrorCode::unsupported_operation: return {400, error.what(), code, std::move(param)};
        case ErrorCode::not_available: return {501, error.what(), code, std::move(param)};
        case ErrorCode::cancelled:  // the client has gone, or the server is being drained
        case ErrorCode::busy:
        case ErrorCode::out_of_memory: return {503, error.what(), code, std::move(param)};
        default: return {500, error.what(), code, std::move(param)};
    }
}

std::string to_line(const Json& document) { return document.dump(); }

void open_member(std::string& object, std::string_view name) {
    object.pop_back();
    if (object.back() != '{') object += ',';
    object.append("\"").append(name).append("\":");
}

}  // namespace tinfer::server
