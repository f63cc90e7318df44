// SPDX-License-Identifier: MIT
// What tests of models that are larger than memory share.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/access.hpp"
#include "base/pager.hpp"
#include "gguf/model_file.hpp"
#include "runtime/context_support.hpp"
#include "tinfer/placement.hpp"

namespace tinfer::test {

/// The least limit with which a file can be loaded, as the message says; 0: there is none.
inline std::uint64_t least_limit(const std::filesystem::path& path) {
    try {
        static_cast<void>(plan(path, {.memory_limit = 1}, {.n_ctx = 64}));
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::limit_exceeded);
        const std::string text = error.what();
        CHECK(text.find("memory limit") != std::string::npos);
        const std::string before = "at least ";
        const auto at = text.find(before);
        return at == text.npos ? 0 : std::stoull(text.substr(at + before.size()));
    }
    return 0;
}

inline Pager& pager_of(const Model& model) { return *detail::impl_of(model.file()).file->pager(); }

/// Small experts, many of them.
inline TinyModel mixture(const std::string& arch, DType type = DType::f32) {
    TinyModel tiny = TinyModel::of(arch, type);
    tiny.n_layer = 3;
    tiny.n_expert = 12;
    tiny.n_expert_used = 2;
    return tiny;
}

/// A file that loses all behind its first page, and has it again.
class CutFile {
public:
    explicit CutFile(std::filesystem::path path) : path_(std::move(path)) {
        std::ifstream in(path_, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(in), {});
    }
    void cut() const { std::filesystem::resize_file(path_, 4096); }
    void restore() const {
        std::ofstream(path_, std::ios::binary | std::ios::in)
            .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    }

private:
    std::filesystem::path path_;
    std::vector<char> bytes_;
};

inline std::vector<std::uint32_t> all_bits(const Model& model, std::span<const Token> tokens, ContextOptions options) {
    return bits_of(logits_of(model, tokens, std::move(options)));
}

/// The last row of each token, decoded one by one.
inline std::vector<std::uint32_t> one_by_one(const Model& model, std::span<const Token> tokens,
                                             ContextOptions options) {
    Context context(model, std::move(options));
    std::vector<std::uint32_t> all;
    for (const Token token : tokens) {
        REQUIRE(context.decode(std::span(&token, 1)) == DecodeStatus::ok);
        const auto row = bits_of(context.logits());
        all.insert(all.end(), row.begin(), row.end());
    }
    return all;
}

}  // namespace tinfer::test
