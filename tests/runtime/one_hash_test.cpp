// SPDX-License-Identifier: MIT
// The promise on bits from machine to machine: the hash below is part of the library, like the format of a file. It was
// computed once, and every kernel table of every processor must arrive at it.
#include <doctest/doctest.h>

#include <string>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

namespace {

using test::TinyModel;

/// One model for every kind of product: blocks with and without minima, of 32 and 256 values, with scales per 16 and 32
/// and none, and floats; every family of architectures.
const std::vector<TinyModel>& models() {
    static const std::vector<TinyModel> all{
        TinyModel::wide("llama", DType::q4_k),      TinyModel::wide("qwen3", DType::q6_k),
        TinyModel::wide("qwen2", DType::q8_0),      TinyModel::wide("llama", DType::q4_1),
        TinyModel::wide("qwen3moe", DType::nvfp4),  TinyModel::wide("llama-moe", DType::tq2_0),
        TinyModel::wide("qwen2moe", DType::iq4_xs), TinyModel::of("llama", DType::f16),
        TinyModel::of("qwen3", DType::bf16),        TinyModel::of("qwen2"),
    };
    return all;
}

std::string hash_of_files() {
    Sha256 hash;
    for (const TinyModel& model : models()) {
        const auto bytes = model.writer().bytes();
        hash.update(std::span<const std::byte>(bytes));
    }
    return to_hex(hash.finish());
}

/// Logits of 20 tokens of each model; of the small one without a block format 300: beyond one chunk of attention.
std::string hash_of_logits(Isa isa, int n_threads) {
    Sha256 hash;
    for (const TinyModel& tiny : models()) {
        test::TempFolder folder;
        const auto model = Model::load(tiny.save(folder.path()));
        const auto tokens = test::random_tokens(tiny.n_embd < 256 ? 300 : 20, tiny.n_vocab, 77);
        const auto logits = test::logits_of(model, tokens, {.n_threads = n_threads, .isa = isa});
        hash.update(std::as_bytes(std::span(logits)));
    }
    return to_hex(hash.finish());
}

}  // namespace

TEST_CASE("[N4][K3] determinism: one committed hash of logits, on every kernel table of every machine") {
    REQUIRE(hash_of_files() == "52183f019cd9770773444c92dbb3ff781bf56ed7117bd8fb17f4a244108f6d1c");
    for (const Isa isa : available_isas()) {
        CAPTURE(to_string(isa));
        CHECK(hash_of_logits(isa, isa == Isa::reference ? 1 : 2) ==
              "223c249e560ee6c8e3cc7394d5baf47b3265e970df26c38a63eb588d508d80e7");
    }
}

}  // namespace tinfer
