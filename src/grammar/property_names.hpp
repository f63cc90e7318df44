// SPDX-License-Identifier: MIT
// The member names that the open objects of a JSON text have so far, so that none is given twice. An automaton cannot
// remember them, so this scans the text in parallel. The JSON may be a part of a text; the automaton knows which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_text.hpp"
#include "grammar/machine.hpp"
#include "grammar/token_trie.hpp"

namespace tinfer::grammar {

/// Copyable. Reading only appends, so that go_back() to any earlier place is possible; make_room() drops what no place
/// needs any more. Reading allocates only if the data still needed outgrows the reserved room.
class PropertyNames {
public:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    /// A position in the text that was read.
    struct Place {
        std::uint32_t level = kNone;        ///< innermost open bracket
        std::uint32_t begin = 0, size = 0;  ///< of the name being read
        CharPlace in_char = 0;              ///< inside a string
        bool in_string = false, is_name = false, expects_name = false, has_names = false;
        bool in_document = false;  ///< inside a JSON document
    };

    explicit PropertyNames(bool has_room = false) { reserve(has_room ? kFirstRoom : 0); }
    PropertyNames(const PropertyNames& other);  ///< reserves as much room
    PropertyNames& operator=(const PropertyNames& other) = default;
    PropertyNames(PropertyNames&&) = default;
    PropertyNames& operator=(PropertyNames&&) = default;
    ~PropertyNames() = default;

    /// Reads the next bytes of a JSON text. Returns false and reads nothing if they complete a name that its object
    /// already has.
    [[nodiscard]] bool read(std::string_view bytes);
    /// Reads the bytes of a text in which documents stand, along the states of a machine, from the one before the first
    /// byte on. False, and nothing read, as read().
    [[nodiscard]] bool read(Machine& machine, Machine::State before, std::string_view bytes);
    /// Whether that would succeed, given that the machine allows the piece.
    [[nodiscard]] bool allows(Machine& machine, Machine::State before, std::string_view piece);
    /// Pieces with fewer quotes than this cannot complete a repeated name and need no check.
    [[nodiscard]] std::size_t fewest_quotes() const noexcept;

    [[nodiscard]] const Place& place() const noexcept { return at_; }
    void go_back(const Place& place) noexcept { at_ = place; }
    void clear() noexcept;
    /// If the room is full, drops what neither the current place nor the `count` places of the ring from `first` on
    /// need.
    void make_room(std::span<Place> ring, std::size_t first, std::size_t count);

private:
    static constexpr std::size_t kFirstRoom = 512;
    static constexpr std::size_t kBytesOfName = 16;  // reserved per name
    struct Name {
        std::uint32_t begin, size, before;  // in text_; `before`: the previous name of this object
    };
    struct Level {
        std::uint32_t names, outer;  // the last name given, the enclosing bracket
        bool is_object;
    };
    struct Range {
        std::uint32_t begin, end, moved;  // in text_; `moved`: new begin
    };
    [[nodiscard]] bool go_on(char c);
    template <class Read>
    [[nodiscard]] bool would_read(Read&& read_it);
    [[nodiscard]] bool end_name();
    void add_to_name(std::uint32_t code_point);
    [[nodiscard]] std::string_view text_of(std::uint32_t begin, std::uint32_t size) const noexcept {
        return std::string_view(text_).substr(begin, size);
    }
    /// The part of the current name that was read.
    [[nodiscard]] std::string_view begun() const noexcept { return text_of(at_.size == 0 ? 0 : at_.begin, at_.size); }
    void reserve(std::size_t n);
    void drop_text(std::span<Place* const> places);

    std::vector<Name> names_;    // each after those it refers to
    std::vector<Level> levels_;  // append-only: each new name adds a new entry for its level
    std::string text_;           // the names, unescaped
    Place at_;
    std::size_t room_ = 0;  // number of names or levels at which make_room() compacts
    // Scratch of make_room():
    std::vector<Place*> places_;
    std::vector<std::uint32_t> moved_names_, moved_levels_;
    std::vector<Range> ranges_;
};

/// Tokens whose pieces contain quotes, by descending number of quotes.
struct QuoteTokens {
    struct Row {
        std::uint32_t token, n_quotes;
    };
    std::vector<Row> rows;
    explicit QuoteTokens(const TokenTrie& trie);
    /// Clears the bits of tokens that would repeat a name in this state.
    void forbid(PropertyNames& names, Machine& machine, Machine::State state, const TokenTrie& trie,
                std::span<std::uint64_t> bits) const;
};

}  // namespace tinfer::grammar
