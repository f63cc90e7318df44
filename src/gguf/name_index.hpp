// SPDX-License-Identifier: MIT
// Finds a key or a tensor by name. A sorted list of (hash, index), not a hash table: names that collide on purpose cost
// a comparison more, never a quadratic search, and a name takes eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tinfer::gguf {

class NameIndex {
public:
    /// Indexes names 0 … count-1; `name_of(i)` must stay valid for as long as find() is called with it.
    template <class NameOf>
    NameIndex(std::size_t count, const NameOf& name_of);
    NameIndex() noexcept = default;

    template <class NameOf>
    [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name, const NameOf& name_of) const noexcept;

    /// The first name that repeats an earlier one, as (earlier, later), or nothing.
    template <class NameOf>
    [[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint32_t>>
    first_repeated(const NameOf& name_of) const noexcept;

private:
    struct Slot {
        std::uint32_t hash, index;
    };
    /// FNV-1a, 32 bits.
    [[nodiscard]] static std::uint32_t hash_of(std::string_view name) noexcept {
        std::uint32_t hash = 2166136261u;
        for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
        return hash;
    }
    std::vector<Slot> slots_;
};

}  // namespace tinfer::gguf

// ---- definitions ----------------------------------------------------------------------------------------------------

#include <algorithm>

namespace tinfer::gguf {

template <class NameOf>
NameIndex::NameIndex(std::size_t count, const NameOf& name_of) {
    slots_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) slots_.push_back({hash_of(name_of(i)), static_cast<std::uint32_t>(i)});
    std::sort(slots_.begin(), slots_.end(), [&](const Slot& a, const Slot& b) {
        if (a.hash != b.hash) return a.hash < b.hash;
        const int order = name_of(a.index).compare(name_of(b.index));
        return order != 0 ? order < 0 : a.index < b.index;
    });
}

template <class NameOf>
std::optional<std::uint32_t> NameIndex::find(std::string_view name, const NameOf& name_of) const noexcept {
    const std::uint32_t hash = hash_of(name);
    const auto it =
        std::lower_bound(slots_.begin(), slots_.end(), name, [&](const Slot& slot, std::string_view wanted) {
            return slot.hash != hash ? slot.hash < hash : name_of(slot.index) < wanted;
        });
    if (it == slots_.end() || name_of(it->index) != name) return std::nullopt;
    return it->index;
}

template <class NameOf>
std::optional<std::pair<std::uint32_t, std::uint32_t>> NameIndex::first_repeated(const NameOf& name_of) const noexcept {
    std::optional<std::pair<std::uint32_t, std::uint32_t>> first;
    for (std::size_t i = 1; i < slots_.size(); ++i) {
        const Slot &a = slots_[i - 1], &b = slots_[i];
        if (a.hash != b.hash || name_of(a.index) != name_of(b.index)) continue;
        if (!first || b.index < first->second) first = {a.index, b.index};
    }
    return first;
}

}  // namespace tinfer::gguf
