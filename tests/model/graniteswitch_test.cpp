// SPDX-License-Identifier: MIT
// Granite with built-in adapters: which of them a token has is told by the tokens that its sequence still has.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "model/metadata_support.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

constexpr const char* kSwitch = "graniteswitch";

std::int32_t activating(const GgufWriter& file, std::size_t i) {
    for (const auto& [key, value] : file.keys())
        if (key == "graniteswitch.adapters.token_ids_activate")
            return std::get<std::int32_t>(std::get<GgufArray>(value.value).items.at(i).value);
    return -1;
}

std::vector<std::uint32_t> last_bits(Context& context, std::span<const Token> tokens, SeqId seq = SeqId{0}) {
    Batch batch;
    for (std::size_t i = 0; i < tokens.size(); ++i) batch.add(tokens[i], {}, std::array{seq}, i + 1 == tokens.size());
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    return bits_of(context.logits());
}

struct SwitchText {
    GgufWriter file = gguf_copy(golden_model_file(kSwitch).value());
    Token first{activating(file, 0)}, second{activating(file, 1)};
    std::vector<Token> head{Token{7}, Token{11}, first, Token{13}, Token{17}}, between{second, Token{19}, Token{23}},
        tail{Token{29}, Token{31}};

    [[nodiscard]] std::vector<Token> joined(const std::vector<Token>& a, const std::vector<Token>& b) const {
        std::vector<Token> out = a;
        out.insert(out.end(), b.begin(), b.end());
        return out;
    }
};

}  // namespace

TEST_CASE("[M4][golden] graniteswitch: where the token that switched is removed, the adapter before it counts") {
    if (skip_without_golden() || !golden_model_file(kSwitch)) return;
    const SwitchText text;
    const Model model = Model::load(golden_model_file(kSwitch).value());
    const ContextOptions options{.n_ctx = 128, .n_seq_max = 2, .n_threads = 1};
    Context never(model, options), removed(model, options);
    const auto expected = last_bits(never, text.joined(text.head, text.tail));
    CHECK(last_bits(removed, text.joined(text.joined(text.head, text.between), text.tail)) != expected);
    REQUIRE(removed.seq_rm(SeqId{0}, {Pos{5}}) == RemoveStatus::ok);
    CHECK(last_bits(removed, text.tail) == expected);
    // Nothing is left of the first one either: the base.
    REQUIRE(removed.seq_rm(SeqId{0}, {Pos{2}}) == RemoveStatus::ok);
    Context base(model, options);
    CHECK(last_bits(removed, text.tail) == last_bits(base, std::array{Token{7}, Token{11}, Token{29}, Token{31}}));
}

TEST_CASE("[Z1][M7][golden] graniteswitch: copies of a sequence and saved states keep its adapter") {
    if (skip_without_golden() || !golden_model_file(kSwitch)) return;
    const SwitchText text;
    const Model model = Model::load(golden_model_file(kSwitch).value());
    const ContextOptions options{.n_ctx = 128, .n_seq_max = 2, .n_threads = 1};
    Context alone(model, options), context(model, options), restored(model, options);
    const auto expected = last_bits(alone, text.joined(text.head, text.tail));
    (void)last_bits(context, text.head);
    context.seq_cp(SeqId{0}, SeqId{1});
    const auto state = save_state(context);
    (void)last_bits(context, text.between);  // one of them switches on
    CHECK(last_bits(context, text.tail, SeqId{1}) == expected);
    load_state(restored, state);
    CHECK(last_bits(restored, text.tail) == expected);
    CHECK(last_bits(restored, text.joined(text.between, text.tail), SeqId{1}) == last_bits(context, text.tail));
}

TEST_CASE("[golden] graniteswitch: a switched token is not the token that stands in for it") {
    if (skip_without_golden() || !golden_model_file(kSwitch)) return;
    const SwitchText text;
    const Model model = Model::load(golden_model_file(kSwitch).value());
    const ContextOptions options{.n_ctx = 128, .n_threads = 1};
    Context switched(model, options), latest(model, options), again(model, options);
    const auto one = last_bits(switched, std::array{text.first, Token{29}});
    // The latest counts, and switching to the adapter that counts already changes nothing but what is read.
    const auto other = last_bits(latest, std::array{text.second, Token{29}});
    CHECK(one != other);
    CHECK(last_bits(again, text.joined({text.second, text.first}, text.tail)) != last_bits(latest, text.tail));
}

TEST_CASE("[golden] graniteswitch: adapters that are too many, too wide or not told by tokens are refused") {
    if (skip_without_golden() || !golden_model_file(kSwitch)) return;
    const auto refused = [](const char* key, const std::function<void(GgufWriter&)>& change,
                            ErrorCode code = ErrorCode::bad_key) {
        GgufWriter file = gguf_copy(golden_model_file(kSwitch).value());
        change(file);
        const LoadOutcome outcome = load(file);
        CAPTURE(outcome.text);
        REQUIRE(outcome.code);
        CHECK(*outcome.code == code);
        CHECK(mentions(outcome.text, key));
    };
    const auto set = [](const char* key, auto value) {
        return [=](GgufWriter& file) { file.set(std::string("graniteswitch.adapters.") + key, value); };
    };
    const auto ids = [&](const char* key, std::vector<std::int32_t> list) {
        return [=](GgufWriter& file) {
            file.set(std::string("graniteswitch.adapters.") + key, GgufValue{GgufWriter::array_of(list)});
        };
    };
    for (const std::uint32_t n : {0u, 4097u, 0xFFFFFFFFu}) {
        refused("adapters.count", set("count", n));
        refused("adapters.lora_rank", set("lora_rank", n));
    }
    for (const char* key : {"token_ids_activate", "token_ids_substitute"}) {
        refused(key, ids(key, {5}));
        refused(key, ids(key, {5, 6, 7}));
        refused(key, ids(key, {5, 120}));
        refused(key, ids(key, {5, -1}));
        refused(key, set(key, std::uint32_t{5}), ErrorCode::wrong_type);
    }
    refused("token_ids_activate", ids("token_ids_activate", {5, 5}));
    refused("expert_count", [](GgufWriter& file) { file.set("graniteswitch.expert_count", std::uint32_t{4}); });
}

}  // namespace tinfer::test
