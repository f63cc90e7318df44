// SPDX-License-Identifier: MIT
// Receipts: what a generation was made of, in a small file, so that anybody can make it again and see that it is the
// same to the bit, or where it is not.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     const tinfer::ContextOptions options{.n_ctx = 256};
//     tinfer::Receipt receipt;
//     {
//         tinfer::Context context(model, options);
//         tinfer::Sampler sampler(model.vocab(), {.seed = 42});
//         const auto prompt = model.vocab().encode("Once upon a time");
//         tinfer::Generation story(model.vocab(), prompt, {.n_predict = 20});
//         const auto recorder = std::make_shared<tinfer::ReceiptRecorder>(context, options);
//         const auto attached = context.attach(recorder);
//         story.run(context, sampler);
//         receipt = recorder->receipt(prompt, sampler);
//         receipt.add_hashes(model);              // of weights and of each node's values: what locates a difference
//     }
//     const auto again = tinfer::Receipt::parse(receipt.json(), "story.json");
//     tinfer::Context other(model, again.context_options({.n_threads = 1, .isa = tinfer::Isa::reference}));
//     std::cout << tinfer::replay(again, other).text() << '\n';        // "equal: 20 tokens, …"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/model.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

/// A name and XXH64 (seed 0) of its bytes.
struct NamedHash {
    std::string name;
    std::uint64_t hash = 0;
    friend bool operator==(const NamedHash&, const NamedHash&) = default;
};

/// XXH64 of the bytes of every tensor of a file, in directory order. Reads all of it. Throws io_error, truncated, and
/// cancelled where `progress` (of the bytes) says so.
[[nodiscard]] TINFER_API std::vector<NamedHash> hash_tensors(const ModelFile& file, const ProgressFn& progress = {});

/// One generation: what went in, what came out, and hashes of what lay between. A value.
struct TINFER_API Receipt {
    std::string library;                                             ///< version that made it
    std::vector<std::string> files{};                                ///< paths of the model's shards
    std::array<std::uint8_t, 16> fingerprint{};                      ///< ModelFile::fingerprint: of a sample
    std::optional<std::array<std::uint8_t, 16>> full_fingerprint{};  ///< of every byte, where that was known
    std::string architecture;
    int n_vocab = 0;
    std::vector<MetadataOverride> overrides{};

    /// Of these the ones that change results count: n_ctx, cache types, swa_full, attention, rope and yarn.
    ContextOptions options{};
    std::string isa;  ///< table and threads it was made with, for the reader: no bit depends on them
    int n_threads = 0;
    std::string sampler;       ///< Sampler::describe, with its seed
    bool constrained = false;  ///< a grammar or a link of the program's own took part: draws cannot be repeated
    std::int64_t n_predict = -1;
    std::vector<std::string> stops{};
    std::string stop;  ///< what ended it: a StopReason's name

    std::vector<Token> encoded{};  ///< what an encoder in front of the decoder read
    std::vector<Token> prompt{};
    std::vector<Token> tokens{};         ///< as drawn, one that ended the generation included
    std::vector<std::uint64_t> steps{};  ///< per token: first 8 bytes, big-endian, of the SHA-256 of all rows so far
    Sha256::Digest logits{};             ///< SHA-256 of the rows that tokens were drawn from, in order, as float32
    std::vector<NamedHash> nodes{};      ///< values of each node of the graph over prompt and tokens, in graph order
    std::vector<NamedHash> weights{};

    /// Hashes weights, and what every node of the graph makes of prompt and tokens: one prefill in a context of its
    /// own. In builds without tracing there are no hashes of nodes.
    void add_hashes(const Model& model, const ProgressFn& progress = {});
    /// `base` with what changes results taken from the receipt, and room for replay().
    [[nodiscard]] ContextOptions context_options(ContextOptions base = {}) const;
    /// A sampler as it was before the first draw. Throws bad_parameter where the text of the chain says nothing known.
    [[nodiscard]] Sampler make_sampler(const Vocab& vocab) const;

    /// docs/receipts.md. The last member is a SHA-256 of all before it.
    [[nodiscard]] std::string json() const;
    /// Throws damaged, naming `name` and the place, for everything that json() has not written; unsupported_version.
    [[nodiscard]] static Receipt parse(std::string_view json, std::string_view name);
};

/// Notes each token that Sampler::sample(Context&) draws, with the row it is drawn from. Attach it before the prompt is
/// decoded; the Context object must not be moved while it is attached. One sequence.
class TINFER_API ReceiptRecorder : public Observer {
public:
    /// `made_with`: the options that the context was made with.
    ReceiptRecorder(const Context& context, ContextOptions made_with);

