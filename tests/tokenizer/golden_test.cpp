// SPDX-License-Identifier: MIT
// Published vocabularies against the token ids, pieces and texts recorded for them.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/golden.hpp"
#include "tokenizer/pieces.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return json::parse(in);
}

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

/// Golden texts are strings, or {"hex": …} where they are not UTF-8.
std::string text_of(const json& value) {
    return value.is_object() ? from_hex(value.at("hex").get<std::string>()) : value.get<std::string>();
}

std::vector<std::filesystem::path> json_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
}

struct GoldenVocab {
    std::string name;
    json data;
    Vocab vocab;
};

std::vector<GoldenVocab> golden_vocabs() {
    std::vector<GoldenVocab> out;
    for (const auto& path : json_files(*golden_folder() / "tokenizers")) {
        json data = read_json(path);
        const auto file = *golden_folder() / "vocabs" / data.at("meta").at("vocab").get<std::string>();
        Vocab vocab = load_vocab_file(file);
        out.push_back({path.stem().string(), std::move(data), std::move(vocab)});
    }
    return out;
}

/// WordPiece forgets case, accents and spaces.
bool is_reversible(const Vocab& vocab) { return vocab.algorithm() != "bert"; }

/// Counts differences and shows the first few.
class Differences {
public:
    template <class T>
    void compare(const T& got, const T& want, const std::string& what) {
        ++compared_;
        if (got == want) return;
        if (++count_ <= 5) MESSAGE(what);
    }
    void expect_none(const std::string& where) const {
        INFO(where, ": ", count_, " of ", compared_);
        CHECK(compared_ > 0);
        CHECK(count_ == 0);
    }

private:
    int count_ = 0, compared_ = 0;
};

std::string shown(const json& c) { return c.contains("text") ? c["text"].dump() : "hex " + c["hex"].get<std::string>(); }

std::string case_text(const json& c) { return c.contains("text") ? c["text"].get<std::string>() : from_hex(c["hex"]); }

std::vector<int> case_ids(const json& c, const char* field) {
    return c[field].is_string() ? c["plain"].get<std::vector<int>>() : c[field].get<std::vector<int>>();
}

/// Some byte-level vocabularies lack bytes; text with those cannot survive.
bool has_every_byte(const Vocab& vocab, const std::string& text) {
    return vocab.algorithm() == "llama" || std::ranges::all_of(text, [&](char c) {
        std::string mapped;
        tokenizer::append_utf8(mapped, tokenizer::mapped_character(static_cast<unsigned char>(c)));
        return vocab.find(mapped).has_value();
    });
}

}  // namespace

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
        if (info["eot"].get<int>() != -1) CHECK(id(vocab.eot()) == info["eot"].get<int>());
        if (info["fim_pre"].get<int>() != -1) CHECK(id(vocab.fim_pre()) == info["fim_pre"].get<int>());
        if (info["fim_suf"].get<int>() != -1) CHECK(id(vocab.fim_suf()) == info["fim_suf"].get<int>());
        if (info["fim_mid"].get<int>() != -1) CHECK(id(vocab.fim_mid()) == info["fim_mid"].get<int>());
        for (const json& eog : info["eog"]) CHECK(vocab.is_eog(Token{eog.get<int>()}));
        for (const json& special : data["meta"]["special_tokens"]) {
            const Token token{special["id"].get<int>()};
            CAPTURE(special.dump());
            CHECK(std::string(vocab.text(token)) == text_of(special["text"]));
            CHECK(vocab.attr(token) == special["attr"].get<std::uint32_t>());
        }
    }
}

TEST_CASE("[T1][golden] pretokenizer: every family splits as its expressions do in another regex engine") {
    if (skip_without_golden()) return;
    const auto files = json_files(*golden_folder() / "pretok");
    CHECK(files.size() == tokenizer::pretokenizer_families().size());
    tokenizer::RegexScratch scratch;
    for (const auto& path : files) {
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

namespace {

void check_round_trips(int n_texts, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const auto& [name, data, vocab] : golden_vocabs()) {
        if (!is_reversible(vocab)) continue;
        Differences differences;
        for (int i = 0; i < n_texts;) {
            const std::string text = random_text(random, 20);
            if (!has_every_byte(vocab, text)) continue;
            ++i;
            // SPM takes U+2581 for a space, so the two are one in its vocabularies.
            if (vocab.algorithm() == "llama" && text.find("\xE2\x96\x81") != text.npos) continue;
            const auto tokens = vocab.encode(text, {.add_special = false});
            const std::string back = vocab.decode(tokens, {.render_special = true, .clean = DecodeOptions::Clean::off});
            differences.compare(back, text, name + " " + json(text).dump());
        }
        differences.expect_none(name);
    }
}

}  // namespace

TEST_CASE("[T11][golden] tokenizer: decode(encode(x)) is x for random valid strings in every reversible vocabulary") {
    if (skip_without_golden()) return;
    check_round_trips(2000, 20260);
}

TEST_CASE("[T11][golden][slow] tokenizer: decode(encode(x)) is x for 100000 random valid strings in every reversible vocabulary") {
    if (skip_without_golden()) return;
    check_round_trips(100'000, 20261);
}

}  // namespace tinfer::test
