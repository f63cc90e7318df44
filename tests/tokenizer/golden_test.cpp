// SPDX-License-Identifier: MIT
// Published vocabularies against the token ids, pieces and texts recorded for them.
#include <doctest/doctest.h>

#include "support/golden.hpp"
#include "tokenizer/golden_vocabs.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

using nlohmann::json;

TEST_CASE(
    "[T1][T2][T3][T6][T7][golden] tokenizer: token ids equal the recorded ones under all four flag combinations") {
    if (skip_without_golden()) return;
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        Differences differences;
        for (const json& c : data["cases"]) {
            const std::string text = case_text(c);
            const auto check = [&](const char* field, EncodeOptions options) {
                differences.compare(ids(vocab.encode(text, options)), case_ids(c, field),
                                    name + " " + field + " " + shown(c));
            };
            check("plain", {.add_special = false, .parse_special = false});
            check("add", {.add_special = true, .parse_special = false});
            check("parse", {.add_special = false, .parse_special = true});
            check("both", {.add_special = true, .parse_special = true});
        }
        differences.expect_none(name);
    }
}

TEST_CASE("[T3][golden] tokenizer: token ids equal those of the published tokenizers where other engines give others") {
    if (skip_without_golden()) return;
    const auto files = golden_entries("published");
    if (files.empty()) {
        MESSAGE("skipped: the golden data has no folder 'published'");
        return;
    }
    for (const auto& path : files) {
        if (path.extension() != ".json") continue;
        const json data = read_json(path);
        const auto file = golden_file("vocabs/" + data.at("vocab").get<std::string>());
        if (!file) continue;
        const Vocab vocab = load_vocab_file(*file);
        Differences differences;
        for (const json& c : data.at("cases")) {
            const std::string text = case_text(c);
            const auto expected = c.at("ids").get<std::vector<int>>();
            differences.compare(ids(vocab.encode(text, {.add_special = false})), expected,
                                path.stem().string() + " " + shown(c));
        }
        differences.expect_none(path.stem().string());
    }
}

TEST_CASE("[T11][golden] tokenizer: pieces and decoded texts equal the recorded ones") {
    if (skip_without_golden()) return;
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        Differences differences;
        for (const json& c : data["cases"]) {
            const auto tokens_of = [&](const char* field) {
                std::vector<Token> tokens;
                for (const int id : case_ids(c, field)) tokens.push_back(Token{id});
                return tokens;
            };
            const std::string where = name + " " + shown(c);
            const auto plain = tokens_of("plain"), both = tokens_of("both");
            if (c.contains("pieces"))
                for (std::size_t i = 0; i < plain.size(); ++i)
                    differences.compare(std::string(vocab.piece(plain[i], true)), text_of(c["pieces"][i]), where);
            differences.compare(vocab.decode(plain, {.render_special = true}), text_of(c["detok_plain"]),
                                where + " plain");
            differences.compare(vocab.decode(both, {.render_special = true}), text_of(c["detok_keep"]),
                                where + " keep");
            differences.compare(vocab.decode(both, {.remove_special = true}), text_of(c["detok_strip"]),
                                where + " strip");
        }
        differences.expect_none(name);
    }
}

TEST_CASE("[T12][golden] tokenizer: ids by role, flags, special tokens and the end-of-generation set") {
    if (skip_without_golden()) return;
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        CAPTURE(name);
        const json& info = data["meta"]["info"];
        const auto id = [](std::optional<Token> token) { return token ? static_cast<int>(*token) : -1; };
        CHECK(vocab.size() == info["n_tokens"].get<std::size_t>());
        CHECK(id(vocab.bos()) == info["bos"].get<int>());
        CHECK(id(vocab.eos()) == info["eos"].get<int>());
        CHECK(id(vocab.special(Special::sep)) == info["sep"].get<int>());
        CHECK(id(vocab.special(Special::pad)) == info["pad"].get<int>());
        CHECK(id(vocab.special(Special::newline)) == info["nl"].get<int>());
        CHECK(vocab.add_bos() == (info["add_bos"].get<int>() != 0));
        CHECK(vocab.add_eos() == (info["add_eos"].get<int>() != 0));
        // The recorded engine knew fewer texts than today's: what it found must be found.
        if (info["eot"].get<int>() != -1) CHECK(id(vocab.eot()) == info["eot"].get<int>());
        if (info["fim_pre"].get<int>() != -1) CHECK(id(vocab.special(Special::fim_pre)) == info["fim_pre"].get<int>());
        if (info["fim_suf"].get<int>() != -1) CHECK(id(vocab.special(Special::fim_suf)) == info["fim_suf"].get<int>());
        if (info["fim_mid"].get<int>() != -1) CHECK(id(vocab.special(Special::fim_mid)) == info["fim_mid"].get<int>());
        for (const json& eog : info["eog"]) CHECK(vocab.is_eog(Token{eog.get<int>()}));
        for (const json& special : data["meta"]["special_tokens"]) {
            const Token token{special["id"].get<int>()};
            CAPTURE(special.dump());
            CHECK(std::string(vocab.text(token)) == text_of(special["text"]));
            CHECK(vocab.attr(token) == special["attr"].get<std::uint32_t>());
        }
    }
}

TEST_CASE("[golden] pretokenizer: every family splits as its expressions do in another regex engine") {
    if (skip_without_golden()) return;
    tokenizer::RegexScratch scratch;
    for (const auto& path : golden_entries("pretok")) {
        if (path.extension() != ".json") continue;
        const json data = read_json(path);
        const auto name = data["family"].get<std::string>();
        const auto* family = tokenizer::find_pretokenizer_family(name);
        REQUIRE_MESSAGE(family != nullptr, name);
        const tokenizer::Pretokenizer pretokenizer(*family);
        Differences differences;
        for (const json& c : data["cases"]) {
            const auto text = c["text"].get<std::string>();
            std::vector<std::size_t> ends;
            pretokenizer.split(text, scratch, ends);
            std::vector<std::string> pieces;
            std::size_t begin = 0;
            for (const std::size_t end : ends) {
                pieces.push_back(text.substr(begin, end - begin));
                begin = end;
            }
            differences.compare(pieces, c["split"].get<std::vector<std::string>>(), name + " " + c["text"].dump());
        }
        differences.expect_none(name);
    }
}

}  // namespace tinfer::test
