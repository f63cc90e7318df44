// SPDX-License-Identifier: MIT
// Families without golden data, and variants of files that golden cases do not show, against a straight-line evaluation of
// the formulas in double precision (support/family_model.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/family_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

TEST_CASE("[A3][A5] families: logits agree with a straight-line evaluation in double within 1e-4") {
    for (const Family& family : small_families()) {
        CAPTURE(family.arch);
        const TempFolder folder;
        const auto path = folder.path() / "family.gguf";
        const GgufWriter file = family.writer();
        file.save(path);
        const auto model = Model::load(path);
        std::vector<int> ids;
        for (const Token token : random_tokens(24, Family::kVocab, 3)) ids.push_back(static_cast<int>(token));
        const auto exact = family.evaluate(file, ids);
        const auto tokens = random_tokens(24, Family::kVocab, 3);
        const auto ours = logits_of(model, tokens, {.type_k = KvType::f32, .type_v = KvType::f32});
        REQUIRE(ours.size() == exact.size());
        double worst = 0, spread = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - exact[i]));
            spread = std::max(spread, std::abs(exact[i]));
        }
        CAPTURE(worst);
        CHECK(worst <= 1e-4);
        CHECK(spread > 0.5);   // logits that say something
    }
}

}  // namespace tinfer::test
