// SPDX-License-Identifier: MIT
// Little-endian: magic, version, kind, bytes of data, digest of the page before, 64 tokens, full fingerprint, data,
// CRC-32C of all that.
#include "runtime/state/block.hpp"

#include <algorithm>

#include "base/byte_io.hpp"
#include "base/error.hpp"

namespace tinfer::runtime::state {

namespace {

constexpr std::string_view kBlockMagic = "TNFBLOCK";
constexpr std::uint32_t kBlockVersion = 2;  // 1 had no full fingerprint
constexpr std::uint64_t kBlockHead = 24 + 32 + 4 * kPageTokens + sizeof(FullFingerprint);

}  // namespace

Digest BlockKey::digest() const noexcept {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(parent)));
    hash.update(std::as_bytes(std::span(tokens)));
    return hash.finish();
}

std::optional<PageLink> PageChain::next() noexcept {
    if (tokens_.size() < kPageTokens) return std::nullopt;
    PageLink link;
    link.key.parent = parent_;
    std::ranges::copy(tokens_.first(kPageTokens), link.key.tokens.begin());
    link.digest = parent_ = link.key.digest();
    tokens_ = tokens_.subspan(kPageTokens);
    return link;
}

std::optional<FullFingerprint> read_full_fingerprint(ByteReader& in) {
    FullFingerprint full{};
    in.numbers(std::span(full));
    return full == FullFingerprint{} ? std::nullopt : std::optional(full);
}

std::vector<std::byte> write_block(BlockKind kind, const BlockKey& key, const std::optional<FullFingerprint>& model,
                                   std::span<const std::byte> data) {
    std::vector<std::byte> block;
    block.reserve(static_cast<std::size_t>(kBlockHead) + data.size() + 4);
    ByteWriter out(block, "block");
    out.text(kBlockMagic);
    out.number(kBlockVersion);
    out.number(static_cast<std::uint32_t>(kind));
    out.number(std::uint64_t{data.size()});
    out.numbers(std::span(key.parent));
    out.numbers(std::span(key.tokens));
    const FullFingerprint full = known_or_zeros(model);
    out.numbers(std::span(full));
    out.bytes(data);
    out.number(crc32c(block));
    return block;
}

std::span<const std::byte> read_block(std::span<const std::byte> block, BlockKind kind, const BlockKey& key,
                                      const std::optional<FullFingerprint>& model, std::string_view name) {
    ByteReader in(block, name, ErrorCode::damaged);
    if (block.size() < kBlockMagic.size() || in.text(kBlockMagic.size()) != kBlockMagic)
        fail(ErrorCode::not_state_file, cat(name, ": not a block of a prefix store"));
    if (const auto version = in.number<std::uint32_t>(); version != kBlockVersion)
        fail(ErrorCode::unsupported_version,
             cat(name, ": version ", version, " of blocks, this library reads ", kBlockVersion));
    const auto found_kind = in.number<std::uint32_t>();
    const auto n = in.number<std::uint64_t>();
    BlockKey found;
    in.numbers(std::span(found.parent));
    in.numbers(std::span(found.tokens));
    const auto full = read_full_fingerprint(in);
    if (in.remaining() < 4 || in.remaining() - 4 != n)
        in.refuse(16, cat("block truncated or damaged: ", in.remaining(), " bytes behind the head, not ", n, " and 4"));
    const auto data = in.bytes(n);
    if (in.number<std::uint32_t>() != crc32c(block.first(block.size() - 4)))
        in.refuse(0, "block truncated or damaged: checksum");
    if (found_kind != static_cast<std::uint32_t>(kind) || found != key)
        fail(ErrorCode::model_mismatch, cat(name, ": block of another page"));
    if (differs(full, model)) fail(ErrorCode::model_mismatch, cat(name, ": block of another model"));
    return data;
}

}  // namespace tinfer::runtime::state
