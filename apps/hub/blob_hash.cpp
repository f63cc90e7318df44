// SPDX-License-Identifier: MIT
#include "blob_hash.hpp"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <new>
#include <span>
#include <tinfer/base.hpp>
#include <vector>

namespace tinfer::hub {

void BlobHash::Free::operator()(evp_md_ctx_st* context) const noexcept { EVP_MD_CTX_free(context); }

BlobHash::BlobHash(std::string_view name, std::uint64_t size) {
    if (name.size() != 40) return;
    git_.reset(EVP_MD_CTX_new());
    if (!git_ || EVP_DigestInit_ex(git_.get(), EVP_sha1(), nullptr) != 1) throw std::bad_alloc();
    const std::string head = "blob " + std::to_string(size);
    EVP_DigestUpdate(git_.get(), head.c_str(), head.size() + 1);  // with its zero byte
}

void BlobHash::update(std::string_view bytes) {
    bytes_.update(bytes);
    if (git_) EVP_DigestUpdate(git_.get(), bytes.data(), bytes.size());
}

std::string BlobHash::finish() {
    sha256_ = to_hex(bytes_.finish());
    if (!git_) return sha256_;
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(git_.get(), digest.data(), &size);
    return to_hex(std::span<const std::uint8_t>(digest.data(), size));
}

std::string hash_file(const std::filesystem::path& path, std::string_view name,
                      const std::function<bool(std::uint64_t)>& seen) {
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    std::ifstream in(path, std::ios::binary);
    if (error || !in) throw Error(ErrorCode::io_error, path.string() + ": cannot be read");
    BlobHash hash(name, size);
    std::vector<char> piece(1u << 20);
    std::uint64_t read = 0;
    while (in) {
        in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        const auto n = static_cast<std::size_t>(in.gcount());
        hash.update({piece.data(), n});
        read += n;
        if (seen && !seen(read)) throw Error(ErrorCode::cancelled, "interrupted");
    }
    if (in.bad() || read != size) throw Error(ErrorCode::io_error, path.string() + ": cannot be read to its end");
    return hash.finish();
}

}  // namespace tinfer::hub
