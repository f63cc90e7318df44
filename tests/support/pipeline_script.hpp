// SPDX-License-Identifier: MIT
// The same calls on a context of a whole model and on a pipeline of its parts, and what both have given.
#pragma once

#include <string>
#include <vector>

#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// Parts that end with these layers, the last of the model behind them.
inline std::vector<ModelPart> parts_between(const std::vector<int>& lasts, int n_layer) {
    std::vector<ModelPart> parts;
    int first = 0;
    for (const int last : lasts) {
        parts.push_back({first, last});
        first = last + 1;
    }
    parts.push_back({first, n_layer - 1});
    return parts;
}

inline std::vector<Model> load_parts(const std::filesystem::path& file, const std::vector<ModelPart>& parts,
                                     ModelOptions options = {}) {
    std::vector<Model> models;
    for (const ModelPart part : parts) {
        options.layers = part;
        models.push_back(Model::load(file, options));
    }
    return models;
}

inline Context& outputs_of(Context& context) { return context; }
inline Context& outputs_of(Pipeline& pipeline) { return pipeline.last(); }

/// Prompts in cuts beside each other, a copied sequence, removals, moved positions: every row of results as bits, and
/// what every call said.
struct ScriptResult {
    std::vector<std::uint32_t> bits;
    std::vector<std::string> said;
    bool operator==(const ScriptResult&) const = default;
};

template <class Target>
class PipelineScript {
public:
    PipelineScript(Target& target, const ModelInfo& info)
        : target_(target), tokens_(random_tokens(80, info.n_vocab, 11)), gives_logits_(info.has_output_head) {}

    ScriptResult run() {
        decode({{0, 9}});
        decode({{0, 6}, {1, 7}});
        act("cp", [&] { target_.seq_cp(SeqId{0}, SeqId{2}); });
        decode({{0, 1}, {1, 1}, {2, 1}});
        act("rm", [&] { out_.said.emplace_back(to_string(target_.seq_rm(SeqId{1}, {Pos{4}}))); });
        decode({{1, 2}});
        act("add", [&] { target_.seq_add(SeqId{1}, {}, 3); });
        decode({{1, 1}, {2, 2}});
        act("keep", [&] { target_.seq_keep(SeqId{2}); });
        decode({{2, 3}, {0, 4}});
        return out_;
    }

private:
    void decode(const std::vector<std::pair<int, int>>& counts) {
        Batch batch;
        int most = 0;
        for (const auto& [seq, n] : counts) most = std::max(most, n);
        for (int i = 0; i < most; ++i)
            for (const auto& [seq, n] : counts)
                if (i < n) batch.add(tokens_[next_++], SeqId{seq}, true);
        act("decode", [&] {
            const DecodeStatus status = target_.decode(batch);
            out_.said.emplace_back(to_string(status));
            const Context& given = outputs_of(target_);
            for (int row = 0; row < given.n_outputs(); ++row) {
                const auto bits = bits_of(gives_logits_ ? given.logits(row) : given.embedding(row));
                out_.bits.insert(out_.bits.end(), bits.begin(), bits.end());
            }
        });
    }
    template <class Call>
    void act(const std::string& what, const Call& call) {
        try {
            call();
        } catch (const Error& error) {  // what a model cannot do, its parts cannot do either
            out_.said.push_back(what + ": " + std::string(to_string(error.code())));
        }
    }

    Target& target_;
    std::vector<Token> tokens_;
    bool gives_logits_;
    std::size_t next_ = 0;
    ScriptResult out_;
};

inline const ContextOptions kScriptOptions{
    .n_ctx = 192, .n_seq_max = 3, .n_ubatch = 16, .n_outputs = 64, .n_threads = 1};
/// The same, with a vector of each token where a model gives no logits.
inline ContextOptions script_options(const ModelInfo& info) {
    ContextOptions options = kScriptOptions;
    if (!info.has_output_head) options.embeddings = true;
    options.pooling = Pooling::none;
    return options;
}

inline ScriptResult run_whole(const Model& model) {
    Context context(model, script_options(model.info()));
    return PipelineScript<Context>(context, model.info()).run();
}
inline ScriptResult run_parts(const std::vector<Model>& parts) {
    const ModelInfo& info = parts.back().info();
    Pipeline pipeline(parts, script_options(info));
    return PipelineScript<Pipeline>(pipeline, info).run();
}

}  // namespace tinfer::test
