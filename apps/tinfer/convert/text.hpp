// SPDX-License-Identifier: MIT
// Messages of the converter: texts put together from parts, and names of a checkpoint made fit for a terminal.
#pragma once

#include <tinfer/base.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::convert {

/// The parts one behind the other, as a stream writes them.
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return std::move(text).str();
}

/// Throws tinfer::Error with the parts as its message.
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
    throw Error(code, cat(parts...));
}

/// A name from a file: control characters become dots, and what is longer than 120 bytes is cut.
[[nodiscard]] inline std::string shown(std::string_view name) {
    constexpr std::size_t kMax = 120;
    std::string text(name.substr(0, kMax));
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '.';
    return name.size() > kMax ? text + "…" : text;
}

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
        text.replace(at, from.size(), to);
}

/// "▁", which SentencePiece writes for a space.
inline constexpr std::string_view kEscapedSpace = "\u2581";

/// "[2, 3]"
[[nodiscard]] inline std::string shape_text(const std::vector<std::uint64_t>& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    return text + "]";
}

}  // namespace tinfer::convert
