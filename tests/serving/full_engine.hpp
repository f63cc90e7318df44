// SPDX-License-Identifier: MIT
// An engine with everything: adapters, a draft model, a store; and requests that ask for all of it.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>

#include "serving/serving_support.hpp"
#include "support/adapter_files.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::test {

/// A vocabulary of characters: <unk>, <s>, </s>, the 95 printable ones, and words for the rest.
inline GgufWriter with_characters(GgufWriter writer, int n_vocab) {
    std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    for (int i = 3; i < n_vocab; ++i) {
        texts.push_back(i - 3 < 95 ? std::string(1, static_cast<char>(32 + i - 3)) : "word" + std::to_string(i));
        if (texts.back() == " ") texts.back() = "\xE2\x96\x81";
        types.push_back(1);
    }
    writer.set("tokenizer.ggml.model", GgufValue{std::string("llama")});
    writer.array("tokenizer.ggml.tokens", texts);
    writer.array("tokenizer.ggml.scores", std::vector<float>(texts.size()));
    writer.array("tokenizer.ggml.token_type", types);
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
    return writer;
}

/// A small model with two adapters, and a smaller one to draft.
struct World {
    explicit World(const std::string& arch = "llama") {
        TinyModel tiny = TinyModel::of(arch);
        tiny.n_ctx = 2048;
        writer = with_characters(tiny.writer(), tiny.n_vocab);
        writer.save(folder / "model.gguf");
        model.emplace(Model::load(folder / "model.gguf"));
        TinyModel small;
        small.n_layer = 1;
        small.n_vocab = tiny.n_vocab;
        small.n_ctx = 2048;
        with_characters(small.writer(), small.n_vocab).save(folder / "draft.gguf");
        for (const char* name : {"red", "blue"}) {
            const AdapterSpec spec{
                .arch = arch, .names = adaptable(writer), .seed = static_cast<std::uint64_t>(name[0]), .size = 0.2f};
            const auto path = folder / (std::string(name) + ".gguf");
            lora_for(writer, spec).save(path);
            adapters.push_back({name, Adapter::load(*model, path)});
        }
    }

    [[nodiscard]] EngineOptions with_all(EngineOptions options) const {
        options.adapters = adapters;
        options.draft = EngineDraft{Model::load(folder / "draft.gguf"),
                                    {.context = {.n_ctx = 256, .n_threads = 1}, .p_min = 0.01f}};
        options.context.n_threads = options.context.n_threads_batch = 1;  // several of them run at once
        return options;
    }

    TempFolder folder;
    GgufWriter writer;
    std::optional<Model> model;
    std::vector<EngineAdapter> adapters;
};

/// mixed_requests() with adapters, grammars and guesses.
inline std::vector<EngineRequest> full_requests(const Model& model, std::size_t n, int most_prompt, int most_predict) {
    const auto object =
        Grammar::parse(R"(root ::= "{\"name\": \"" [a-z]{1,8} "\", \"age\": " [1-9] [0-9]{0,2} "}")", model.vocab());
    const auto call =
        Grammar::parse(R"(root ::= "<call>" ("weather(" | "time(") [A-Z] [a-z]{2,5} ")</call>")", model.vocab());
    auto requests = mixed_requests(model, n, most_prompt, most_predict);
    for (std::size_t i = 0; i < n; ++i) {
        EngineRequest& request = requests[i];
        if (i % 3 == 1) request.adapters = {{"red", i % 2 == 0 ? 1.0f : 0.5f}};
        if (i % 7 == 2) request.adapters = {{"blue", 0.7f}, {"red", 0.25f}};
        if (request.kind != EngineRequest::Kind::generate) continue;
        if (i % 4 == 3) request.speculate = EngineRequest::Speculate::ngram;
        if (i % 5 == 2) request.speculate = EngineRequest::Speculate::draft;
        if (i % 2 == 1) request.generation.speculation.adapt = false;
        if (i % 6 == 4) {
            request.grammar = i % 4 == 0 ? object : call;
            request.generation.n_predict = 60;
            request.generation.stop.clear();
        }
        if (i % 16 == 9) request.count = true;
    }
    return requests;
}

/// The same without what changes no byte.
inline std::vector<EngineRequest> plain_requests(std::vector<EngineRequest> requests) {
    for (EngineRequest& request : requests) {
        request.speculate = EngineRequest::Speculate::none;
        request.generation.speculation.forced = false;
        request.count = false;
    }
    return requests;
}

inline std::vector<std::size_t> in_order(std::size_t n) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    return order;
}
inline std::vector<std::size_t> in_other_order(std::size_t n, unsigned seed) {
    auto order = in_order(n);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    return order;
}

}  // namespace tinfer::test
