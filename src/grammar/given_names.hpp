// SPDX-License-Identifier: MIT
// The names that the open objects of a JSON text have so far, so that none is given twice. An automaton cannot remember
// them; this reads the text beside it. A value: copies share what they can.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/token_trie.hpp"

namespace tinfer::grammar {

class GivenNames {
public:
    /// Reads bytes of a text that is JSON so far. False where they end a name that its object has already; what was
    /// read is undefined then.
    [[nodiscard]] bool read(std::string_view bytes);
    /// Whether a piece can be read.
    [[nodiscard]] bool allows(std::string_view piece) const;
    /// Whether a piece with so many quotes may be refused at all: what is not needs no look.
    [[nodiscard]] std::size_t fewest_quotes() const noexcept;

private:
    struct Name {
        std::string text;
        std::shared_ptr<Name> before;
        Name(std::string given, std::shared_ptr<Name> others) : text(std::move(given)), before(std::move(others)) {}
        Name(const Name&) = delete;
        Name& operator=(const Name&) = delete;
        ~Name() { unlink(before, &Name::before); }
    };
    struct Level {
        bool is_object;
        std::shared_ptr<Name> names;
        std::shared_ptr<Level> outer;
        Level(bool has_members, std::shared_ptr<Name> given, std::shared_ptr<Level> around)
            : is_object(has_members), names(std::move(given)), outer(std::move(around)) {}
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { unlink(outer, &Level::outer); }
    };
    /// Frees a list that nobody else has one by one, however long it is.
    template <class T>
    static void unlink(std::shared_ptr<T>& first, std::shared_ptr<T> T::*next) noexcept {
        std::shared_ptr<T> at = std::move(first);
        while (at != nullptr && at.use_count() == 1) {
            std::shared_ptr<T> after = std::move((*at).*next);
            at = std::move(after);
        }
    }
    [[nodiscard]] bool end_name();

    std::shared_ptr<Level> level_;
    std::string name_;  // as it is written so far
    bool in_string_ = false, is_escaped_ = false, is_name_ = false, expects_name_ = false, has_names_ = false;
};

/// Tokens whose pieces have quotes, with how many, most first.
struct QuoteTokens {
    struct Row {
        std::uint32_t token, n_quotes;
    };
    std::vector<Row> rows;
    explicit QuoteTokens(const TokenTrie& trie);
    /// Takes away the bits of tokens that would give a name twice.
    void forbid(const GivenNames& names, const TokenTrie& trie, std::span<std::uint64_t> bits) const;
};

}  // namespace tinfer::grammar
