// SPDX-License-Identifier: MIT
// The head of an HTTP/1 request: request line and header fields (RFC 9112). What is malformed, or what two readers
// could take for requests of different lengths, is refused: no byte that a client sent as part of one request is ever
// read as the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::server {

/// Finds the end of a head while its bytes arrive.
class HeadScanner {
public:
    enum class State : std::uint8_t {
        incomplete,
        complete,
        malformed,  ///< a control character, or a CR or LF alone
    };
    /// `bytes`: everything that has come since the scanner was made; the beginning is not read again.
    [[nodiscard]] State scan(std::string_view bytes) noexcept;
    /// Where the request line begins: empty lines before it are skipped.
    [[nodiscard]] std::size_t begin() const noexcept { return begin_; }
    /// Behind the empty line that ends the head; valid once it is complete.
    [[nodiscard]] std::size_t end() const noexcept { return n_seen_; }
    [[nodiscard]] bool has_request_line() const noexcept { return line_ > begin_; }

private:
    std::size_t n_seen_ = 0, begin_ = 0, line_ = 0;  ///< bytes read; begin of the head; of the current line
};

struct HeadField {
    std::string_view name, value;
};

/// The views point into the bytes that were parsed.
struct Head {
    enum class Framing : std::uint8_t { none, length, chunked };

    std::string_view method;
    std::string path;        ///< decoded, without the query
    std::string_view query;  ///< as it was sent, without '?'
    std::string_view host;   ///< authority of the target if it has one, else the field Host; may be empty
    bool is_http_11 = true;  ///< 1.1 or later; else 1.0
    std::vector<HeadField> fields;
    Framing framing = Framing::none;
    std::uint64_t length = 0;  ///< bytes of the body, with Framing::length
    bool keeps_alive = true;   ///< the client can send another request on this connection
    bool expects_continue = false;

    /// Value of the first field of that name; empty if there is none.
    [[nodiscard]] std::string_view find(std::string_view name) const noexcept;
    /// The decoded value of the first parameter of that name in the query; nullopt if there is none. Throws ApiError
    /// 400 for a malformed one.
    [[nodiscard]] std::optional<std::string> parameter(std::string_view name) const;
    [[nodiscard]] bool has_body() const noexcept { return framing == Framing::chunked || length > 0; }
};

/// Maximum number of header fields.
inline constexpr std::size_t kMaxFields = 128;

/// Parses a complete head, with its final empty line. Throws ApiError: 400 for a malformed one, 417, 431, 501 for an
/// unknown transfer coding, 505.
[[nodiscard]] Head parse_head(std::string_view bytes);

/// Compares names in ASCII without case.
[[nodiscard]] bool equal_names(std::string_view a, std::string_view b) noexcept;
/// Whether a character may stand in a method or a name of a field.
[[nodiscard]] bool is_token_char(char c) noexcept;

}  // namespace tinfer::server
