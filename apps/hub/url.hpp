// SPDX-License-Identifier: MIT
// Addresses of http and https, and the proxy on the way to one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hub.hpp"

namespace tinfer::hub {

struct Url {
    bool is_tls = false;
    std::string host;  ///< in small letters; an IPv6 address without brackets
    int port = 80;
    std::string target = "/";  ///< path and query, ready to be sent

    /// "host:port"
    [[nodiscard]] std::string place() const;
    [[nodiscard]] bool is_loopback() const;
    [[nodiscard]] bool has_origin_of(const Url& other) const {
        return is_tls == other.is_tls && host == other.host && port == other.port;
    }
};

/// nullopt for what is no address of http or https, or has a user in it.
[[nodiscard]] std::optional<Url> parse_url(std::string_view text);
/// Where a Location or a Link leads that stands in an answer of `base`.
[[nodiscard]] std::optional<Url> parse_reference(const Url& base, std::string_view text);
/// Every byte but letters, digits, "-._~" as %XX; '/' stays if `keep_slashes`.
[[nodiscard]] std::string percent_encode(std::string_view text, bool keep_slashes);

struct Proxy {
    std::string host;
    int port = 0;
    std::string user, password;
};
/// The proxy to an address; nullopt: none. Throws bad_parameter for a proxy of another kind than http, naming it.
[[nodiscard]] std::optional<Proxy> proxy_for(const Url& url, const Proxies& proxies);

}  // namespace tinfer::hub
