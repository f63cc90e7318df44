// SPDX-License-Identifier: MIT
// JSON (RFC 8259): a writer that is valid whatever bytes it is given, and a parser for texts of strangers, bounded in
// depth, size and memory, whose errors say where.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tinfer/json.hpp"

namespace tinfer {

// ---- writing --------------------------------------------------------------------------------------------------------

/// A string with its quotes. Bytes that are not UTF-8 appear as the text \xNN, so that the document is always valid.
void append_json_string(std::string& out, std::string_view text);

/// The shortest form that reads back equal. JSON has no other numbers: those are the strings "NaN", "Infinity",
/// "-Infinity".
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, float value);

/// Appends one value after another to a text, with the commas and colons between them. The caller closes what it opens.
class JsonWriter {
public:
    explicit JsonWriter(std::string& out) noexcept : out_(&out) {}

    JsonWriter& begin_object() { return begin('{'); }
    JsonWriter& end_object() { return end('}'); }
    JsonWriter& begin_array() { return begin('['); }
    JsonWriter& end_array() { return end(']'); }
    /// The key of the value that follows.
    JsonWriter& key(std::string_view name);

    JsonWriter& value(std::string_view text);
    JsonWriter& value(const char* text) { return value(std::string_view(text)); }
    JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
    JsonWriter& value(double number);
    JsonWriter& value(float number);
    JsonWriter& value(bool truth);
    template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>) JsonWriter& value(T number) {
        return literal(std::to_string(number));
    }
    JsonWriter& null() { return literal("null"); }
    /// A value whose text is JSON already.
    JsonWriter& literal(std::string_view json);

    template <class T>
    JsonWriter& member(std::string_view name, const T& item) {
        return key(name).value(item);
    }
    /// What follows begins a new line, indented by so many spaces.
    JsonWriter& line(int n_spaces) noexcept {
        n_spaces_ = n_spaces;
        return *this;
    }

private:
    JsonWriter& begin(char bracket);
    JsonWriter& end(char bracket);
    void separate();  // writes the comma or line break before the next value

    std::string* out_;
    bool follows_ = false;  // a value of the same container stands before
    int n_spaces_ = -1;     // in front of the next, on a new line; -1: on the same
};

// ---- reading --------------------------------------------------------------------------------------------------------

class JsonTape;  // the values of a document, in the order of the text

/// A parsed value: a cheap handle, valid as long as its document. Asking for another kind than it has is a bug of ours,
/// except with the functions that give an optional.
class JsonValue {
public:
    [[nodiscard]] JsonKind kind() const noexcept;
    [[nodiscard]] bool is(JsonKind kind) const noexcept { return this->kind() == kind; }

    [[nodiscard]] bool boolean() const;
    /// Rounded to the nearest double; what is too small is 0 with its sign.
    [[nodiscard]] double number() const;
    /// As it is written: "1.50" and "15e-1" are told apart.
    [[nodiscard]] std::string_view number_text() const;
    /// The number where it is written without fraction and exponent and fits, else nullopt (also where this is no
    /// number).
    [[nodiscard]] std::optional<std::int64_t> integer() const noexcept;
    [[nodiscard]] std::optional<std::uint64_t> unsigned_integer() const noexcept;
    /// Valid UTF-8 with escapes undone; it may hold U+0000.
    [[nodiscard]] std::string_view string() const;

    /// Elements of an array, members of an object; 0 of anything else.
    [[nodiscard]] std::size_t size() const noexcept;
    /// The member of this key; of several the last. O(size). nullopt where there is none, or where this is no object.
    [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const noexcept;

    /// Elements of an array, or members of an object, in the order of the text: `for (const auto& [key, value] :
    /// v.members())`
    struct Member;
    class Iterator;
    struct Range;
    [[nodiscard]] Range items() const;    ///< of an array: keys are empty
    [[nodiscard]] Range members() const;  ///< of an object

    /// Where it begins in the text, in bytes.
    [[nodiscard]] std::size_t offset() const noexcept;

private:
    friend class JsonDocument;
    JsonValue(const JsonTape& tape, std::uint32_t node) noexcept : tape_(&tape), node_(node) {}

    const JsonTape* tape_;
    std::uint32_t node_;
};

struct JsonValue::Member {
    std::string_view key;
    JsonValue value;
};

class JsonValue::Iterator {
public:
    using value_type = Member;
    using difference_type = std::ptrdiff_t;

    [[nodiscard]] Member operator*() const noexcept;
    Iterator& operator++() noexcept;
    Iterator operator++(int) noexcept {
        const Iterator before = *this;
        ++*this;
        return before;
    }
    [[nodiscard]] bool operator==(const Iterator& other) const noexcept { return node_ == other.node_; }

private:
    friend class JsonValue;
    Iterator(const JsonTape* tape, std::uint32_t node, bool keyed) noexcept : tape_(tape), node_(node), keyed_(keyed) {}

    const JsonTape* tape_;
    std::uint32_t node_;  // of the key where there are keys
    bool keyed_;
};

struct JsonValue::Range {
    Iterator first, last;
    [[nodiscard]] Iterator begin() const noexcept { return first; }
    [[nodiscard]] Iterator end() const noexcept { return last; }
};

/// A text, parsed. It keeps a copy of it, so the text may go. Moving it leaves its values valid.
class JsonDocument {
public:
    /// Strict: nothing but one value and white space, no comments, no trailing commas, no byte order mark, numbers no
    /// larger than a double holds. Throws Error: "config.json: line 3, column 7 (byte 41): …"; columns count characters
    /// from 1.
    [[nodiscard]] static JsonDocument parse(std::string_view text, std::string_view name,
                                            const JsonOptions& options = {});

    JsonDocument(JsonDocument&&) noexcept;
    JsonDocument& operator=(JsonDocument&&) noexcept;
    ~JsonDocument();

    [[nodiscard]] JsonValue root() const noexcept;

private:
    explicit JsonDocument(std::unique_ptr<const JsonTape> tape) noexcept;
    std::unique_ptr<const JsonTape> tape_;
};

}  // namespace tinfer
