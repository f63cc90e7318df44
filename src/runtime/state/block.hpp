// SPDX-License-Identifier: MIT
// A page of a prefix store as bytes: who it belongs to, its tokens, and the rows of all caches for them, or the
// checkpoint at its end. docs/states.md describes them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tinfer/hash.hpp"
#include "tinfer/types.hpp"

namespace tinfer::runtime::state {

inline constexpr std::size_t kPageTokens = 64;
using Digest = Sha256::Digest;

/// Which page: the digest of the page before it (of the model and the options that change results, for the first page)
/// and its tokens.
struct BlockKey {
    Digest parent{};
    std::array<Token, kPageTokens> tokens{};

    [[nodiscard]] Digest digest() const noexcept;
    bool operator==(const BlockKey&) const = default;
};

enum class BlockKind : std::uint32_t { rows, checkpoint };

[[nodiscard]] std::vector<std::byte> write_block(BlockKind kind, const BlockKey& key, std::span<const std::byte> data);
/// The data of a block, n_bytes of it. Throws not_state_file, unsupported_version, damaged, and model_mismatch for the
/// block of another page: messages begin with `name`.
[[nodiscard]] std::span<const std::byte> read_block(std::span<const std::byte> block, BlockKind kind,
                                                    const BlockKey& key, std::string_view name);

}  // namespace tinfer::runtime::state
