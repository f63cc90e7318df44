// SPDX-License-Identifier: MIT
// What begins a turn of a conversation: a BOS that is forced, an EOT behind an answer that was interrupted.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "support/golden.hpp"
#include "tokenizer/golden_vocabs.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

using nlohmann::json;

/// An id by role as recorded; none is -1 there.
std::optional<int> recorded(const GoldenVocab& golden, const char* role) {
    const int id = golden.data["meta"]["info"].value(role, -1);
    return id == -1 ? std::nullopt : std::optional(id);
}

std::vector<int> with_front(std::initializer_list<int> front, std::vector<int> ids) {
    ids.insert(ids.begin(), front.begin(), front.end());
    return ids;
}

/// Ids of a case whose parsed text begins with none of `front`: so they show only what the options add.
std::vector<int> ids_behind(const json& c, const std::vector<int>& front) {
    const auto all = case_ids(c, "parse");
    return {std::ranges::find_if(all, [&](int id) { return std::ranges::find(front, id) == front.end(); }), all.end()};
}

/// The message of a missing_special.
std::string missing(const Vocab& vocab, const EncodeOptions& options) {
    try {
        (void)vocab.encode("Hello", options);
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::missing_special);
        return error.what();
    }
    FAIL("no Error was thrown");
    return {};
}

}  // namespace

TEST_CASE("[T10][golden] turns: a forced BOS stands in front of every text once, whatever the vocabulary adds") {
    if (skip_without_golden()) return;
    for (const GoldenVocab& golden : golden_vocabs()) {
        const std::string& name = golden.name;
        const Vocab& vocab = golden.vocab;
        const auto recorded_bos = recorded(golden, "bos");
        if (!recorded_bos) {
            CHECK(missing(vocab, {.add_special = false, .force_bos = true}).find("BOS") != std::string::npos);
            continue;
        }
        const int bos = *recorded_bos;
        const bool ends_with_more = vocab.add_eos() || vocab.algorithm() == "bert";
        Differences differences;
        for (const json& c : golden.data["cases"]) {
            const auto check = [&](EncodeOptions options, const std::vector<int>& expected) {
                differences.compare(ids(vocab.encode(case_text(c), options)), expected, name + " " + shown(c));
            };
            check({.add_special = false, .force_bos = true}, with_front({bos}, case_ids(c, "plain")));
            check({.add_special = false, .parse_special = true, .force_bos = true},
                  with_front({bos}, ids_behind(c, {bos})));
            if (vocab.add_bos()) check({.force_bos = true}, case_ids(c, "add"));
            else if (!ends_with_more) check({.force_bos = true}, with_front({bos}, case_ids(c, "plain")));
        }
        differences.expect_none(name);
        CHECK(ids(vocab.encode("", {.add_special = false, .force_bos = true})) == std::vector{bos});
    }
}

TEST_CASE(
    "[T10][golden] turns: BOS with which the text begins as a special counts as the forced one; as text it does not") {
    if (skip_without_golden()) return;
    for (const GoldenVocab& golden : golden_vocabs()) {
        const Vocab& vocab = golden.vocab;
        CAPTURE(golden.name);
        if (!recorded(golden, "bos")) continue;
        const int bos = *recorded(golden, "bos");
        const std::string spelt(vocab.text(Token{bos}));
        const auto plain = ids(vocab.encode("Hello", {.add_special = false}));
        for (const std::string& text : {spelt + "Hello", spelt + spelt + "Hello"})
            CHECK(ids(vocab.encode(text, {.add_special = false, .parse_special = true, .force_bos = true})) ==
                  with_front({bos}, plain));
        if (!vocab.is_control(Token{bos})) continue;  // cut out of every text
        const auto unparsed = ids(vocab.encode(spelt + "Hello", {.add_special = false, .force_bos = true}));
        CHECK(unparsed == with_front({bos}, ids(vocab.encode(spelt + "Hello", {.add_special = false}))));
        CHECK(unparsed.size() > 1 + plain.size());
    }
}

