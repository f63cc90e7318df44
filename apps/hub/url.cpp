// SPDX-License-Identifier: MIT
#include "url.hpp"

#include <algorithm>
#include <charconv>
#include <tinfer/base.hpp>

#include "name.hpp"

namespace tinfer::hub {

namespace {

std::optional<int> port_of(std::string_view text) {
    int port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) return std::nullopt;
    return port;
}

/// "host", "host:80", "[::1]:80"
bool read_authority(std::string_view text, std::string& host, int& port) {
    std::size_t colon = text.rfind(':');
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == text.npos) return false;
        host = text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        if (!text.empty() && text[0] != ':') return false;
        colon = text.empty() ? text.npos : 0;
    } else {
        host = text.substr(0, colon);
    }
    host = lower(host);
    const auto is_of_hosts = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_' || c == ':';
    };
    if (host.empty() || !std::ranges::all_of(host, is_of_hosts)) return false;
    if (colon == text.npos) return true;
    const auto number = port_of(text.substr(colon + 1));
    port = number.value_or(0);
    return number.has_value();
}

/// A target as it may be sent: bytes that would end the line or are not ASCII become %XX.
std::string sendable(std::string_view target) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string out;
    for (const char c : target.substr(0, target.find('#'))) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > 0x20 && byte < 0x7F) out += c;
        else out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return out;
}

std::string percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        int value = 0;
        const char* const digits = text.data() + i + 1;
        if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
            out += static_cast<char>(value);
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

/// Whether NO_PROXY names the host: "*", the host, a domain above it, each with or without ":port".
bool is_excepted(const Url& url, std::string_view list) {
    while (!list.empty()) {
        std::string_view entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(entry.size() + 1, list.size()));
        while (entry.starts_with(' ')) entry.remove_prefix(1);
        while (entry.ends_with(' ')) entry.remove_suffix(1);
        if (entry == "*") return true;
        while (entry.starts_with('.') || entry.starts_with("*.")) entry.remove_prefix(entry[0] == '*' ? 2 : 1);
        std::string host;
        int port = url.port;
        // an IPv6 address without brackets has colons, but no port
        if (std::ranges::count(entry, ':') > 1 && !entry.starts_with('[')) host = lower(entry);
        else if (!read_authority(entry, host, port)) continue;
        if (port != url.port) continue;
        if (url.host == host || url.host.ends_with("." + host)) return true;
    }
    return false;
}

}  // namespace

std::string Url::place() const {
    return (host.find(':') == host.npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

bool Url::is_loopback() const { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::optional<Url> parse_url(std::string_view text) {
    const std::string start = lower(text.substr(0, 8));
    Url url;
    url.is_tls = start == "https://";
    if (!url.is_tls && !start.starts_with("http://")) return std::nullopt;
    text.remove_prefix(url.is_tls ? 8 : 7);
    url.port = url.is_tls ? 443 : 80;
    const std::size_t end = std::min(text.find_first_of("/?#"), text.size());
    if (!read_authority(text.substr(0, end), url.host, url.port)) return std::nullopt;
    if (end < text.size()) url.target = sendable(text.substr(end));
    if (!url.target.starts_with('/')) url.target.insert(0, "/");
    if (url.target.size() > 16384) return std::nullopt;
    return url;
}

std::optional<Url> parse_reference(const Url& base, std::string_view text) {
    if (text.starts_with("//")) return parse_url((base.is_tls ? "https:" : "http:") + std::string(text));
    if (text.find("://") < text.find_first_of("/?#")) return parse_url(text);
    Url url = base;
    if (text.starts_with('/')) url.target = sendable(text);
    else if (text.starts_with('?')) url.target = base.target.substr(0, base.target.find('?')) + sendable(text);
    else return std::nullopt;
    return url;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                           c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
        const auto byte = static_cast<unsigned char>(c);
        if (stays) out += c;
        else out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return out;
}

std::optional<Proxy> proxy_for(const Url& url, const Proxies& proxies) {
    std::string_view text = url.is_tls ? proxies.https : proxies.http;
    if (text.empty()) text = proxies.all;
    if (text.empty() || is_excepted(url, proxies.exceptions)) return std::nullopt;
    const std::size_t scheme = text.find("://");
    const std::string kind = scheme == text.npos ? "http" : lower(text.substr(0, scheme));
    if (kind != "http")
        throw Error(ErrorCode::not_available,
                    "the proxy is of the kind " + kind.substr(0, 20) + "://, and only http:// is supported");
    if (scheme != text.npos) text.remove_prefix(scheme + 3);
    text = text.substr(0, text.find('/'));
    Proxy proxy;
    proxy.port = 80;
    if (const std::size_t at = text.rfind('@'); at != text.npos) {
        const auto user = text.substr(0, at);
        const std::size_t colon = std::min(user.find(':'), user.size());
        proxy.user = percent_decoded(user.substr(0, colon));
        proxy.password = percent_decoded(user.substr(std::min(colon + 1, user.size())));
        text.remove_prefix(at + 1);
    }
    if (!read_authority(text, proxy.host, proxy.port))  // without its user and password
        throw Error(ErrorCode::bad_parameter, "the proxy '" + std::string(text.substr(0, 100)) + "' is no HOST:PORT");
    return proxy;
}

}  // namespace tinfer::hub
