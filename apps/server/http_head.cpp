// SPDX-License-Identifier: MIT
#include "http_head.hpp"

#include <algorithm>
#include <limits>

#include "api_error.hpp"

namespace tinfer::server {

namespace {

using std::string_view;

ApiError malformed(const std::string& what) { return {400, what, "bad_request"}; }

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_alpha(char c) noexcept { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

int hex_value(char c) noexcept {
    if (is_digit(c)) return c - '0';
    const char small = lower(c);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

string_view trim(string_view text) noexcept {
    const auto first = text.find_first_not_of(" \t");
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Calls `take` for each element of a comma-separated list that is not empty.
template <class Take>
void for_each_element(string_view list, Take&& take) {
    while (true) {
        const auto comma = list.find(',');
        const auto element = trim(list.substr(0, comma));
        if (!element.empty()) take(element);
        if (comma == list.npos) return;
        list.remove_prefix(comma + 1);
    }
}

/// `what`: the part of the target, for errors.
std::string decoded(string_view text, const char* what) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
        if (high < 0 || low < 0)
            throw malformed(std::string("the ") + what + " has a '%' without two hexadecimal digits");
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

/// uri-host [":" port] (RFC 3986 §3.2.2), without user information.
bool is_authority(string_view text) noexcept {
    std::size_t end = text.size();
    if (text.starts_with('[')) {
        const auto bracket = text.find(']');
        if (bracket == text.npos || bracket < 3) return false;
        for (const char c : text.substr(1, bracket - 1))
            if (hex_value(c) < 0 && c != ':' && c != '.') return false;
        end = bracket + 1;
        if (end < text.size() && text[end] != ':') return false;
    } else {
        end = std::min(text.size(), text.find(':'));
        for (const char c : text.substr(0, end))
            if (!is_alpha(c) && !is_digit(c) && string_view("-._~!$&'()*+,;=%").find(c) == string_view::npos)
                return false;
    }
    if (end == text.size()) return true;
    return std::ranges::all_of(text.substr(end + 1), is_digit);
}

/// The four forms of a request target (RFC 9112 §3.2), except the one of CONNECT.
void read_target(string_view target, Head& head) {
    for (const char c : target)
        if (c <= ' ' || c > '~' || c == '#') throw malformed("the request target has a character that no URI has");
    if (target == "*" && head.method == "OPTIONS") {
        head.path = "*";
        return;
    }
    if (!target.starts_with('/')) {
        const auto colon = target.find("://");
        const auto scheme = target.substr(0, colon == target.npos ? 0 : colon);
        if (!equal_names(scheme, "http") && !equal_names(scheme, "https"))
            throw malformed("the request target is neither a path nor an absolute URI");
        target.remove_prefix(colon + 3);
        head.host = target.substr(0, target.find_first_of("/?"));
        if (head.host.empty() || !is_authority(head.host)) throw malformed("the request target has no valid host");
        target.remove_prefix(head.host.size());
    }
    const auto path = target.substr(0, target.find('?'));
    if (path.size() < target.size()) head.query = target.substr(path.size() + 1);
    head.path = path.empty() ? "/" : decoded(path, "path");
}

void read_request_line(string_view line, Head& head) {
    const auto first = line.find(' '), last = line.rfind(' ');
    if (first == line.npos || first == last) throw malformed("the request line is not METHOD TARGET VERSION");
    head.method = line.substr(0, first);
    const auto target = line.substr(first + 1, last - first - 1), version = line.substr(last + 1);
    if (head.method.empty() || !std::ranges::all_of(head.method, is_token_char))
        throw malformed("the request line begins with no method");
    if (target.empty() || target.find(' ') != target.npos || target.find('\t') != target.npos)
        throw malformed("the request line is not METHOD TARGET VERSION");
    if (version.size() != 8 || !version.starts_with("HTTP/") || !is_digit(version[5]) || version[6] != '.' ||
        !is_digit(version[7]))
        throw malformed("the request line ends with no version of HTTP");
    if (version[5] != '1') throw ApiError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here", "version_not_supported");
    head.is_http_11 = version[7] != '0';
    read_target(target, head);
}

HeadField field_of(string_view line) {
    if (line.front() == ' ' || line.front() == '\t')
        throw malformed("a header field is continued on a second line, or begins with a space");
    const auto colon = line.find(':');
    const auto name = line.substr(0, colon);
    if (colon == line.npos || name.empty() || !std::ranges::all_of(name, is_token_char))
        throw malformed("a header line has no name before a colon");
    return {name, trim(line.substr(colon + 1))};
}

void read_host(Head& head) {
    const auto is_host = [](const HeadField& field) { return equal_names(field.name, "host"); };
    const auto n = std::ranges::count_if(head.fields, is_host);
    if (n > 1) throw malformed("there is more than one Host");
    if (n == 0 && head.is_http_11) throw malformed("there is no Host");
    const auto host = head.find("host");
    if (!is_authority(host)) throw malformed("Host is no host with an optional port");
    if (head.host.empty()) head.host = host;
}

/// Content-Length: digits alone, once. Repeated ones are refused even if they are equal.
void read_length(string_view value, Head& head) {
    if (value.empty() || !std::ranges::all_of(value, is_digit)) throw malformed("Content-Length is no number of bytes");
    std::uint64_t length = 0;
    for (const char c : value) {
        constexpr auto most = std::numeric_limits<std::uint64_t>::max() / 16;
        length = length > most ? length : length * 10 + static_cast<std::uint64_t>(c - '0');
    }
    head.length = length;
    head.framing = Head::Framing::length;
}

/// How long the body is (RFC 9112 §6).
void read_framing(Head& head) {
    std::size_t n_lengths = 0;
    std::vector<string_view> codings;
    bool has_codings = false;
    for (const auto& field : head.fields) {
        if (equal_names(field.name, "content-length")) {
            if (++n_lengths > 1) throw malformed("there is more than one Content-Length");
            read_length(field.value, head);
        } else if (equal_names(field.name, "transfer-encoding")) {
            has_codings = true;
            for_each_element(field.value, [&](string_view coding) { codings.push_back(coding); });
        }
    }
    if (!has_codings) return;
    if (n_lengths > 0) throw malformed("there are both Content-Length and Transfer-Encoding");
    if (!head.is_http_11) throw malformed("HTTP/1.0 has no Transfer-Encoding");
    const auto is_chunked = [](string_view coding) { return equal_names(coding, "chunked"); };
    if (codings.empty()) throw malformed("Transfer-Encoding is empty");
    if (std::ranges::count_if(codings, is_chunked) > 1) throw malformed("Transfer-Encoding says chunked twice");
    if (codings.size() > 1 && std::ranges::any_of(codings, is_chunked) && !is_chunked(codings.back()))
        throw malformed("Transfer-Encoding does not end with chunked");
    if (codings.size() > 1 || !is_chunked(codings.front()))
        throw ApiError(501, "chunked is the only Transfer-Encoding here", "unknown_transfer_coding");
    head.framing = Head::Framing::chunked;
}

void read_connection(Head& head) {
    bool closes = false, stays = false;
    for (const auto& field : head.fields) {
        if (equal_names(field.name, "connection"))
            for_each_element(field.value, [&](string_view option) {
                closes = closes || equal_names(option, "close");
                stays = stays || equal_names(option, "keep-alive");
            });
        if (equal_names(field.name, "expect") && head.is_http_11) {
            if (!equal_names(field.value, "100-continue"))
                throw ApiError(417, "100-continue is the only expectation that is met here", "expectation_failed");
            head.expects_continue = true;
        }
    }
    head.keeps_alive = !closes && (head.is_http_11 || stays);
}

}  // namespace

bool equal_names(string_view a, string_view b) noexcept {
    return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token_char(char c) noexcept {
    return is_alpha(c) || is_digit(c) || (c != '\0' && string_view("!#$%&'*+-.^_`|~").find(c) != string_view::npos);
}

HeadScanner::State HeadScanner::scan(string_view bytes) noexcept {
    for (; n_seen_ < bytes.size(); ++n_seen_) {
        const char c = bytes[n_seen_];
        const bool follows_cr = n_seen_ > 0 && bytes[n_seen_ - 1] == '\r';
        if (follows_cr != (c == '\n')) return State::malformed;
        if (c == '\n') {
            const bool is_empty = n_seen_ - line_ == 1;
            line_ = n_seen_ + 1;
            if (!is_empty) continue;
            if (begin_ == n_seen_ - 1) {
                begin_ = line_;  // an empty line before the request
            } else {
                ++n_seen_;
                return State::complete;
            }
        } else if ((static_cast<unsigned char>(c) < ' ' && c != '\r' && c != '\t') || c == 0x7f) {
            return State::malformed;
        }
    }
    return State::incomplete;
}

string_view Head::find(string_view name) const noexcept {
    for (const auto& field : fields)
        if (equal_names(field.name, name)) return field.value;
    return {};
}

std::optional<std::string> Head::parameter(string_view name) const {
    for (string_view rest = query; !rest.empty();) {
        const auto pair = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
        const auto equals = std::min(pair.find('='), pair.size());
        if (pair.substr(0, equals) != name) continue;
        std::string value(pair.substr(std::min(equals + 1, pair.size())));
        std::ranges::replace(value, '+', ' ');
        return decoded(value, "query");
    }
    return std::nullopt;
}

Head parse_head(string_view bytes) {
    Head head;
    auto end = bytes.find("\r\n");
    if (end == bytes.npos) throw malformed("there is no request line");
    read_request_line(bytes.substr(0, end), head);
    while (true) {
        bytes.remove_prefix(end + 2);
        end = bytes.find("\r\n");
        if (end == bytes.npos) throw malformed("the header has no end");
        if (end == 0) break;
        if (head.fields.size() == kMaxFields)
            throw ApiError(431, "there are more than " + std::to_string(kMaxFields) + " header fields",
                           "header_too_large");
        head.fields.push_back(field_of(bytes.substr(0, end)));
    }
    read_host(head);
    read_framing(head);
    read_connection(head);
    return head;
}

}  // namespace tinfer::server
