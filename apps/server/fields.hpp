// SPDX-License-Identifier: MIT
// Reads the fields of a request's body by name and type, and keeps track of those that were not read, at every level.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api_error.hpp"
#include "request_fields.hpp"

namespace tinfer::server {

/// Parses a body. Throws ApiError 400 for anything but a JSON object, for invalid UTF-8, and for nesting deeper than
/// `depth`. It takes at most `kParseCost` times the size of the body: a list that is alone in another one is three
/// bytes of text, and a node and a value of 16 bytes each, 48 for the list and 32 for where its elements lie.
[[nodiscard]] Json parse_body(std::string_view body, int depth = 100);
constexpr std::size_t kParseCost = 36;

/// Fields of a request that nobody has read. The first so many have names.
struct UnreadFields {
    static constexpr std::size_t kMaxNames = 32;
    struct Field {
        std::string path;
        bool is_given_on;  ///< to the template, as it is
    };
    std::vector<Field> first;
    std::size_t n = 0;
    bool lacks_memory = false;  ///< for a name
};

/// Reads one object. A null field counts as absent. A wrong type or a value out of bounds throws ApiError 400 with the
/// path of the field as param.
class Fields {
public:
    /// The whole body of a request.
    explicit Fields(const Json& object, std::string path = {});
    /// An object somewhere inside of that of `outer`. At its end it tells the whole what it has not read.
    Fields(Fields& outer, const Json& object, std::string path);
    Fields(const Fields&) = delete;
    Fields& operator=(const Fields&) = delete;
    ~Fields();

    [[nodiscard]] const Json* find(std::string_view name);
    [[nodiscard]] std::optional<bool> boolean(std::string_view name);
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
    [[nodiscard]] std::optional<double> number(std::string_view name,
                                               double least = -std::numeric_limits<double>::max(),
                                               double most = std::numeric_limits<double>::max());
    [[nodiscard]] std::optional<std::string> text(std::string_view name);
    /// A string that is one of the words.
    [[nodiscard]] std::optional<std::string> word(std::string_view name, std::span<const std::string_view> words);
    [[nodiscard]] std::optional<std::string> word(std::string_view name,
                                                  std::initializer_list<std::string_view> words) {
        return word(name, std::span(words.begin(), words.size()));
    }
    /// A string, or a list of at most `most` strings.
    [[nodiscard]] std::vector<std::string> texts(std::string_view name, std::size_t most);
    /// An object.
    [[nodiscard]] const Json* object(std::string_view name);
    /// A list.
    [[nodiscard]] const Json* list(std::string_view name);
    /// Accepts fields without using them.
    void take(std::span<const std::string_view> names);
    void take(std::initializer_list<std::string_view> names) { take(std::span(names.begin(), names.size())); }

    // The same by a row of the table of fields.
    [[nodiscard]] bool is_set(const FlagField& row) { return boolean(row).value_or(false); }
    [[nodiscard]] std::optional<bool> boolean(const FlagField& row) { return boolean(row.name); }
    [[nodiscard]] std::optional<std::int64_t> integer(const WholeField& row) {
        return integer(row.name, row.least, row.most);
    }
    [[nodiscard]] std::optional<std::string> word(const WordField& row) { return word(row.name, row.words); }
    [[nodiscard]] std::vector<std::string> texts(const TextsField& row) { return texts(row.name, row.most); }

    /// The object goes to the template as it is, with fields that are not read here.
    void give_on() noexcept { is_given_on_ = true; }
    /// Of the whole body: what was not read so far, here and in objects that have ended.
    [[nodiscard]] UnreadFields unread() const;
    [[nodiscard]] std::string path(std::string_view name) const;
    [[noreturn]] void refuse(std::string_view name, const std::string& message) const;

private:
    void note_unread(UnreadFields& to) const;

    const Json& object_;
    std::string path_;
    std::set<std::string, std::less<>> known_;
    bool is_given_on_ = false;
    UnreadFields inner_;    ///< of objects inside, where this is the whole
    UnreadFields* unread_;  ///< that of the whole
};

}  // namespace tinfer::server
