// SPDX-License-Identifier: MIT
#include "table.hpp"

#include <algorithm>

namespace tinfer::app {

namespace {

std::string shown(const Cell& cell, Unit unit, bool exact) {
    if (const auto* text = std::get_if<std::string>(&cell)) return harmless_text(*text);
    if (std::holds_alternative<std::monostate>(cell)) return "-";
    const auto* whole = std::get_if<std::uint64_t>(&cell);
    const double value = whole != nullptr ? double(*whole) : std::get<double>(cell);
    switch (unit) {
        case Unit::bytes: return whole != nullptr ? bytes_text(*whole, exact) : size_text(std::uint64_t(value));
        case Unit::ms: return fixed(value, 3);
        case Unit::gbps: return fixed(value, 2);
        case Unit::percent: return fixed(100 * value, 1) + " %";
        case Unit::real: return fixed(value, 3);
        case Unit::text:
        case Unit::count: break;
    }
    return whole != nullptr ? std::to_string(*whole) : fixed(value, 3);
}

}  // namespace

std::string harmless_text(std::string_view text) {
    std::string out;
    for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '.' : c;
    return out;
}

std::string csv_field(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
}

std::string Table::text(bool exact) const {
    std::vector<std::vector<std::string>> lines(1);
    for (const Column& column : columns_)
        lines[0].push_back(column.unit == Unit::ms ? column.name + " ms" : column.name);
    for (const auto& row : rows_) {
        auto& line = lines.emplace_back();
        for (std::size_t c = 0; c < columns_.size(); ++c) line.push_back(shown(row[c], columns_[c].unit, exact));
    }
    std::vector<std::size_t> widths(columns_.size());
    for (const auto& line : lines)
        for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width_of(line[c]));
    std::string out;
    for (const auto& line : lines) {
        std::string row;
        for (std::size_t c = 0; c < line.size(); ++c) {
            const std::string space(widths[c] - width_of(line[c]), ' ');
            if (c > 0) row += "  ";
            row += columns_[c].unit == Unit::text ? line[c] + space : space + line[c];
        }
        row.resize(row.find_last_not_of(' ') + 1);
        out += row + "\n";
    }
    return out;
}

std::string Table::csv() const {
    std::string out;
    for (std::size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "," : "") + csv_field(columns_[c].name);
    out += "\n";
    for (const auto& row : rows_) {
        for (std::size_t c = 0; c < row.size(); ++c) {
            if (c > 0) out += ",";
            if (const auto* text = std::get_if<std::string>(&row[c])) out += csv_field(*text);
            else if (const auto* whole = std::get_if<std::uint64_t>(&row[c])) out += std::to_string(*whole);
            else if (const auto* value = std::get_if<double>(&row[c])) out += plain_number(*value);
        }
        out += "\n";
    }
    return out;
}

Json Table::to_json() const {
    Json list = Json::array();
    for (const auto& row : rows_) {
        Json object = Json::object();
        for (std::size_t c = 0; c < row.size(); ++c)
            object[columns_[c].name] = std::visit(
                [](const auto& value) -> Json {
                    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) return nullptr;
                    else return value;
                },
                row[c]);
        list.push_back(std::move(object));
    }
    return list;
}

}  // namespace tinfer::app
