// SPDX-License-Identifier: MIT
// Which model a file holds, in 16 bytes. Of every shard: the bytes of metadata and tensor directory. Then the length L
// of all data sections together as eight bytes, little-endian, and 64 pieces of 4 KiB of them, piece i at byte i·(L −
// 4096)/63; all of the data where that is no more. Everything is read from the file, never through a mapping, so that a
// file that has become shorter is an error.
#include <algorithm>

#include "base/error.hpp"
#include "gguf/contents.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::gguf {

namespace {

constexpr std::uint64_t kPieces = 64, kPieceBytes = 4096;

std::uint64_t data_bytes(const Shard& shard) noexcept {
    return shard.file_bytes - std::min(shard.data_start, shard.file_bytes);
}

void hash_bytes(Sha256& hash, const Shard& shard, std::uint64_t begin, std::uint64_t end, std::span<std::byte> buffer) {
    for (std::uint64_t at = begin; at < end;) {
        const auto piece = buffer.first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - at)));
        if (shard.file.size() > 0) shard.file.read_at(at, piece);
        else
            std::ranges::copy_n(shard.in_place + at, static_cast<std::ptrdiff_t>(piece.size()),
                                piece.begin());  // bytes in memory
        hash.update(piece);
        at += piece.size();
    }
}

/// Bytes [begin, end) of the data sections laid end to end.
void hash_data(Sha256& hash, const std::deque<Shard>& shards, std::uint64_t begin, std::uint64_t end,
               std::span<std::byte> buffer) {
    std::uint64_t before = 0;
    for (const Shard& shard : shards) {
        const std::uint64_t bytes = data_bytes(shard), from = std::max(begin, before),
                            to = std::min(end, before + bytes);
        if (from < to)
            hash_bytes(hash, shard, shard.data_start + from - before, shard.data_start + to - before, buffer);
        before += bytes;
    }
}

}  // namespace

std::array<std::uint8_t, 16> File::fingerprint() const {
    AlignedBuffer buffer(kPieces * kPieceBytes);
    Sha256 hash;
    std::uint64_t length = 0;
    for (const Shard& shard : impl_->shards) {
        const std::uint64_t metadata = shard.version == 1 ? 16 : 24;  // after magic, version and the two counts
        hash_bytes(hash, shard, metadata, shard.header_end, buffer.bytes());
        length += data_bytes(shard);
    }
    std::array<std::byte, 8> little_endian;
    for (std::size_t i = 0; i < little_endian.size(); ++i) little_endian[i] = static_cast<std::byte>(length >> (8 * i));
    hash.update(little_endian);
    if (length <= kPieces * kPieceBytes) {
        hash_data(hash, impl_->shards, 0, length, buffer.bytes());
    } else {
        for (std::uint64_t i = 0; i < kPieces; ++i) {
            const std::uint64_t at =
                (length - kPieceBytes) / (kPieces - 1) * i + (length - kPieceBytes) % (kPieces - 1) * i / (kPieces - 1);
            hash_data(hash, impl_->shards, at, at + kPieceBytes, buffer.bytes());
        }
    }
    const auto digest = hash.finish();
    std::array<std::uint8_t, 16> first{};
    std::ranges::copy_n(digest.begin(), static_cast<std::ptrdiff_t>(first.size()), first.begin());
    return first;
}

}  // namespace tinfer::gguf
