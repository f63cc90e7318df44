// SPDX-License-Identifier: MIT
// The hash that names a blob: SHA-256 of its bytes (64 digits); or, for files that are not in the hub's large storage,
// git's SHA-1 of "blob SIZE", a zero byte and the bytes (40 digits).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <tinfer/hash.hpp>

struct evp_md_ctx_st;

namespace tinfer::hub {

class BlobHash {
public:
    /// Of a blob of that name and size.
    BlobHash(std::string_view name, std::uint64_t size);
    void update(std::string_view bytes);
    /// What the blob's name should be. Ends the object's use.
    [[nodiscard]] std::string finish();
    /// The SHA-256 whatever the name is; after finish().
    [[nodiscard]] const std::string& sha256() const noexcept { return sha256_; }

private:
    struct Free {
        void operator()(evp_md_ctx_st* context) const noexcept;
    };
    std::unique_ptr<evp_md_ctx_st, Free> git_;  // null: the name is a SHA-256
    Sha256 bytes_;
    std::string sha256_;
};

/// What the name of this file should be, by its bytes. `seen` is told how many of them were read; false ends it:
/// cancelled. Throws io_error.
[[nodiscard]] std::string hash_file(const std::filesystem::path& path, std::string_view name,
                                    const std::function<bool(std::uint64_t)>& seen);

}  // namespace tinfer::hub
