// SPDX-License-Identifier: MIT
// What a name says, and which of a repository's files it means.
#include "hub/name.hpp"

#include <doctest/doctest.h>

#include <tinfer/base.hpp>

#include "hub/choice.hpp"
#include "hub/plain_text.hpp"

using namespace tinfer::hub;

namespace {

std::vector<Candidate> models(const std::vector<std::string>& paths) {
    std::vector<RepoFile> files;
    for (const auto& path : paths) files.push_back({path, 1000, {}});
    return candidates(std::move(files));
}

/// The path of the file that is meant; how many fit, where that is not one.
std::string meant(const std::string& name, const std::vector<Candidate>& all) {
    const auto chosen = choose(parse_hub_name(name), all);
    return chosen.size() == 1 ? chosen[0]->files.front().path : std::to_string(chosen.size());
}

}  // namespace

TEST_CASE("[V15] names: owner, repository, revision, quantization and path") {
    const auto whole = parse_hub_name("hf:own-er/Re_po.1-GGUF@v1.0:UD-Q4_K_XL");
    CHECK(whole.repository() == "own-er/Re_po.1-GGUF");
    CHECK(whole.revision == "v1.0");
    CHECK(whole.quant == "UD-Q4_K_XL");
    CHECK(whole.text() == "own-er/Re_po.1-GGUF@v1.0:UD-Q4_K_XL");
    for (const char* front : {"", "hf:", "hf.co/", "huggingface.co/", "https://huggingface.co/", "hf:hf.co/"})
        CHECK(parse_hub_name(std::string(front) + "a/b:Q8_0").text() == "a/b:Q8_0");
    const auto path = parse_hub_name("a/b@main/UD/x-Q8_0.gguf");
    CHECK(path.revision == "main");
    CHECK(path.path == "UD/x-Q8_0.gguf");
    CHECK(parse_hub_name("a/b/x.gguf").path == "x.gguf");
    CHECK(parse_hub_name("a/b.gguf").repo == "b.gguf");
    CHECK(parse_hub_name("a/b@refs/pr/1").revision == "refs/pr/1");
    CHECK(parse_hub_name("a/b@refs/pr/1/x.gguf").path == "x.gguf");
    CHECK(parse_hub_name("a/b").revision_or_main() == "main");
}

TEST_CASE("[V15] names: what is none is refused") {
    for (const char* text : {"",
                             "a",
                             "hf:",
                             "/b",
                             "a/",
                             "a/b/c",
                             "a/b:",
                             "a/b:Q 8",
                             "a/b@",
                             "a/b@:Q8",
                             "a b/c",
                             "a/../x.gguf",
                             "../b",
                             "a--b/c",
                             "a/b..c",
                             "-a/b",
                             "a/b.",
                             "a/b/../x.gguf",
                             "a/b@../x",
                             "a/b@r//x.gguf",
                             "a/b:../x",
                             "a/b/x\\y.gguf",
                             "a/b@main//x.gguf",
                             "models/tiny:Q8/x.gguf"}) {
        CAPTURE(text);
        CHECK_THROWS_AS((void)parse_hub_name(text), tinfer::Error);
    }
    for (const char* text : {"ollama:", "ollama:a/b/c", "ollama:../a", "ollama:a:..", "ollama:a:", "ollama:a b"}) {
        CAPTURE(text);
        CHECK_THROWS_AS((void)parse_ollama_name(text), tinfer::Error);
    }
    CHECK(parse_ollama_name("ollama:qwen3").text() == "qwen3:latest");
    CHECK(parse_ollama_name("ollama:me/qwen3:0.6b").text() == "me/qwen3:0.6b");
}

TEST_CASE("[V15] choice: the label is what follows the last '-' or '.', or the folder") {
    const auto all =
        models({"M-Q8_0.gguf", "M.q4_k_m.gguf", "M-UD-Q4_K_M.gguf", "Q5/whatever.gguf", "mmproj-M-F16.gguf",
                "M-imatrix.gguf", "mtp-M-Q8_0.gguf", "eagle3-M-Q8_0.gguf", "notes.txt", "BF16/M-BF16.gguf"});
    CHECK(all.size() == 5);
    CHECK(meant("a/b:Q8_0", all) == "M-Q8_0.gguf");
    CHECK(meant("a/b:q8_0", all) == "M-Q8_0.gguf");
    CHECK(meant("a/b:Q4_K_M", all) == "M.q4_k_m.gguf");
    CHECK(meant("a/b:ud-q4_k_m", all) == "M-UD-Q4_K_M.gguf");
    CHECK(meant("a/b:q5", all) == "Q5/whatever.gguf");
    CHECK(meant("a/b:BF16", all) == "BF16/M-BF16.gguf");
    CHECK(meant("a/b:K_M", all) == "0");
    CHECK(meant("a/b", all) == "M.q4_k_m.gguf");
    CHECK(meant("a/b/BF16/M-BF16.gguf", all) == "BF16/M-BF16.gguf");
    CHECK(meant("a/b/mmproj-M-F16.gguf", all) == "0");
    CHECK(ShortNames(all).name(parse_hub_name("a/b"), all[0]).text() == "a/b:BF16");
}

