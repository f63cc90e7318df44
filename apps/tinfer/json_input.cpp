// SPDX-License-Identifier: MIT
#include "json_input.hpp"

#include <tinfer/error.hpp>

namespace tinfer::app {

json parse_json(std::string_view text, const std::string& where) {
    constexpr int kDeepest = 64;
    const auto check_depth = [&](int depth, json::parse_event_t event, const json&) {
        const bool opens = event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
        if (opens && depth >= kDeepest)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                where + ": nested deeper than " + std::to_string(kDeepest));
        return true;
    };
    try {
        return json::parse(text, check_depth);
    } catch (const json::parse_error& error) {
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, where + ": no JSON, byte " + std::to_string(error.byte));
    } catch (const json::out_of_range&) {  // a number out of range
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, where + ": a number is too large");
    }
}

}  // namespace tinfer::app
