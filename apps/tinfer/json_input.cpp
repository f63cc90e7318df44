// SPDX-License-Identifier: MIT
#include "json_input.hpp"

#include <tinfer/base.hpp>

#include <cstdlib>
#include <limits>

namespace tinfer::app {

Json parse_json(std::string_view text, const std::string& where) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);    // RFC 8259 §8.1: may be ignored
    constexpr auto kAny = std::numeric_limits<std::size_t>::max();  // files of the user's own
    try {
        return Json::parse(text, where, {.max_bytes = kAny, .max_values = kAny});
    } catch (const tinfer::Error& error) {
        // "talk.json: line 1, column 4 (byte 3): expected a value"; the program counts bytes from 1.
        const std::string what = error.what();
        const auto place = what.find("(byte ", where.size());
        if (error.code() != tinfer::ErrorCode::bad_parameter || place == what.npos) throw;
        const auto byte = std::strtoull(what.c_str() + place + 6, nullptr, 10) + 1;
        throw tinfer::Error(error.code(), where + ": no JSON, byte " + std::to_string(byte) +
                                              what.substr(std::min(what.find("):", place) + 1, what.size())));
    }
}

}  // namespace tinfer::app
