// SPDX-License-Identifier: MIT
// A table of results, printed as text, CSV or JSON.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../output.hpp"

namespace tinfer::app {

/// The unit of a column in text form. CSV and JSON have plain numbers: bytes, milliseconds, fractions of 1.
enum class Unit { text, count, bytes, ms, gbps, percent, real };

struct Column {
    std::string name;
    Unit unit = Unit::text;
};
using Cell = std::variant<std::monostate, std::string, std::uint64_t, double>;

/// The format of results.
struct TableStyle {
    bool as_json = false, as_csv = false, exact = false;
};

class Table {
public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
    [[nodiscard]] std::size_t size() const { return rows_.size(); }
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    [[nodiscard]] std::string text(bool exact) const;  ///< with a header line and aligned columns
    [[nodiscard]] std::string csv() const;             ///< RFC 4180, lines end with \n
    [[nodiscard]] Json to_json() const;                ///< an array of objects

private:
    std::vector<Column> columns_;
    std::vector<std::vector<Cell>> rows_;
};

/// A CSV field, quoted if needed.
[[nodiscard]] std::string csv_field(std::string_view text);
/// "12.345" from nanoseconds.
[[nodiscard]] inline std::string ms_text(std::uint64_t ns) { return fixed(double(ns) / 1e6, 3); }
[[nodiscard]] inline std::string bytes_text(std::uint64_t bytes, bool exact) {
    return exact ? std::to_string(bytes) : size_text(bytes);
}
/// Text of a file, without control characters.
[[nodiscard]] std::string harmless_text(std::string_view text);

}  // namespace tinfer::app
