// SPDX-License-Identifier: MIT
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
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/types.hpp"

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
