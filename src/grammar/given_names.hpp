// SPDX-License-Identifier: MIT
// The names that the open objects of a JSON text have so far, so that none is given twice. An automaton cannot remember
// them; this reads the text beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_text.hpp"
#include "grammar/token_trie.hpp"

namespace tinfer::grammar {

/// A value. What is read is only added to, so that a place read before can be gone back to; what no place needs any
/// more is dropped once the room is full. Reading allocates only where what the places need has grown beyond the room.
class GivenNames {
public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    /// Where in a text the reading stands.
    struct Place {
        std::uint32_t level = kNone;        ///< innermost open bracket
        std::uint32_t begin = 0, size = 0;  ///< of the name that is read
        CharPlace in_char = 0;              ///< of a string
        bool in_string = false, is_name = false, expects_name = false, has_names = false;
    };

    explicit GivenNames(bool has_room = false) { reserve(has_room ? kFirstRoom : 0); }
    GivenNames(const GivenNames& other);  ///< with as much room
    GivenNames& operator=(const GivenNames& other) = default;
    GivenNames(GivenNames&&) = default;
    GivenNames& operator=(GivenNames&&) = default;
    ~GivenNames() = default;

    /// Reads bytes of a text that is JSON so far. False where they end a name that its object has already; nothing is
    /// read then.
    [[nodiscard]] bool read(std::string_view bytes);
    /// Whether a piece can be read.
    [[nodiscard]] bool allows(std::string_view piece);
    /// Whether a piece with so many quotes may be refused at all: what is not needs no look.
    [[nodiscard]] std::size_t fewest_quotes() const noexcept;

    [[nodiscard]] const Place& place() const noexcept { return at_; }
    void go_back(const Place& place) noexcept { at_ = place; }
    void clear() noexcept;
    /// Where the room is full: drops what neither the place nor those of the ring, `count` from `first` on, need.
    void make_room(std::span<Place> ring, std::size_t first, std::size_t count);

private:
    static constexpr std::size_t kFirstRoom = 512;
    static constexpr std::size_t kBytesOfName = 16;  // of the room, for each name
    struct Name {
        std::uint32_t begin, size, before;  // of the text; the name given before in this object
    };
    struct Level {
        std::uint32_t names, outer;  // the last name given, the bracket around it
        bool is_object;
    };
    struct Range {
        std::uint32_t begin, end, moved;  // of the text; where its begin is moved to
    };
    [[nodiscard]] bool go_on(char c);
    [[nodiscard]] bool end_name();
    void add_to_name(std::uint32_t code_point);
    [[nodiscard]] std::string_view text_of(std::uint32_t begin, std::uint32_t size) const noexcept {
        return std::string_view(text_).substr(begin, size);
    }
    /// The name that is read, so far.
    [[nodiscard]] std::string_view begun() const noexcept { return text_of(at_.size == 0 ? 0 : at_.begin, at_.size); }
    void reserve(std::size_t n);
    void drop_text(std::span<Place* const> places);

    std::vector<Name> names_;    // each behind those it refers to
    std::vector<Level> levels_;  // a level is written anew for each of its names
    std::string text_;           // of the names, with escapes undone
    Place at_;
    std::size_t room_ = 0;  // names and levels at which what is not needed is dropped
    // Of make_room():
    std::vector<Place*> places_;
    std::vector<std::uint32_t> moved_names_, moved_levels_;
    std::vector<Range> ranges_;
};

/// Tokens whose pieces have quotes, with how many, most first.
struct QuoteTokens {
    struct Row {
        std::uint32_t token, n_quotes;
    };
    std::vector<Row> rows;
    explicit QuoteTokens(const TokenTrie& trie);
    /// Takes away the bits of tokens that would give a name twice.
    void forbid(GivenNames& names, const TokenTrie& trie, std::span<std::uint64_t> bits) const;
};

}  // namespace tinfer::grammar