    /// The receipt of what was drawn so far. `prompt` and `encoded`: what the decoder and, where there is one, the
    /// encoder read. The caller fills in overrides, n_predict, stops, stop and constrained.
    [[nodiscard]] Receipt receipt(std::span<const Token> prompt, const Sampler& sampler,
                                  std::span<const Token> encoded = {}) const;
    /// A token that was drawn elsewhere, for builds without observers.
    void add(std::span<const float> row, Token token);

    [[nodiscard]] TraceRequest request() const override;
    void on_sample(const SampleEvent& event) override;

private:
    const Context* context_;
    ContextOptions options_;
    std::vector<Token> tokens_;
    std::vector<std::uint64_t> steps_;
    Sha256 rows_;
    Sha256 rows_before_;  // without the last row
    std::uint64_t last_outputs_ = ~std::uint64_t{0};
    int last_index_ = -1;
};

struct ReplayOptions {
    /// Tokens that are put through the context; nullopt: as many as comparing all rows takes. With k, the context then
    /// holds the prompt and the first k tokens, and its last output row is the one that token k was drawn from.
    std::optional<std::size_t> n_tokens{};
    Sampler* sampler = nullptr;  ///< draws from each row, and has then accepted these tokens; null: a new one
    bool locate = true;          ///< where something differs: finds the first node, and the tensors whose bytes differ
    bool check_weights = true;   ///< compares the hashes of weights also where all results are equal
    std::function<void(std::size_t step, std::span<const float> row)> on_row{};  ///< each row, before it is drawn from
};

/// What a replay found.
struct TINFER_API ReplayReport {
    std::size_t n_rows = 0;                   ///< compared
    std::optional<std::size_t> first_row{};   ///< the first one that differs: index into Receipt::tokens
    std::optional<std::size_t> first_draw{};  ///< the first token that the sampler drew differently
    Token drawn{-1};                          ///< that draw
    bool drew = false;                        ///< a sampler drew from the rows
    bool same_file = false;                   ///< by fingerprint: that of every byte where both are known
    bool checked_weights = false;
    std::vector<std::string> weights{};  ///< tensors whose bytes, or whose being there, differ, in directory order
    std::string node;                    ///< first node whose values differ; "" where none does or none was looked for
    std::vector<std::string> node_weights{};  ///< weights that it reads

    [[nodiscard]] bool equal() const noexcept { return !first_row && !first_draw; }
    /// One to three lines, without a line break at the end: "equal: …" or "differs: …".
    [[nodiscard]] std::string text() const;
};

/// Puts prompt and tokens of a receipt through an empty context (sequence 0) and compares. Any threads, table, batch
/// sizes and any model of the same vocabulary may be in use. Throws bad_parameter where the receipt does not fit the
/// model's vocabulary, no_room, cancelled, and what decoding throws.
[[nodiscard]] TINFER_API ReplayReport replay(const Receipt& receipt, Context& context,
                                             const ReplayOptions& options = {});

/// What two contexts make of the same tokens.
struct ComparedToken {
    struct Alternative {
        Token token;
        double p;
    };
    struct Side {
        Token choice{-1};  ///< what the receipt's sampler draws from this row
        int rank = 0;      ///< of the recorded token, from 1
        double p = 0;      ///< of the recorded token
        double p_choice = 0;
        std::vector<Alternative> top{};  ///< the most probable, descending
    };
    Token token{-1};  ///< recorded
    Side a, b;
    double kl = 0;  ///< Σ p_a (ln p_a − ln p_b), nats
};

struct TINFER_API Comparison {
    std::vector<ComparedToken> tokens;
    std::optional<std::size_t> first_parted{};  ///< first token whose choices differ
    std::optional<std::size_t> first_bits{};    ///< first row that is not the same to the bit
    double mean_kl = 0, max_kl = 0;
    double same_choice = 0;       ///< share of tokens
    double ppl_a = 0, ppl_b = 0;  ///< of the recorded tokens
};

/// Runs the recorded tokens through both contexts (empty, sequence 0). `n_top`: alternatives per row. Throws as
/// replay(), and bad_parameter where the vocabularies differ in size; non_finite_logits.
[[nodiscard]] TINFER_API Comparison compare(const Receipt& receipt, Context& a, Context& b, int n_top = 5);

}  // namespace tinfer
