// SPDX-License-Identifier: MIT
#include "base/json.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/utf8.hpp"

namespace tinfer {

namespace {

template <class T>
void append_number(std::string& out, T value) {
    if (!std::isfinite(value)) {
        out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
        return;
    }
    text::append(out, value);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0) {
            out += "\\\\x";
            append_hex(out, byte);
        } else if (byte < 0x20 || byte == 0x7F) {
            out += "\\u00";
            append_hex(out, byte);
        } else {
            if (byte == '"' || byte == '\\') out += '\\';
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    out += '"';
}

void append_json_number(std::string& out, double value) { append_number(out, value); }
void append_json_number(std::string& out, float value) { append_number(out, value); }

void JsonWriter::separate() {
    if (follows_) *out_ += ',';
    if (n_spaces_ >= 0) out_->append("\n").append(static_cast<std::size_t>(n_spaces_), ' ');
    follows_ = false;
    n_spaces_ = -1;
}

JsonWriter& JsonWriter::begin(char bracket) {
    separate();
    *out_ += bracket;
    return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
    *out_ += bracket;
    follows_ = true;
    n_spaces_ = -1;
    return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
    separate();
    append_json_string(*out_, name);
    *out_ += ':';
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    separate();
    append_json_string(*out_, text);
    follows_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(double number) {
    separate();
    append_json_number(*out_, number);
    follows_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(float number) {
    separate();
    append_json_number(*out_, number);
    follows_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(bool truth) { return literal(truth ? "true" : "false"); }

JsonWriter& JsonWriter::literal(std::string_view json) {
    separate();
    *out_ += json;
    follows_ = true;
    return *this;
}

}  // namespace tinfer
