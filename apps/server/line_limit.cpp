// SPDX-License-Identifier: MIT
#include "line_limit.hpp"

namespace tinfer::server {

std::string LineLimit::push(std::string_view text, bool is_last, Clock::time_point now) {
    std::string out;
    if (is_over_) return out;
    if (!begin_ && !text.empty()) begin_ = now;
    for (const char c : text) {
        has_line_feed_ = has_line_feed_ || c == '\n';
        if (n_indent_ == 0) {
            out += c;
        } else if (c == '\n') {
            held_ += c;
            is_in_indent_ = true;
            indent_ = 0;
        } else if (is_in_indent_ && (c == ' ' || c == '\t' || c == '\r')) {
            held_ += c;
            indent_ += c == '\r' ? 0 : 1;
        } else if (is_in_indent_ && indent_ < n_indent_) {
            is_over_ = true;
            return out + held_.substr(0, held_.rfind('\n'));
        } else {
            is_in_indent_ = false;
            out += held_ + c;
            held_.clear();
        }
    }
    if (is_last) return out + held_;
    is_by_time_ = time_ && begin_ && has_line_feed_ && now - *begin_ >= *time_;
    is_over_ = is_by_time_;
    return out;
}

}  // namespace tinfer::server
