// SPDX-License-Identifier: MIT
// Errors as clients see them: a status and {"error": {"message", "type", "code", "param"}}.
#pragma once

#include <tinfer/tinfer.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

namespace tinfer::server {

class ApiError : public std::runtime_error {
public:
    ApiError(int given_status, std::string message, std::string given_code, std::string given_param = {})
        : std::runtime_error(std::move(message)), status(given_status), code(std::move(given_code)),
          param(std::move(given_param)) {}
    int status;
    std::string code;       ///< "context_length_exceeded"; empty: null
    std::string param;      ///< the field at fault; empty: null
    int retry_after_s = 1;  ///< with status 503: when to ask again

    /// "invalid_request_error", "authentication_error", …, depending on the status.
    [[nodiscard]] std::string_view type() const noexcept;
    [[nodiscard]] Json to_json() const;
    /// {"type": "error", "error": {"type", "message"}}, the form of /v1/messages.
    [[nodiscard]] Json to_messages_json() const;
    /// {"error": TEXT}, the form of Ollama's interface.
    [[nodiscard]] Json to_text_json() const;
};

/// Status 400 for an invalid request.
[[nodiscard]] ApiError bad_request(std::string param, const std::string& message, std::string code = "invalid_value");
/// Translates an error of the library; `param` is the field that caused it.
[[nodiscard]] ApiError translate(const tinfer::Error& error, std::string param = {});
/// One line of JSON; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_line(const Json& document);
/// Reopens the text of a JSON object for one more member: append its value and a closing brace.
void open_member(std::string& object, std::string_view name);

}  // namespace tinfer::server
