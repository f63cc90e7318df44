// SPDX-License-Identifier: MIT
// JSON (RFC 8259) as a value: what conversations, tools, schemas and requests are made of. Members keep their order,
// integers stay integers. Destroying a value allocates nothing and does not recurse, so that no value ends a program.
//
//     auto tool = tinfer::Json::parse(R"({"name": "add", "parameters": {"type": "object"}})", "tool");
//     tool["description"] = "adds two numbers";
//     for (const auto& [name, value] : tool.items()) std::cout << name << ": " << value.dump() << '\n';
//     const tinfer::Json message{{"role", "user"}, {"content", "How much is 2 + 3?"}};
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"

namespace tinfer {

enum class JsonKind : std::uint8_t { null, boolean, number, string, array, object };
/// "array" for JsonKind::array.
[[nodiscard]] TINFER_API std::string_view to_string(JsonKind kind) noexcept;

/// How a text is read. Beyond the first three: limit_exceeded.
struct JsonOptions {
    std::size_t max_depth = 64;                 ///< arrays and objects inside each other
    std::size_t max_bytes = 64u << 20;          ///< of the text; never more than 2^31
    std::size_t max_values = 2'000'000;         ///< keys counted, too; each takes 16 bytes
    bool refuse_duplicates = false;             ///< a key that an object has already is an error
    ErrorCode code = ErrorCode::bad_parameter;  ///< of a text that is no JSON
};

/// How a text is written.
struct JsonLayout {
    int indent = -1;     ///< spaces for each level, each value on a line of its own; -1: all on one line
    bool ascii = false;  ///< other characters as \uXXXX
};

/// A value. A braced list is an object if all its elements are pairs that begin with a text, else an array. What asks
/// for another kind than a value has throws bad_parameter. Copies are deep; a moved-from value is null. Memory that
/// runs out is std::bad_alloc, and leaves values as they were. One thread at a time, as containers are.
class TINFER_API Json {
public:
    class Item;
    struct Member;

    Json() noexcept = default;
    Json(std::nullptr_t) noexcept : Json() {}
    template <std::same_as<bool> T>
    Json(T truth) noexcept : tag_(Tag::boolean), data_{.boolean = truth} {}
    template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>) Json(T number)
    noexcept {
        if (std::is_signed_v<T> || static_cast<std::uint64_t>(number) <= INT64_MAX) {
            tag_ = Tag::integer;
            data_.integer = static_cast<std::int64_t>(number);
        } else {
            tag_ = Tag::natural;
            data_.natural = static_cast<std::uint64_t>(number);
        }
    }
    template <std::floating_point T>
    Json(T number) noexcept : tag_(Tag::real), data_{.real = static_cast<double>(number)} {}
    Json(std::string text);
    Json(std::string_view text) : Json(std::string(text)) {}
    Json(const char* text) : Json(std::string(text)) {}
    template <class T>
    Json(const std::vector<T>& list) : Json(array()) {
        reserve(list.size());
        for (const auto& item : list) push_back(Json(item));
    }
    template <class T>
    Json(std::span<T> list) : Json(array()) {
        reserve(list.size());
        for (const auto& item : list) push_back(Json(item));
    }
    template <class T, class Less>
    Json(const std::map<std::string, T, Less>& members) : Json(object()) {
        for (const auto& [key, value] : members) append(key, Json(value));
    }
    Json(std::initializer_list<Item> items);
    Json(const Json& other) : Json() { *this = other.copy(); }
    Json(Json&& other) noexcept : tag_(std::exchange(other.tag_, Tag::null)), data_(other.data_) {}
    Json& operator=(Json other) noexcept {
        swap(other);
        return *this;
    }
    constexpr ~Json() {
        if (tag_ >= Tag::string) destroy();
    }
    void swap(Json& other) noexcept {
        std::swap(tag_, other.tag_);
        std::swap(data_, other.data_);
    }

    /// An empty one, or one of these elements, whatever they are.
    [[nodiscard]] static Json array(std::initializer_list<Item> items = {});
    [[nodiscard]] static Json object();

    /// Nothing but one value and white space, as RFC 8259 says, in UTF-8, with numbers that a double holds. A key that
    /// comes again keeps its first place and its last value. Throws Error with the code of the options: "config.json:
    /// line 3, column 7 (byte 41): …"; columns count characters from 1.
    [[nodiscard]] static Json parse(std::string_view text, std::string_view name = "JSON",
                                    const JsonOptions& options = {});
    /// The same where a text may be no JSON, or beyond the limits: nullopt then.
    [[nodiscard]] static std::optional<Json> try_parse(std::string_view text, const JsonOptions& options = {});
    /// Always valid: bytes that are not UTF-8 become U+FFFD, numbers that are not finite null. Doubles are written with
    /// as few digits as read back equal, and are told from integers: 2.0.
    [[nodiscard]] std::string dump(const JsonLayout& layout = {}) const;

    [[nodiscard]] JsonKind kind() const noexcept;
    [[nodiscard]] bool is_null() const noexcept { return tag_ == Tag::null; }
    [[nodiscard]] bool is_boolean() const noexcept { return tag_ == Tag::boolean; }
    [[nodiscard]] bool is_number() const noexcept { return is_integer() || tag_ == Tag::real; }
    /// Written without fraction and exponent, and from -2^63 to 2^64-1.
    [[nodiscard]] bool is_integer() const noexcept { return tag_ == Tag::integer || tag_ == Tag::natural; }
    [[nodiscard]] bool is_natural() const noexcept {
        return tag_ == Tag::natural || (tag_ == Tag::integer && data_.integer >= 0);
    }
    [[nodiscard]] bool is_string() const noexcept { return tag_ == Tag::string; }
    [[nodiscard]] bool is_array() const noexcept { return tag_ == Tag::array; }
    [[nodiscard]] bool is_object() const noexcept { return tag_ == Tag::object; }

