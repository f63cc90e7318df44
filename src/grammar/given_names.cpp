// SPDX-License-Identifier: MIT
#include "grammar/given_names.hpp"

#include <algorithm>
#include <functional>

#include "base/json.hpp"

namespace tinfer::grammar {

bool GivenNames::end_name() {
    std::string text = name_;
    if (text.find('\\') != text.npos) {
        const auto decoded = JsonDocument::parse("\"" + name_ + "\"", "name");
        text = std::string(decoded.root().string());
    }
    for (const Name* name = level_->names.get(); name != nullptr; name = name->before.get())
        if (name->text == text) return false;
    auto names = std::make_shared<Name>(std::move(text), level_->names);
    level_ = std::make_shared<Level>(true, std::move(names), level_->outer);
    has_names_ = true;
    return true;
}

bool GivenNames::read(std::string_view bytes) {
    for (const char c : bytes) {
        if (in_string_) {
            const bool ends = c == '"' && !is_escaped_;
            is_escaped_ = c == '\\' && !is_escaped_;
            if (!ends) {
                if (is_name_) name_ += c;
                continue;
            }
            in_string_ = false;
            if (is_name_ && !end_name()) return false;
            name_ = {};  // a long one would be copied with every token
            continue;
        }
        switch (c) {
            case '"':
                in_string_ = true;
                is_name_ = expects_name_;
                name_.clear();
                break;
            case '{':
            case '[':
                level_ = std::make_shared<Level>(c == '{', nullptr, level_);
                expects_name_ = c == '{';
                break;
            case '}':
            case ']':
                if (level_ != nullptr) level_ = level_->outer;
                expects_name_ = false;
                break;
            case ',': expects_name_ = level_ != nullptr && level_->is_object; break;
            case ':': expects_name_ = false; break;
            default: break;
        }
    }
    return true;
}

bool GivenNames::allows(std::string_view piece) const {
    if (piece.find('"') == piece.npos) return true;
    GivenNames copy = *this;
    return copy.read(piece);
}

std::size_t GivenNames::fewest_quotes() const noexcept {
    if (!has_names_) return 4;  // two names in one piece
    if (!in_string_ || !is_name_) return 2;
    // Where no name begins like this one, only another one behind it can be there twice.
    const bool is_plain = name_.find('\\') == name_.npos;
    for (const Name* name = level_->names.get(); name != nullptr; name = name->before.get())
        if (!is_plain || name->text.starts_with(name_)) return 1;
    return 3;
}

QuoteTokens::QuoteTokens(const TokenTrie& trie) {
    for (std::uint32_t token = 0; token < trie.size(); ++token)
        if (const auto n = std::ranges::count(trie.piece(token), '"'); n > 0)
            rows.push_back({token, static_cast<std::uint32_t>(n)});
    std::ranges::stable_sort(rows, std::ranges::greater{}, &Row::n_quotes);
}

void QuoteTokens::forbid(const GivenNames& names, const TokenTrie& trie, std::span<std::uint64_t> bits) const {
    const std::size_t fewest = names.fewest_quotes();
    for (const Row& row : rows) {
        if (row.n_quotes < fewest) break;
        std::uint64_t& word = bits[row.token / 64];
        const std::uint64_t bit = 1ull << (row.token % 64);
        if ((word & bit) != 0 && !names.allows(trie.piece(row.token))) word &= ~bit;
    }
}

}  // namespace tinfer::grammar
