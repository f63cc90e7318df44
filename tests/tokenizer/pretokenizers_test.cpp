// SPDX-License-Identifier: MIT
#include "tinfer/text.hpp"

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "tokenizer/pretokenizer_table.hpp"

using namespace tinfer;

TEST_CASE("tokenizer: names of pre-tokenizers come with their family, expressions and flags") {
    const auto names = pretokenizers();
    CHECK(names.size() == tokenizer::pretokenizer_names().size());
    const auto find = [&](std::string_view name) { return *std::ranges::find(names, name, &PretokenizerInfo::name); };
    CHECK(find("llama-bpe").family == "llama3");
    CHECK(find("llama-bpe").ignores_merges);
    CHECK(find("llama-bpe").cleans_spaces);
    CHECK(!find("dbrx").ignores_merges);
    CHECK(!find("qwen2").cleans_spaces);
    CHECK(find("starcoder").patterns.size() == 2);
    CHECK(std::string(find("starcoder").patterns[0]) == "\\p{N}");
    for (const PretokenizerInfo& row : names) CHECK_MESSAGE(!row.patterns.empty(), std::string(row.name));
}

TEST_CASE("tokenizer: texts that end an answer wherever they are") {
    CHECK(ends_answers("<|im_end|>"));
    CHECK(ends_answers("<｜end▁of▁sentence｜>"));
    CHECK(!ends_answers("<|im_start|>"));
    CHECK(!ends_answers(""));
}
