// SPDX-License-Identifier: MIT
#include "tinfer/model.hpp"

#include <doctest/doctest.h>

#include "support/code_of.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer {

using test::code_of;
using test::TempFolder;
using test::TinyModel;

TEST_CASE("[Q5] swap: a model with tensors of another has the bits of a file written so, mapped or read") {
    const TempFolder folder;
    auto ours = TinyModel::of("llama"), theirs = ours;
    theirs.seed = 7;
    const auto a = folder / "a.gguf", b = folder / "b.gguf", both = folder / "both.gguf";
    auto mixed = ours.writer();
    const auto other = theirs.writer();
    ours.writer().save(a);
    other.save(b);
    const auto is_swapped = [](std::string_view name) { return name.find("ffn_") != name.npos; };
    for (auto& tensor : mixed.tensors())
        for (const auto& from : other.tensors())
            if (from.name == tensor.name && is_swapped(tensor.name)) tensor.data = from.data;
    mixed.save(both);
    const auto tokens = test::random_tokens(8, ours.n_vocab, 3);
    const auto expected = test::bits_of(test::logits_of(Model::load(both), tokens));
    CHECK(expected != test::bits_of(test::logits_of(Model::load(a), tokens)));
    for (const bool use_mmap : {true, false}) {
        const auto model = load_swapped(a, b, is_swapped, {.use_mmap = use_mmap});
        CHECK(model.file().paths().size() == 2);
        CHECK(test::bits_of(test::logits_of(model, tokens)) == expected);
    }
    const auto none = load_swapped(a, b, [](std::string_view) { return false; });
    CHECK(test::bits_of(test::logits_of(none, tokens)) == test::bits_of(test::logits_of(Model::load(a), tokens)));
}

TEST_CASE("[Q5] swap: a tensor that the other file lacks, or has in another shape, is refused by name") {
    const TempFolder folder;
    auto model = TinyModel::of("llama");
    const auto a = folder / "a.gguf", b = folder / "b.gguf";
    model.writer().save(a);
    auto other = model.writer();
    other.erase_tensor("blk.1.ffn_up.weight").save(b);
    const auto load = [&](std::string_view part) {
        return code_of(
            [&] { (void)load_swapped(a, b, [&](std::string_view name) { return name.find(part) != name.npos; }); });
    };
    CHECK(load("ffn_up") == ErrorCode::missing_tensor);
    model.n_ff = 128;
    model.writer().save(b);
    CHECK(load("ffn_up") == ErrorCode::bad_tensor_shape);
}

}  // namespace tinfer
