// SPDX-License-Identifier: MIT
// Golden draft heads with the models that they are for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/access.hpp"
#include "generation/speculation_support.hpp"
#include "runtime/context.hpp"

namespace tinfer::test {

struct HeadCase {
    std::string name;
    Model model;
    std::shared_ptr<const DraftHead> head;
};

/// One of each kind, or all.
inline void for_each_head(bool all, const std::function<void(const HeadCase&)>& fn) {
    constexpr std::string_view kFew[] = {"mtp-qwen35", "mtp-step35", "mtp-deepseek4", "eagle3",          "dflash",
                                         "dspark",     "dflash2",    "dspark-dsv4",   "gemma4-assistant"};
    std::size_t n = 0;
    for (const auto& folder : golden_entries("drafts")) {
        const std::string name = folder.filename().string();
        if (!std::filesystem::exists(folder / "model.gguf")) continue;
        if (golden_is_whole() && !all && std::ranges::find(kFew, name) == std::end(kFew)) continue;
        CAPTURE(name);
        auto model = Model::load(folder / "model.gguf");
        const auto file = folder / "draft.gguf";
        auto head = std::filesystem::exists(file) ? DraftHead::load(model, file) : DraftHead::of(model);
        fn({name, std::move(model), std::move(head)});
        ++n;
    }
    expect_cases(n, all ? 24 : std::size(kFew), "draft heads");
}

/// The n tokens that the context's head proposes behind `drawn`.
inline std::vector<Token> drafted_by_head(Context& context, SeqId seq, Token drawn, std::size_t n = 3) {
    std::vector<Token> out(n);
    auto& state = detail::impl_of(context);
    out.resize(state.head->draft(seq, drawn, state.end_of(seq), out).n);
    return out;
}

}  // namespace tinfer::test
