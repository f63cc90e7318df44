// SPDX-License-Identifier: MIT
// Files keep the projections of q, k and v in one matrix or in three: the numbers are the same, and so are the bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "support/family_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

namespace {

const char* const kParts[] = {"attn_q", "attn_k", "attn_v"};

GgufWriter::Tensor* tensor_named(GgufWriter& file, const std::string& name) {
    const auto found = std::ranges::find(file.tensors(), name, &GgufWriter::Tensor::name);
    return found == file.tensors().end() ? nullptr : &*found;
}

/// q, k and v of every layer in one tensor each, rows of q first; true where there was something to join.
bool join(GgufWriter& file, int n_layer) {
    bool joined = false;
    for (int il = 0; il < n_layer; ++il)
        for (const char* const kind : {".weight", ".bias"}) {
            const std::string blk = "blk." + std::to_string(il) + ".";
            const GgufWriter::Tensor* const q = tensor_named(file, blk + "attn_q" + kind);
            if (q == nullptr) continue;
            GgufWriter::Tensor all{blk + "attn_qkv" + kind, q->type, q->ne, {}};
            all.ne.back() = 0;
            for (const char* const part : kParts) {
                const GgufWriter::Tensor* const one = tensor_named(file, blk + part + kind);
                REQUIRE(one != nullptr);
                all.ne.back() += one->ne.back();
                all.data.insert(all.data.end(), one->data.begin(), one->data.end());
            }
            for (const char* const part : kParts) file.erase_tensor(blk + part + kind);
            file.tensor(all.name, all.type, all.ne, std::span<const std::byte>(all.data));
            joined = true;
        }
    return joined;
}

/// The other way; true where there was something to part.
bool part(GgufWriter& file, const Family& family) {
    bool parted = false;
    for (int il = 0; il < family.n_layer; ++il)
        for (const char* const kind : {".weight", ".bias"}) {
            const std::string blk = "blk." + std::to_string(il) + ".";
            const GgufWriter::Tensor* const found = tensor_named(file, blk + "attn_qkv" + kind);
            if (found == nullptr) continue;
            const GgufWriter::Tensor all = *found;
            file.erase_tensor(all.name);
            const auto i = static_cast<std::size_t>(il);
            const std::size_t row = all.data.size() / static_cast<std::size_t>(all.ne.back());
            std::size_t at = 0;
            for (const char* const name : kParts) {
                const int n_head = name == kParts[0] ? family.heads[i] : family.kv_heads[i];
                auto ne = all.ne;
                ne.back() = std::int64_t{n_head} * Family::kHeadDim;
                const std::size_t size = row * static_cast<std::size_t>(ne.back());
                file.tensor(blk + name + kind, all.type, ne, std::span<const std::byte>(all.data).subspan(at, size));
                at += size;
            }
            REQUIRE(at == all.data.size());
            parted = true;
        }
    return parted;
}

std::vector<std::uint32_t> bits_of_file(const GgufWriter& file) {
    const TempFolder folder;
    file.save(folder.path() / "model.gguf");
    const auto model = Model::load(folder.path() / "model.gguf");
    return bits_of(logits_of(model, random_tokens(20, model.info().n_vocab, 4)));
}

}  // namespace

TEST_CASE("[A8] projections: q, k and v in one matrix or in three give the same bits, in floats and in blocks") {
    std::vector<std::string> both;
    for (const Family& family : small_families())
        for (const DType type : {DType::f32, DType::q8_0}) {
            const GgufWriter file = family.writer(type);
            GgufWriter other = file;
            if (family.fused_qkv ? !part(other, family) : !join(other, family.n_layer)) continue;
            CAPTURE(family.arch);
            std::vector<std::uint32_t> bits;
            try {
                bits = bits_of_file(other);
            } catch (const Error& error) {
                // Families whose files have the one form alone say which tensor is missing, and the scales of three
                // matrices are no scale of the one.
                CHECK(error.code() == (family.scales ? ErrorCode::unused_tensor : ErrorCode::missing_tensor));
                continue;
            }
            CHECK(bits == bits_of_file(file));
            if (type == DType::q8_0) both.push_back(family.arch);
        }
    for (const char* const arch : {"llama", "mpt", "command-r", "stablelm", "olmo", "starcoder"})
        CHECK_MESSAGE(std::ranges::find(both, arch) != both.end(), arch);
}

}  // namespace tinfer::test
