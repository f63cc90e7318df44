// SPDX-License-Identifier: MIT
// Any bytes as a model: loading it whole and decoding a few tokens either works or throws tinfer::Error. Weights may be
// anything, so logits may be; an index or a size that is anything would be a finding.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "model/model.hpp"
#include "runtime/context.hpp"
#include "tokenizer/vocab.hpp"

namespace {

using namespace tinfer;

void run(const model::BoundModel& bound) {
    Context::Impl context(detail::Access::make<Model>(nullptr), bound,
                          {.n_ctx = 64, .n_ubatch = 2, .n_threads = 1, .embeddings = true});
    const std::int32_t last = bound.hp.n_vocab - 1;
    const std::vector tokens{Token{0}, Token{std::min(1, last)}, Token{last}};
    if (context.encoder) (void)context.encode(std::span<const Token>(tokens).first(2));
    (void)context.decode(std::span<const Token>(tokens));
    Batch rows;
    rows.add_embedding(std::vector<float>(static_cast<std::size_t>(bound.hp.n_embd), 1.0f));
    (void)context.decode(rows);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const auto file = gguf::File::open_memory(std::as_bytes(std::span(data, size)), "fuzz.gguf", {});
        const auto bound = model::bind_model(file, {});
        const auto vocab = detail::Access::make<Vocab>(tokenizer::load_vocab(*file, {}));
        file->load_data({});
        run(bound);
    } catch (const Error&) {
    }
    return 0;
}
