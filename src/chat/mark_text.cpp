// SPDX-License-Identifier: MIT
#include "chat/mark_text.hpp"

#include <algorithm>
#include <cctype>

namespace tinfer::chat {
namespace {

constexpr std::string_view kMarkSpace = " \t\r\n";

std::size_t end_of_mark(std::string_view text, std::size_t at) {
    const auto is_space = [&](std::size_t i) { return kMarkSpace.find(text[i]) != kMarkSpace.npos; };
    if (is_space(at)) {
        while (at < text.size() && is_space(at)) ++at;
        return at;
    }
    if (text[at] == '<') {
        const auto end = text.find_first_of("<>\n", at + 1);
        if (end == text.npos) return text.size();
        return text[end] == '>' ? end + 1 : end;
    }
    if (text[at] == '[') {
        std::size_t end = at + 1;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' ||
                                     (text[end] == '/' && end == at + 1)))
            ++end;
        return end > at + 1 && end < text.size() && text[end] == ']' ? end + 1 : at + 1;
    }
    for (++at; at < text.size() && !is_space(at) && text[at] != '<' && text[at] != '['; ++at)
        if (text[at - 1] == '>') break;
    return at;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kMarkSpace) == text.npos; }

}  // namespace

std::vector<std::string_view> marks_of_text(std::string_view text) {
    std::vector<std::string_view> out;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = end_of_mark(text, at);
        out.push_back(text.substr(at, end - at));
        at = end;
    }
    return out;
}

std::size_t common_end(std::string_view a, std::string_view b) {
    const auto x = marks_of_text(a), y = marks_of_text(b);
    std::size_t n = 0;
    for (std::size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
        const auto p = x[x.size() - i], q = y[y.size() - i];
        if (p != q && !(is_blank(p) && is_blank(q))) break;
        n += p.size();
    }
    return n;
}

std::size_t common_begin(std::string_view a, std::string_view b) {
    const auto x = marks_of_text(a), y = marks_of_text(b);
    std::size_t n = 0;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()) && x[i] == y[i]; ++i) n += x[i].size();
    return n;
}

std::string mark_of_text(std::string_view text) {
    const auto begin = text.find_first_not_of(kMarkSpace);
    if (begin == text.npos) return {};
    text = text.substr(begin, text.find_last_not_of(kMarkSpace) + 1 - begin);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        if (kMarkSpace.find(text[at]) == kMarkSpace.npos) {
            out += text[at++];
            continue;
        }
        const auto end = std::min(text.find_first_not_of(kMarkSpace, at), text.size());
        const auto space = text.substr(at, end - at);
        if (space.find('\n') == space.npos) out += space;
        else out += '\n';
        at = end;
    }
    return out;
}

std::size_t first_visible(std::string_view text) { return std::min(text.find_first_not_of(kMarkSpace), text.size()); }

std::size_t behind_visible(std::string_view text) { return text.find_last_not_of(kMarkSpace) + 1; }  // npos + 1 = 0

std::size_t begun(std::string_view text, std::string_view mark) {
    for (std::size_t n = std::min(text.size(), mark.size() - (mark.empty() ? 0 : 1)); n > 0; --n)
        if (mark.starts_with(text.substr(text.size() - n))) return n;
    return 0;
}

std::string regex_of(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out;
}

}  // namespace tinfer::chat