    /// bool, std::string, or a number: any of them as a double, integers that fit as integers; a double's fraction is
    /// cut off.
    template <class T>
    [[nodiscard]] T get() const {
        if constexpr (std::same_as<T, bool>) return boolean();
        else if constexpr (std::integral<T>) {
            if (tag_ == Tag::real)
                return static_cast<T>(whole(static_cast<double>(std::numeric_limits<T>::min()),
                                            static_cast<double>(std::numeric_limits<T>::max())));
            if (tag_ == Tag::natural && std::in_range<T>(data_.natural)) return static_cast<T>(data_.natural);
            if (tag_ == Tag::integer && std::in_range<T>(data_.integer)) return static_cast<T>(data_.integer);
            refuse_number();
        } else if constexpr (std::floating_point<T>) return static_cast<T>(real());
        else return T(string());
    }
    [[nodiscard]] bool boolean() const;
    /// Valid as long as the value is not changed.
    [[nodiscard]] const std::string& string() const&;
    const std::string& string() const&& = delete;

    // ---- arrays and objects: what is null becomes one where something is added

    /// Elements or members; 0 of anything else.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] bool empty() const noexcept { return size() == 0; }
    /// Elements of an array; nothing of anything else.
    [[nodiscard]] Json* begin() noexcept;
    [[nodiscard]] Json* end() noexcept;
    [[nodiscard]] const Json* begin() const noexcept { return const_cast<Json*>(this)->begin(); }
    [[nodiscard]] const Json* end() const noexcept { return const_cast<Json*>(this)->end(); }
    [[nodiscard]] Json& at(std::size_t index);
    [[nodiscard]] const Json& at(std::size_t index) const { return const_cast<Json*>(this)->at(index); }
    [[nodiscard]] Json& operator[](std::size_t index) { return at(index); }
    [[nodiscard]] const Json& operator[](std::size_t index) const { return at(index); }
    [[nodiscard]] Json& front() { return at(0); }
    [[nodiscard]] const Json& front() const { return at(0); }
    [[nodiscard]] Json& back() { return at(size() - 1); }
    [[nodiscard]] const Json& back() const { return at(size() - 1); }
    void reserve(std::size_t n);
    void push_back(Json value);
    void insert(std::size_t index, Json value);
    void erase(std::size_t begin, std::size_t end);
    void erase(std::size_t index) { erase(index, index + 1); }

    /// Members of an object in their order; nothing of anything else.
    [[nodiscard]] std::span<Member> items() noexcept;
    [[nodiscard]] std::span<const Member> items() const noexcept;
    /// The member of this key, which is looked for one by one; null where there is none, or where this is no object.
    [[nodiscard]] Json* find(std::string_view key) noexcept;
    [[nodiscard]] const Json* find(std::string_view key) const noexcept { return const_cast<Json*>(this)->find(key); }
    [[nodiscard]] bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
    /// Adds the member where there is none. Of a constant: a null value instead.
    [[nodiscard]] Json& operator[](std::string_view key);
    [[nodiscard]] const Json& operator[](std::string_view key) const noexcept;
    [[nodiscard]] Json& at(std::string_view key);
    [[nodiscard]] const Json& at(std::string_view key) const { return const_cast<Json*>(this)->at(key); }
    /// The text of this member; empty where there is none, or where it is no text.
    [[nodiscard]] std::string_view text(std::string_view key) const noexcept;
    /// Adds a member without looking whether there is one of this key.
    Json& append(std::string key, Json value);
    /// Sets the members of another object.
    void update(Json members);
    void erase(std::string_view key);

    /// Of numbers the values, of objects the members in any order. Doubles and integers are equal where exactly so.
    [[nodiscard]] bool operator==(const Json& other) const;
    template <class T>
    requires std::convertible_to<const T&, std::string_view>
    [[nodiscard]] bool operator==(const T& text) const noexcept {
        return is_string() && *data_.string == std::string_view(text);
    }

private:
    struct Nest;
    struct Array;
    struct Object;
    struct Tag {
        enum Kind : std::uint8_t { null, boolean, integer, natural, real, string, array, object };
    };

    [[nodiscard]] Json copy() const;
    [[nodiscard]] double real() const;
    [[nodiscard]] double whole(double least, double most) const;
    [[noreturn]] void refuse(std::string_view wanted) const;
    [[noreturn]] void refuse_number() const;
    void merge_repeated();
    void destroy() noexcept;

    union Data {
        std::int64_t integer;
        std::uint64_t natural;
        double real;
        bool boolean;
        std::string* string;
        Nest* nest;
    };
    Tag::Kind tag_ = Tag::null;
    Data data_{.integer = 0};
};

struct Json::Member {
    std::string key;
    Json value;
};

/// An element of a braced list: it is moved from where it can be.
class Json::Item {
public:
    template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Item> && std::constructible_from<Json, T&&>) Item(T&& value)
        : value_(std::forward<T>(value)) {}
    Item(std::initializer_list<Item> items) : value_(items) {}

private:
    friend class Json;
    mutable Json value_;
};

}  // namespace tinfer