TEST_CASE("[T13][golden] turns: closing one puts EOT in front of everything once, or EOS where there is no EOT") {
    if (skip_without_golden()) return;
    for (const GoldenVocab& golden : golden_vocabs()) {
        const std::string& name = golden.name;
        const Vocab& vocab = golden.vocab;
        const auto end = recorded(golden, recorded(golden, "eot") ? "eot" : "eos");
        if (!end) {
            CHECK(missing(vocab, {.close_turn = true}).find("neither EOT nor EOS") != std::string::npos);
            continue;
        }
        const auto bos = recorded(golden, "bos");
        Differences differences;
        for (const json& c : golden.data["cases"]) {
            const auto check = [&](EncodeOptions options, const std::vector<int>& expected) {
                differences.compare(ids(vocab.encode(case_text(c), options)), expected, name + " " + shown(c));
            };
            check({.add_special = false, .close_turn = true}, with_front({*end}, case_ids(c, "plain")));
            check({.close_turn = true}, with_front({*end}, case_ids(c, "add")));
            if (bos)
                check({.add_special = false, .force_bos = true, .close_turn = true},
                      with_front({*end, *bos}, case_ids(c, "plain")));
            check({.add_special = false, .parse_special = true, .close_turn = true},
                  with_front({*end}, ids_behind(c, {*end})));
        }
        differences.expect_none(name);

        CAPTURE(name);
        const std::string spelt(vocab.text(Token{*end}));
        const auto plain = ids(vocab.encode("Hello", {.add_special = false}));
        CHECK(ids(vocab.encode(spelt + "Hello", {.add_special = false, .parse_special = true, .close_turn = true})) ==
              with_front({*end}, plain));
        if (bos)
            CHECK(ids(vocab.encode(
                      spelt + "Hello",
                      {.add_special = false, .parse_special = true, .force_bos = true, .close_turn = true})) ==
                  with_front({*end, *bos}, plain));
        CHECK(ids(vocab.encode("", {.add_special = false, .close_turn = true})) == std::vector{*end});
    }
}

TEST_CASE("[golden] turns: a BOS that the vocabulary does not have is missing_special, and only when it is forced") {
    if (skip_without_golden()) return;
    const ModelOptions without{.overrides = {{"tokenizer.ggml.bos_token_id", std::int64_t{-1}},
                                             {"tokenizer.ggml.cls_token_id", std::int64_t{-1}},
                                             {"tokenizer.ggml.add_bos_token", false}}};
    for (const GoldenVocab& golden : golden_vocabs(without)) {
        CAPTURE(golden.name);
        CHECK(golden.vocab.bos() == std::nullopt);
        CHECK(missing(golden.vocab, {.add_special = false, .force_bos = true}).find("BOS") != std::string::npos);
        CHECK_FALSE(golden.vocab.encode("Hello", {.add_special = false}).empty());
    }
}

TEST_CASE("[T13] turns: EOT ends one, else EOS, and a vocabulary with neither says so") {
    const Vocab with_eot = load_vocab(small_bpe().kv("tokenizer.ggml.eot_token_id", 7u)),
                with_eos = load_vocab(small_spm());
    CHECK(with_eot.eos() != Token{7});
    CHECK(with_eot.encode("hello", {.close_turn = true}).front() == Token{7});
    CHECK(with_eos.eot() == std::nullopt);
    CHECK(with_eos.encode("hello", {.close_turn = true}).front() == with_eos.eos());
    CHECK(missing(load_vocab(small_rwkv()), {.close_turn = true}).find("neither EOT nor EOS") != std::string::npos);
}

TEST_CASE("[T10][T13] turns: BOS and EOS of a small vocabulary, with the end that add_special puts") {
    GgufWriter writer = small_spm();
    writer.kv("tokenizer.ggml.add_bos_token", false).kv("tokenizer.ggml.add_eos_token", true);
    const Vocab vocab = load_vocab(writer);
    const auto text = ids(vocab.encode("hello", {.add_special = false}));
    auto expected = with_front({2, 1}, text);
    CHECK(ids(vocab.encode("</s><s>hello",
                           {.add_special = false, .parse_special = true, .force_bos = true, .close_turn = true})) ==
          expected);
    expected.push_back(2);
    CHECK(ids(vocab.encode("hello", {.force_bos = true, .close_turn = true})) == expected);
    std::vector<Token> out(expected.size());
    CHECK(vocab.encode_into("hello", {.force_bos = true, .close_turn = true}, out) == expected.size());
    CHECK(ids(out) == expected);
}

}  // namespace tinfer::test