TEST_CASE("[V15] choice: without a quantization Q4_K_M, else Q8_0, else the only one") {
    CHECK(meant("a/b", models({"M-Q8_0.gguf", "M-Q6_K.gguf"})) == "M-Q8_0.gguf");
    CHECK(meant("a/b", models({"M-Q6_K.gguf"})) == "M-Q6_K.gguf");
    CHECK(meant("a/b", models({"M-Q6_K.gguf", "M-Q5_K.gguf"})) == "2");
    CHECK(meant("a/b", models({"M-Q4_K_M.gguf", "N-Q4_K_M.gguf"})) == "2");
    CHECK(meant("a/b", models({})) == "0");
    const auto twice = models({"M-Q4_K_M.gguf", "N-Q4_K_M.gguf"});
    CHECK(ShortNames(twice).name(parse_hub_name("a/b"), twice[1]).text() == "a/b/N-Q4_K_M.gguf");
}

TEST_CASE("[V15] choice: names that can be asked for again, whatever files are called") {
    const HubName repo = parse_hub_name("a/b");
    for (const char* path : {"my model (1).gguf", "x-<b>.gguf", "M-Q8:0.gguf", "f/M-Q\u00E4.gguf"}) {
        const auto all = models({path, "M-Q8_0.gguf"});
        const auto one = std::ranges::find_if(all, [&](const Candidate& c) { return c.files[0].path == path; });
        REQUIRE(one != all.end());
        const std::string name = ShortNames(all).name(repo, *one).text();
        CHECK(name == std::string("a/b/") + path);
        CHECK(meant(name, all) == path);
    }
    std::vector<RepoFile> many;
    for (int i = 0; i < 20'000; ++i) many.push_back({"x" + std::to_string(i) + "-Q8_0.gguf", ~0ull, {}});
    const auto all = candidates(many);
    CHECK(list_text(all).ends_with(" and 19960 more"));
    const auto split = models({"M-00001-of-00002.gguf", "M-00002-of-00002.gguf"});
    CHECK(split[0].bytes() < ~0ull);
    CHECK(Candidate{"", "", {{"a", ~0ull, {}}, {"b", 2, {}}}, 2}.bytes() == ~0ull);
}

TEST_CASE("[V15] texts of others cannot steer a terminal") {
    CHECK(spell_controls("M-Q4_K_M.gguf, \u00E4\U0001F600") == "M-Q4_K_M.gguf, \u00E4\U0001F600");
    CHECK(spell_controls("a\x1b[31mb\nc\x7f") == "a\\x1b[31mb\\x0ac\\x7f");
    CHECK(spell_controls("a\tb\nc\r", true) == "a\tb\nc\\x0d");
    CHECK(spell_controls("\u009b2J \u202efgug \u2028") == "\\u{9b}2J \\u{202e}fgug \\u{2028}");
    CHECK(spell_controls("\xC3(\xff\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80\xe2\x82") ==
          "\\xc3(\\xff\\xed\\xa0\\x80\\xc0\\xaf\\xf4\\x90\\x80\\x80\\xe2\\x82");
}

TEST_CASE("[V15] choice: a split model is one") {
    const auto all = models({"M-Q8_0-00001-of-00003.gguf", "M-Q8_0-00003-of-00003.gguf", "M-Q8_0-00001-of-00002.gguf"});
    REQUIRE(all.size() == 2);
    CHECK(all[0].parts == 2);
    CHECK_FALSE(all[0].is_complete());
    CHECK(missing_parts(all[0]) == "2");
    CHECK(missing_parts(all[1]) == "2");
    CHECK(models({"M-00002-of-00001.gguf", "M-00000-of-00001.gguf", "M-0001-of-0001.gguf"}).size() == 3);
}

TEST_CASE("[V15] paths of a repository stay inside it") {
    for (const char* path : {"x", "a/b/c.gguf", "..x", "a/..b"}) CHECK(is_inside(path));
    for (const char* path : {"", "/x", "x/", "..", "../x", "a/../x", "a//x", "./x", "a/.", "a\\x", "a\nx"})
        CHECK_FALSE(is_inside(path));
    CHECK_FALSE(is_inside(std::string_view("a\0b", 3)));
}
