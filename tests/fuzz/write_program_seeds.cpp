// SPDX-License-Identifier: MIT
// Seeds of the fuzz targets of expressions, chains of samplers, configuration files, files of log-probabilities and of
// importance, and of what clients do to an engine.
#include <tinfer/observers.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "fuzz/seed_folder.hpp"

namespace {

using Folder = tinfer::test::SeedFolder;

/// An even first byte: the bytes as they stand. An odd one: places in the target's set of characters.
void write_expressions(Folder out) {
    for (const char* text : {"^(?:[A-Z]{2}-)?[0-9]{3,6}(?:\\.[a-z]+)*$", "\\p{L}{1,20}|\\u{1F600}[^\\x00-\\x1f]?",
                             "(a|b(?<name>c*))+\\s\\S\\w\\W\\d\\D", "(?=a)\\1(?!b)\\b", "[\\w.\\-]+@[^@]{0,9999}"})
        out.add(std::string("\0\3abc", 5) + text);
    constexpr std::string_view kSet = R"(aabb01_.*+?|()[]^-{},$\\dDwWsS2)";
    for (const char* text : {"^a(b|0)*1$", "[ab]{1,2}|\\d+", "^[^a-b]*\\w$", "(a|b(0|1)?){2,}", ".\\D|\\S_?$"}) {
        std::string bytes("\1\4\0\2\4\6", 6);
        for (const char c : std::string_view(text)) bytes += static_cast<char>(kSet.find(c));
        out.add(bytes);
    }
}

void write_chains(Folder out) {
    for (const char* text :
         {"top_k(40) | top_p(0.9, min_keep: 2) | temperature(0.7)", "greedy", "mirostat(6, 0.2)",
          "penalties(64, 1.1, 0.2, 0.1) | dry(0.8, 1.75, 2, -1, breakers: \"n\") | min_p(0.05) | xtc(0.5, 0.1)",
          "temperature(0.8, 0.5, 2) | typical_p(0.9) | top_n_sigma(1.5) | adaptive_p(0.3, 0.9, true) | dist(9)",
          "logit_bias(5: -1, 7: 2.5e0) | temperature(0)"})
        out.add(text);
}

void write_configurations(Folder out) {
    for (const char* text : {"quiet = true\n[run]\nmodel = \"a.gguf\"\npredict = 12\ntemp = 0.5 # warm\n",
                             "predict=5\r\nlora=[\"a\", 'b', \"\"\"c\nd\"\"\"]\n[serve]\ntemp=1e-3\n",
                             "[run.more]\nx = 1\n[[run]]\n", "temp = inf\npredict = 99999999999\nmodel = {a = 1}\n",
                             "\"temp\" = -0.0\nmodel = \"\\u00e9\\n\"\nunknown = 3\n"})
        out.add(text);
}

std::string int32(std::int32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
std::string float32(float value) { return {reinterpret_cast<const char*>(&value), 4}; }

/// One window of four tokens of a vocabulary of four: one row is scored.
void write_log_probabilities(Folder out) {
    const std::string head = "_logits_" + int32(4) + int32(4) + int32(1) + int32(0) + int32(1) + int32(2) + int32(3);
    std::string row = float32(1.386294361f / 65535) + float32(-2.772588722f);
    for (const int code : {65535, 65535, 65535, 0}) row += {static_cast<char>(code), static_cast<char>(code >> 8)};
    out.add(head + row);
    out.add(head + float32(0) + float32(-1.386294361f) + std::string(8, '\0'));
    out.add(head);
}

/// Both forms; the sums of one have more digits than float32.
void write_importance_files(Folder out, const std::filesystem::path& folder) {
    tinfer::ImportanceFile file{.datasets = {"a.txt"}, .n_chunks = 3, .chunk_tokens = 8};
    file.weights.push_back({"blk.0.ffn_up.weight", 3, 1, {24, 0, 2.5}, {24}});
    file.weights.push_back({"e", 2, 2, {8, 16.000000001, 0, 0}, {16, 0}});
    for (const auto format : {tinfer::ImportanceFormat::gguf, tinfer::ImportanceFormat::binary}) {
        const auto path = folder / "importance.seed";
        tinfer::write_importance(path, file, format);
        std::ifstream in(path, std::ios::binary);
        out.add(std::string{std::istreambuf_iterator<char>(in), {}});
        in.close();
        std::filesystem::remove(path);
    }
    out.add(int32(1) + int32(1) + "w" + int32(2) + int32(1) + float32(0.5f));
}

/// Pairs of a deed and its value, behind the number of the engine.
void write_deeds(Folder out) {
    for (char engine = 0; engine < 4; ++engine)
        for (int kind = 0; kind < 3; ++kind) {
            std::string text(1, engine);
            for (int i = 0; i < 14; ++i)
                text += {static_cast<char>(kind == 0 ? i % 3 : i * (kind + 2) % 8 + (i % 4 == 3 ? 128 : 0)),
                         static_cast<char>(i * 29 + kind)};
            out.add(text);
        }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const std::filesystem::path folder = argv[1];
    write_expressions(Folder(folder / "regex"));
    write_chains(Folder(folder / "chain"));
    write_configurations(Folder(folder / "config"));
    write_log_probabilities(Folder(folder / "logprobs"));
    write_importance_files(Folder(folder / "importance"), folder);
    write_deeds(Folder(folder / "engine"));
    return 0;
}
