// SPDX-License-Identifier: MIT
// A page of a prefix store as bytes: who it belongs to, its tokens, and the rows of all caches for them, or the
// checkpoint at its end. docs/states.md describes them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/byte_io.hpp"
#include "tinfer/base.hpp"
#include "tinfer/hash.hpp"

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

/// A page of a text, with its digest.
struct PageLink {
    BlockKey key;
    Digest digest{};
};

/// The whole pages of a text, one after the other: each is known by its tokens and by all that came before.
class PageChain {
public:
    /// `root`: what the first page belongs to.
    PageChain(const Digest& root, std::span<const Token> tokens) noexcept : parent_(root), tokens_(tokens) {}
    /// The next page; nullopt behind the last.
    [[nodiscard]] std::optional<PageLink> next() noexcept;

private:
    Digest parent_;
    std::span<const Token> tokens_;
};

enum class BlockKind : std::uint32_t { rows, checkpoint };
inline constexpr std::string_view kStore = "prefix store";  ///< begins its messages

/// A model by every byte of its files (ModelFile::full_fingerprint). In states and blocks zeros stand for one that was
/// not known.
using FullFingerprint = std::array<std::uint8_t, 16>;
[[nodiscard]] inline FullFingerprint known_or_zeros(const std::optional<FullFingerprint>& full) noexcept {
    return full.value_or(FullFingerprint{});
}
[[nodiscard]] std::optional<FullFingerprint> read_full_fingerprint(ByteReader& in);
/// True where both are known and are not the same: the one rule for what is refused.
[[nodiscard]] inline bool differs(const std::optional<FullFingerprint>& there,
                                  const std::optional<FullFingerprint>& here) {
    return there && here && *there != *here;
}

[[nodiscard]] std::vector<std::byte> write_block(BlockKind kind, const BlockKey& key,
                                                 const std::optional<FullFingerprint>& model,
                                                 std::span<const std::byte> data);
/// The data of a block. Throws not_state_file, unsupported_version, damaged, and model_mismatch for the block of
/// another page, or of a model that is known to differ: messages begin with `name`.
[[nodiscard]] std::span<const std::byte> read_block(std::span<const std::byte> block, BlockKind kind,
                                                    const BlockKey& key, const std::optional<FullFingerprint>& model,
                                                    std::string_view name);

}  // namespace tinfer::runtime::state
