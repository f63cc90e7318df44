// SPDX-License-Identifier: MIT
// Several tokens from one decode. Chapters: drafts, draft heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/model.hpp"

// ====================================================== drafts =======================================================
// Speculation: draft the next tokens, verify all in one decode, accept those that the sampler draws too. Tokens,
// text and logits are the ones of a generation without it; only the time differs.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 2048, .n_outputs = 16});  // a row for each token verified
//     tinfer::Sampler sampler(model.vocab(), {.seed = 42});
//     tinfer::GenerationOptions options{.n_predict = 40};
//     options.speculation.drafter = tinfer::ngram_drafter();
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), options);
//     while (const auto text = story.next(context, sampler)) std::cout << *text << std::flush;
//     std::cout << '\n' << story.timings().accepted_n << " of " << story.timings().drafted_n << " accepted\n";
namespace tinfer {

/// What a drafter has proposed: n tokens, and how sure it is, from 0 to 7. How often drafts of each degree are
/// accepted is learned, so a degree must mean the same in every call.
struct Draft {
    std::size_t n = 0;
    int confidence = 0;
};

/// Drafts how a text goes on. Subclass it for a drafter of your own. A refused draft costs time and nothing else. One
/// thread at a time.
class TINFER_API Drafter {
public:
    virtual ~Drafter() = default;
    /// Writes at most out.size() tokens that may follow the text. `text` is all of the sequence so far; it need not
    /// continue that of the last call.
    virtual Draft draft(std::span<const Token> text, std::span<Token> out) = 0;
    [[nodiscard]] virtual std::unique_ptr<Drafter> clone() const = 0;
};

struct NgramOptions {
    int n_min = 1, n_max = 8;  ///< tokens at the end of the text that have to have occurred before
    int window = 65536;        ///< tokens at the end of the text that are looked at
};
/// Proposes what followed the last occurrence of the longest suffix of the text that occurs earlier. No memory, no
/// model. Throws bad_parameter.
[[nodiscard]] TINFER_API std::unique_ptr<Drafter> ngram_drafter(const NgramOptions& options = {});

struct ModelDrafterOptions {
    ContextOptions context{};  ///< of the draft model; the sequences and outputs it needs are added
    float p_min = 0.75f;       ///< a draft ends before the first token that is less probable
};
/// Proposes what a smaller model finds most probable. It runs in a context of its own, on the thread that generates.
/// Throws bad_parameter naming the token where the vocabularies differ, and what making a context throws.
[[nodiscard]] TINFER_API std::unique_ptr<Drafter> model_drafter(const Model& target, const Model& draft,
                                                                const ModelDrafterOptions& options = {});

/// Of a generation. Nothing is drafted where there is no drafter and nothing is forced.
struct SpeculationOptions {
    /// The generation's own; copies of the generation have clones of it.
    std::shared_ptr<Drafter> drafter{};
    /// Where the drafter has nothing to propose, or there is none: the context's draft head
    /// (ContextOptions::draft_head).
    bool head = true;
    /// Tokens that a constraint of the sampler leaves no choice about are drafted, too (TokenConstraint::forced).
    bool forced = true;
    int n_max = 15;  ///< most tokens of a draft, up to 63; ContextOptions::n_outputs − 1 is a limit as well
    /// The length of drafts follows what verifying costs and how often it accepts, down to none. False: drafts are
    /// as long as they can be.
    bool adapt = true;
    std::vector<Token> before{};  ///< what the sequence has already, in front of the prompt
};

}  // namespace tinfer

// ==================================================== draft heads ====================================================
// Draft heads: trained parts that draft the next tokens of one certain model from what it has just computed. A model's
// file may bring one (blocks for "multi-token prediction"), or a file of its own is made for it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::ContextOptions options{.n_ctx = 2048, .n_outputs = 16};
//     if (tinfer::DraftHead::is_in(model)) options.draft_head = tinfer::DraftHead::of(model);
//     tinfer::Context context(model, options);
//     tinfer::Sampler sampler(model.vocab(), {.seed = 42});
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), {.n_predict = 40});
//     while (const auto text = story.next(context, sampler)) std::cout << *text << std::flush;
//     std::cout << '\n' << story.timings().accepted_n << " of " << story.timings().drafted_n << " accepted\n";
namespace tinfer {

/// mtp: blocks like the model's own, which read its last state and the next token. eagle3: one block over states of
/// three layers. dflash, dspark, dflash2: all tokens in one pass. assistant: a small model that attends to the cache of
/// the large one.
enum class DraftKind : std::uint8_t { mtp, eagle3, dflash, dspark, dflash2, assistant };
[[nodiscard]] TINFER_API std::string_view to_string(DraftKind kind) noexcept;

struct DraftHeadOptions {
    float p_min = 0;      ///< a draft ends before the first token that is less probable, 0 to 1
    ModelOptions file{};  ///< of load()
};

/// A head and the model it was made for, which it keeps alive. Immutable, usable from any thread. What it drafts
/// changes the time of a generation and nothing else.
class TINFER_API DraftHead {
public:
    /// Whether the model's own file has blocks that draft.
    [[nodiscard]] static bool is_in(const Model& model) noexcept;
    /// The blocks of the model's own file. Throws unsupported_arch where it has none, or they are not supported here;
    /// missing_tensor, bad_key and what loading throws.
    [[nodiscard]] static std::shared_ptr<const DraftHead> of(const Model& model, const DraftHeadOptions& options = {});
    /// A file that drafts for this model. Throws what loading a model throws; arch_mismatch, bad_key, bad_parameter and
    /// missing_tensor where it is not for this one.
    [[nodiscard]] static std::shared_ptr<const DraftHead> load(const Model& model, const std::filesystem::path& path,
                                                               const DraftHeadOptions& options = {});
    /// Whether a file is a draft head and no model.
    [[nodiscard]] static bool is_head(const ModelFile& file);

    [[nodiscard]] DraftKind kind() const noexcept;
    /// Most tokens of one draft.
    [[nodiscard]] int n_max() const noexcept;
    [[nodiscard]] std::uint64_t weight_bytes() const noexcept;  ///< of its own tensors

    ~DraftHead();
    struct Impl;  ///< the library's own
    explicit DraftHead(std::unique_ptr<const Impl> impl) noexcept;

private:
    friend struct detail::Access;
    std::unique_ptr<const Impl> impl_;
};

}  // namespace tinfer
