// SPDX-License-Identifier: MIT
#include "grammar/uri.hpp"

#include <algorithm>
#include <optional>

namespace tinfer::grammar {
namespace {

/// RFC 3986 appendix B, without the fragment.
struct UriParts {
    std::optional<std::string_view> scheme{}, authority{}, query{};
    std::string path{};
};

UriParts split_uri(std::string_view text) {
    UriParts out;
    text = text.substr(0, text.find('#'));
    if (const std::size_t colon = text.find_first_of(":/?"); colon != text.npos && colon > 0 && text[colon] == ':') {
        out.scheme = text.substr(0, colon);
        text.remove_prefix(colon + 1);
    }
    if (text.starts_with("//")) {
        const std::size_t end = std::min(text.find_first_of("/?", 2), text.size());
        out.authority = text.substr(2, end - 2);
        text.remove_prefix(end);
    }
    if (const std::size_t mark = text.find('?'); mark != text.npos) {
        out.query = text.substr(mark + 1);
        text = text.substr(0, mark);
    }
    out.path = text;
    return out;
}

std::string without_dots(std::string_view path) {  // §5.2.4
    std::string out;
    const auto pop = [&] { out.erase(out.find_last_of('/') == out.npos ? 0 : out.find_last_of('/')); };
    while (!path.empty()) {
        if (path.starts_with("../")) path.remove_prefix(3);
        else if (path.starts_with("./")) path.remove_prefix(2);
        else if (path.starts_with("/./")) path.remove_prefix(2);
        else if (path == "/.") path = "/";
        else if (path.starts_with("/../")) path.remove_prefix(3), pop();
        else if (path == "/..") path = "/", pop();
        else if (path == "." || path == "..") path = {};
        else {
            const std::size_t end = std::min(path.find('/', path.starts_with('/') ? 1 : 0), path.size());
            out += path.substr(0, end);
            path.remove_prefix(end);
        }
    }
    return out;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
    UriParts to = split_uri(reference);
    if (!to.scheme && !base.empty()) {
        const UriParts from = split_uri(base);
        to.scheme = from.scheme;
        if (to.authority) {
            to.path = without_dots(to.path);
        } else {
            to.authority = from.authority;
            if (to.path.empty()) {
                to.path = from.path;
                if (!to.query) to.query = from.query;
            } else if (to.path.front() == '/') {
                to.path = without_dots(to.path);
            } else if (from.authority && from.path.empty()) {
                to.path = without_dots("/" + to.path);
            } else {
                const std::size_t slash = from.path.rfind('/');
                to.path = without_dots(from.path.substr(0, slash == std::string::npos ? 0 : slash + 1) + to.path);
            }
        }
    }
    std::string out;
    if (to.scheme) out.append(*to.scheme) += ':';
    if (to.authority) out.append("//").append(*to.authority);
    out += to.path;
    if (to.query) (out += '?').append(*to.query);
    return out;
}

std::string_view fragment_of(std::string_view reference) noexcept {
    const std::size_t hash = reference.find('#');
    return hash == reference.npos ? std::string_view() : reference.substr(hash + 1);
}

std::string percent_decoded(std::string_view text) {
    const auto hex = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    };
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
            out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

}  // namespace tinfer::grammar
