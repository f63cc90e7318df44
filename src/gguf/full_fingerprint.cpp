// SPDX-License-Identifier: MIT
// Which files a model is made of, by every byte (ModelFile::compute_full_fingerprint has the definition), and where
// that is kept so that each file is read once. Everything is read from the files, never through a mapping.
#include <algorithm>
#include <chrono>
#include <string>

#include "base/byte_io.hpp"
#include "base/error.hpp"
#include "base/replace_file.hpp"
#include "base/xxhash.hpp"
#include "gguf/contents.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::gguf {

namespace {

using FullHash = std::array<std::uint8_t, 16>;

constexpr std::uint64_t kAtOnceBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kHashedPiece = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxKeptBytes = std::uint64_t{64} << 20;  ///< of a kept result: 65,535 shards
/// A file that was changed as lately as that may be changed again without another time.
constexpr std::int64_t kSettledNs = 2'000'000'000;

void add_number(Sha256& hash, std::uint64_t number) {
    std::array<std::byte, 8> little_endian;
    for (std::size_t i = 0; i < little_endian.size(); ++i) little_endian[i] = static_cast<std::byte>(number >> (8 * i));
    hash.update(little_endian);
}

/// Hashes the files of all shards; `progress` is given the bytes of each step.
template <class Progress>
FullHash hash_all(const File::Impl& impl, const Progress& progress) {
    AlignedBuffer buffer(std::size_t{1} << 20);
    Sha256 hash;
    for (const Shard& shard : impl.shards) {
        add_number(hash, shard.file_bytes);
        for (std::uint64_t begin = 0; begin < shard.file_bytes; begin += kHashedPiece) {
            Xxh64 first(0), second(1);
            const std::uint64_t end = std::min(shard.file_bytes, begin + kHashedPiece);
            for (std::uint64_t at = begin; at < end; at += buffer.size()) {
                const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - at));
                const auto piece = buffer.bytes().first(bytes);
                if (shard.file.size() > 0) shard.file.read_at(at, piece);
                else std::copy_n(shard.in_place + at, bytes, piece.begin());  // the caller's bytes in memory
                first.update(piece);
                second.update(piece);
                progress(bytes);
            }
            add_number(hash, first.value());
            add_number(hash, second.value());
        }
    }
    FullHash out{};
    const auto digest = hash.finish();
    std::ranges::copy_n(digest.begin(), static_cast<std::ptrdiff_t>(out.size()), out.begin());
    return out;
}

/// A result in a folder: a text of which every line but the last two says what it is of.
class KeptFingerprint {
public:
    KeptFingerprint(const File::Impl& impl, const std::filesystem::path& folder) : folder_(folder) {
        Sha256 paths;
        identity_ = "tinfer fingerprint 1\n";
        const auto now =
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                .count();
        for (const Shard& shard : impl.shards) {
            std::error_code error;
            const auto path = std::filesystem::absolute(shard.path, error);
            const auto about = shard.file.identity_now();
            if (folder.empty() || error || !about || shard.file.size() == 0) return;
            if (now - std::max(about->modified_ns, about->changed_ns) < kSettledNs) return;
            paths.update(cat(path.string(), '\n'));
            identity_ += cat(about->size, ' ', about->modified_ns, ' ', about->changed_ns, ' ', about->device, ' ',
                             about->inode, ' ', escaped(path.string(), 1 << 16), '\n');
        }
        const auto digest = paths.finish();
        path_ = folder / cat(to_hex(std::span(digest).first(16)), ".fingerprint");
    }

    [[nodiscard]] bool operator==(const KeptFingerprint& other) const { return identity_ == other.identity_; }

    /// Nothing where there is none of exactly these files, whole.
    [[nodiscard]] std::optional<FullHash> read() const {
        std::error_code error;
        if (path_.empty() || !std::filesystem::is_regular_file(path_, error)) return std::nullopt;
        try {
            const auto bytes = read_whole_file(path_, kMaxKeptBytes);
            const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            if (text.size() != identity_.size() + 33 + 9 || !text.starts_with(identity_)) return std::nullopt;
            FullHash hash{};
            if (!from_hex(text.substr(identity_.size(), 32), hash) || text != text_of(hash)) return std::nullopt;
            return hash;
        } catch (const Error& unreadable) {
            if (unreadable.code() == ErrorCode::out_of_memory) throw;
            return std::nullopt;
        }
    }

    void write(const FullHash& hash) const {
        if (path_.empty()) return;
        std::error_code error;
        std::filesystem::create_directories(folder_, error);
        try {
            ReplacingFile file(path_);
            const std::string text = text_of(hash);
            file.write(std::as_bytes(std::span(text)));
            file.finish(false);  // what a crash leaves of it has another checksum
        } catch (const Error& refusal) {
            if (refusal.code() != ErrorCode::io_error) throw;  // it costs time, nothing else
        }
    }

private:
    [[nodiscard]] std::string text_of(const FullHash& hash) const {
        std::string text = cat(identity_, to_hex(hash), '\n');
        const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
        std::array<std::uint8_t, 4> big_endian{};
        for (std::size_t i = 0; i < 4; ++i) big_endian[i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
        return cat(text, to_hex(big_endian), '\n');
    }
    [[nodiscard]] static bool from_hex(std::string_view digits, FullHash& out) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::size_t high = kDigits.find(digits[2 * i]), low = kDigits.find(digits[2 * i + 1]);
            if (high == kDigits.npos || low == kDigits.npos) return false;
            out[i] = static_cast<std::uint8_t>(high << 4 | low);
        }
        return true;
    }

    std::filesystem::path folder_, path_;  ///< no path: nothing is kept
    std::string identity_;
};

void remember(const File::Impl& impl, const FullHash& hash) noexcept {
    int unknown = 0;
    if (!impl.full_fingerprint_state.compare_exchange_strong(unknown, 1, std::memory_order_acquire)) return;
    impl.full_fingerprint = hash;
    impl.full_fingerprint_state.store(2, std::memory_order_release);
}

}  // namespace

std::optional<FullHash> File::known_full_fingerprint() const noexcept {
    if (impl_->full_fingerprint_state.load(std::memory_order_acquire) != 2) return std::nullopt;
    return impl_->full_fingerprint;
}

std::optional<FullHash> File::full_fingerprint(const std::filesystem::path& folder) const {
    if (const auto known = known_full_fingerprint()) return known;
    if (file_bytes() <= kAtOnceBytes) return compute_full_fingerprint({});
    if (folder.empty()) return std::nullopt;
    const auto kept = KeptFingerprint(*impl_, folder).read();
    if (kept) remember(*impl_, *kept);
    return kept;
}

FullHash File::compute_full_fingerprint(const FingerprintOptions& options) const {
    if (const auto known = known_full_fingerprint()) return *known;
    const bool keeps = file_bytes() > kAtOnceBytes && !options.folder.empty();
    const KeptFingerprint before(*impl_, keeps ? options.folder : std::filesystem::path());
    auto hash = before.read();
    if (!hash) {
        std::uint64_t done = 0;
        hash = hash_all(*impl_, [&](std::uint64_t bytes) {
            done += bytes;
            const double fraction = static_cast<double>(done) / static_cast<double>(file_bytes());
            if (options.progress && !options.progress(fraction))
                fail(ErrorCode::cancelled, cat(name(), ": its fingerprint was stopped by the progress callback"));
        });
        if (keeps && KeptFingerprint(*impl_, options.folder) == before) before.write(*hash);  // nobody changed it
    }
    remember(*impl_, *hash);
    return *hash;
}

}  // namespace tinfer::gguf
