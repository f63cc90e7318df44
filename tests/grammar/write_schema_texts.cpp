// SPDX-License-Identifier: MIT
// Texts at random that constraints of schemas admit, for a validator of others to judge (validate_texts.py): of each
// schema of the files (JSON lines with "schema", or lists of groups with "schema") one JSON object a line.
//
//   write_schema_texts <texts of each> <seed> <every n-th schema> <file>…
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "grammar/emit.hpp"
#include "grammar/grammar_impl.hpp"
#include "support/random_text.hpp"
#include "tinfer/grammar.hpp"

namespace {

using json = nlohmann::ordered_json;

void write_texts(const json& schema, std::size_t n_texts, std::uint64_t seed) {
    json line{{"schema", schema}, {"texts", json::array()}, {"unfinished", 0}, {"missed", 0}};
    try {
        tinfer::grammar::Checker checker(schema.dump(), {});
        auto& normalizer = checker.normalizer();
        const auto program = tinfer::grammar::Emitter(normalizer, checker.options()).run({normalizer.root()});
        tinfer::grammar::Machine machine(program, 1);
        std::mt19937_64 random(seed);
        for (std::size_t i = 0; i < n_texts; ++i) {
            const auto text =
                tinfer::test::random_text(machine, random, 20 + random() % 400, tinfer::grammar::PropertyNames());
            if (!text) line["unfinished"] = line["unfinished"].get<int>() + 1;
            else line["texts"].push_back(*text);
            // What is admitted is also what a check of the text allows.
            if (text && !checker.matches(*text)) line["missed"] = line["missed"].get<int>() + 1;
        }
    } catch (const tinfer::Error& error) {
        line["refused"] = error.what();
    }
    std::cout << line.dump() << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 5) return 2;
    const std::size_t n_texts = std::stoul(argv[1]), every = std::stoul(argv[3]);
    const std::uint64_t seed = std::stoull(argv[2]);
    std::size_t number = 0;
    const auto take = [&](const json& entry) {
        if (number++ % every == 0) write_texts(entry.at("schema"), n_texts, seed + number);
    };
    for (int i = 4; i < argc; ++i) {
        std::ifstream file(argv[i]);
        if (!file) throw std::runtime_error(std::string("cannot read ") + argv[i]);
        if (std::string(argv[i]).ends_with(".jsonl"))
            for (std::string line; std::getline(file, line);) take(json::parse(line));
        else
            for (const auto& group : json::parse(file)) take(group);
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "write_schema_texts: " << error.what() << '\n';
    return 1;
}
