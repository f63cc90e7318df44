// SPDX-License-Identifier: MIT
// Addresses, where redirects lead, and which proxy is on the way.
#include "hub/url.hpp"

#include <doctest/doctest.h>

#include <tinfer/base.hpp>

using namespace tinfer::hub;

namespace {

std::string text_of(const std::optional<Url>& url) {
    return url ? (url->is_tls ? "https://" : "http://") + url->place() + url->target : "none";
}

std::string proxy_to(const char* address, const Proxies& proxies) {
    const auto proxy = proxy_for(*parse_url(address), proxies);
    return proxy ? proxy->user + ":" + proxy->password + "@" + proxy->host + ":" + std::to_string(proxy->port) : "none";
}

}  // namespace

TEST_CASE("[V15] addresses: read, and made sendable") {
    CHECK(text_of(parse_url("https://Hub.Example")) == "https://hub.example:443/");
    CHECK(text_of(parse_url("HTTP://127.0.0.1:81/a b?c=d#e")) == "http://127.0.0.1:81/a%20b?c=d");
    CHECK(text_of(parse_url("http://[::1]:8080?x")) == "http://[::1]:8080/?x");
    CHECK(text_of(parse_url("http://x/a\r\nHost: y")) == "http://x:80/a%0D%0AHost:%20y");
    for (const char* text : {"", "x", "ftp://x", "http://", "http://user@x/", "http://x:0", "http://x:99999",
                             "http://x:", "http://[::1", "http://a b/", "https:/x"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_url(text));
    }
    const Url base = *parse_url("https://hub/a/b?c");
    CHECK(text_of(parse_reference(base, "/x?y")) == "https://hub:443/x?y");
    CHECK(text_of(parse_reference(base, "//other/x")) == "https://other:443/x");
    CHECK(text_of(parse_reference(base, "http://other")) == "http://other:80/");
    CHECK(text_of(parse_reference(base, "?z")) == "https://hub:443/a/b?z");
    CHECK(text_of(parse_reference(base, "x")) == "none");
    CHECK(text_of(parse_reference(base, "file:///etc/passwd")) == "none");
}

TEST_CASE("[V15] proxies: by the kind of address, with exceptions, http alone") {
    const Proxies both{"http://u%40:p%3A@secure:3128", "plain:8080", "http://all:1", "a.example, .b.example,c:81,::1"};
    CHECK(proxy_to("https://hub", both) == "u@:p:@secure:3128");
    CHECK(proxy_to("http://hub", both) == ":@plain:8080");
    CHECK(proxy_to("http://hub", {"", "", "http://all:1", ""}) == ":@all:1");
    CHECK(proxy_to("https://hub", {"", "plain:1", "", ""}) == "none");
    CHECK(proxy_to("https://a.example", both) == "none");
    CHECK(proxy_to("https://x.a.example", both) == "none");
    CHECK(proxy_to("https://xa.example", both) != "none");
    CHECK(proxy_to("https://x.b.example", both) == "none");
    CHECK(proxy_to("http://c:81", both) == "none");
    CHECK(proxy_to("http://c:82", both) != "none");
    CHECK(proxy_to("http://[::1]:5", both) == "none");
    CHECK(proxy_to("http://hub", {"", "p:1", "", "*"}) == "none");
    for (const char* proxy : {"socks5://x:1", "socks5h://x:1", "https://x:1"})
        CHECK_THROWS_WITH_AS((void)proxy_to("https://hub", {proxy, "", "", ""}),
                             doctest::Contains(std::string(proxy).substr(0, 5).c_str()), tinfer::Error);
    CHECK_THROWS_AS((void)proxy_to("https://hub", {"http://user:secret@", "", "", ""}), tinfer::Error);
}
