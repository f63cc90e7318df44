// SPDX-License-Identifier: MIT
// Jina BERT v2 in every variant of the format, against a straight-line evaluation (support/jina_model.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/differences.hpp"
#include "support/jina_model.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/tinfer.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

using Row = SmallJina::Row;

}  // namespace

TEST_CASE(
    "[E2][E3][B11] model: jina-bert-v2 in every variant agrees with a straight-line evaluation, both pooled and not") {
    const std::vector<int> ids{5, 9, 9, 0, 59, 31, 7, 22, 40, 3, 18, 6, 2};
    std::vector<Token> tokens;
    for (const int id : ids) tokens.push_back(Token{id});
    for (int variant = 0; variant < 8; ++variant) {
        CAPTURE(variant);
        const SmallJina jina((variant & 1) != 0, (variant & 2) != 0, (variant & 4) != 0, variant == 7 ? 3 : 1);
        const TempFolder folder;
        jina.file.save(folder.path() / "jina.gguf");
        const Model model = Model::load(folder.path() / "jina.gguf");
        CHECK(model.info().n_class == jina.n_class);
        CHECK_FALSE(model.info().causal);
        const std::vector<Row> exact = jina.evaluate(ids);
        Row mean(SmallJina::kEmbd, 0.0);
        for (const Row& row : exact)
            for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += row[i] / static_cast<double>(exact.size());

        const ContextOptions base{.n_ctx = 64, .type_k = KvType::f32, .type_v = KvType::f32};
        const auto with = [&](Pooling pooling) {
            ContextOptions options = base;
            options.pooling = pooling;
            return options;
        };
        Context rows(model, with(Pooling::none));
        REQUIRE(rows.decode(tokens) == DecodeStatus::ok);
        REQUIRE(rows.n_outputs() == static_cast<int>(ids.size()));
        for (std::size_t t = 0; t < ids.size(); ++t)
            CHECK(largest_difference(rows.embedding(static_cast<int>(t)), exact[t]) <= 1e-4);
        const auto pooled = [&](Pooling pooling) {
            Context context(model, with(pooling));
            REQUIRE(context.encode(tokens) == DecodeStatus::ok);
            return std::vector<float>(context.pooled().begin(), context.pooled().end());
        };
        CHECK(largest_difference(pooled(Pooling::from_model), mean) <= 1e-4);
        CHECK(largest_difference(pooled(Pooling::cls), exact.front()) <= 1e-4);
        CHECK(largest_difference(pooled(Pooling::last), exact.back()) <= 1e-4);
        CHECK(largest_difference(pooled(Pooling::rank), jina.classify(exact.front())) <= 3e-4);
    }
}
