// SPDX-License-Identifier: MIT
#include "tokenizer/text_index.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tinfer::tokenizer {

namespace {

// Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4); the xor moves high bits into the low ones.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value *= 0x9E3779B97F4A7C15u;
    return value ^ value >> 32;
}

// Number of slots for n entries at a load factor of at most 3/4.
std::size_t slot_count(std::size_t n) noexcept { return std::bit_ceil(std::max<std::size_t>(n + n / 3 + 1, 8)); }

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) noexcept {
    std::uint64_t hash = bytes.size();
    while (bytes.size() >= 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data(), 8);
        hash = mix(hash ^ word);
        bytes.remove_prefix(8);
    }
    std::uint64_t tail = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) tail |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
    return mix(mix(hash ^ tail));
}

void TextIndex::reserve(std::size_t n_tokens, std::size_t n_bytes) {
    begins_.reserve(n_tokens + 1);
    arena_.reserve(n_bytes);
}

void TextIndex::add(std::string_view text) {
    arena_ += text;
    begins_.push_back(static_cast<std::uint32_t>(arena_.size()));
    longest_ = std::max(longest_, text.size());
}

void TextIndex::build() {
    slots_.assign(slot_count(size()), {});
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t id = 0; id < size(); ++id) {
        const std::string_view text = (*this)[id];
        const auto hash = static_cast<std::uint32_t>(hash_bytes(text));
        std::size_t i = hash & mask;
        while (slots_[i].id != kNoToken &&
               (slots_[i].hash != hash || (*this)[static_cast<std::size_t>(slots_[i].id)] != text))
            i = (i + 1) & mask;
        slots_[i] = {hash, static_cast<std::int32_t>(id)};
    }
}

std::int32_t TextIndex::find(std::string_view text) const noexcept {
    if (slots_.empty() || text.size() > longest_) return kNoToken;
    const std::size_t mask = slots_.size() - 1;
    const auto hash = static_cast<std::uint32_t>(hash_bytes(text));
    for (std::size_t i = hash & mask; slots_[i].id != kNoToken; i = (i + 1) & mask)
        if (slots_[i].hash == hash && (*this)[static_cast<std::size_t>(slots_[i].id)] == text) return slots_[i].id;
    return kNoToken;
}

void MergeTable::reserve(std::size_t n_merges) {
    slots_.assign(slot_count(n_merges), {});
    shift_ = 64 - std::countr_zero(slots_.size());
}

void MergeTable::add(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[slot_of(left, right)];
    if (slot.left == kNoToken) slot = {left, right, merge};
}

}  // namespace tinfer::tokenizer
