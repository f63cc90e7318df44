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

TEST_CASE("[T1][T2][T3][T6][T7][golden] tokenizer: token ids equal the recorded ones under all four flag combinations") {
    if (skip_without_golden()) return;
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        Differences differences;
        for (const json& c : data["cases"]) {
            const std::string text = case_text(c);
            const auto check = [&](const char* field, EncodeOptions options) {
                differences.compare(ids(vocab.encode(text, options)), case_ids(c, field), name + " " + field + " " + shown(c));
            };
            check("plain", {.add_special = false, .parse_special = false});
            check("add", {.add_special = true, .parse_special = false});
            check("parse", {.add_special = false, .parse_special = true});
            check("both", {.add_special = true, .parse_special = true});
        }
        differences.expect_none(name);
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
            differences.compare(vocab.decode(plain, {.render_special = true}), text_of(c["detok_plain"]), where + " plain");
            differences.compare(vocab.decode(both, {.render_special = true}), text_of(c["detok_keep"]), where + " keep");
            differences.compare(vocab.decode(both, {.remove_special = true}), text_of(c["detok_strip"]), where + " strip");
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
        CHECK(id(vocab.sep()) == info["sep"].get<int>());
        CHECK(id(vocab.pad()) == info["pad"].get<int>());
        CHECK(id(vocab.newline()) == info["nl"].get<int>());
        CHECK(vocab.add_bos() == (info["add_bos"].get<int>() != 0));
        CHECK(vocab.add_eos() == (info["add_eos"].get<int>() != 0));
        // The recorded engine knew fewer texts than today's: what it found must be found.
        for (const auto& [role, token] : {std::pair{"eot", vocab.eot()}, {"fim_pre", vocab.fim_pre()}, {"fim_suf", vocab.fim_suf()}, {"fim_mid", vocab.fim_mid()}})
            if (info.value(role, -1) != -1) CHECK(id(token) == info[role].get<int>());
        for (const json& eog : info.value("eog", json::array())) CHECK(vocab.is_eog(Token{eog.get<int>()}));
        for (const json& special : data["meta"].value("special_tokens", json::array())) {
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
