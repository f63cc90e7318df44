// SPDX-License-Identifier: MIT
// What changes a model without changing its file: LoRA adapters (arXiv:2106.09685) and control vectors, attached to a
// context for all of its sequences or for one.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 2});
//     if (std::filesystem::exists("poems.gguf")) {
//         const auto poems = tinfer::Adapter::load(model, "poems.gguf");
//         tinfer::attach(context, poems, 0.5F, tinfer::SeqId{1});   // a row has the bits of being alone
//         tinfer::detach(context, poems);                           // the bits are those of before
//     }
//     if (std::filesystem::exists("calm.gguf")) {
//         const tinfer::WeightedControl calm[]{{tinfer::ControlVector::load(model, "calm.gguf"), 0.8F}};
//         tinfer::set_control_vectors(context, calm, {.first = 4, .last = 12});
//     }
//
// Changing what is attached leaves the cache as it is: cached tokens keep the effect of the adapters that they were
// computed with, and later tokens attend to them. Clear a sequence to start without it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

class Context;

/// A LoRA adapter: for some of a model's weights W a pair of small matrices, so that a product is W x + σ · B(A x) with
/// σ = scale · alpha / rank (scale alone where the file has no alpha). Weights stay as they are. A cheap handle to
/// immutable shared state, usable from any thread and in any number of contexts of the model it was loaded for.
class TINFER_API Adapter {
public:
    /// Reads the file into memory and checks it against the model. `log` gets a line for each tensor that is ignored.
    /// Throws the codes of the container; not_adapter, arch_mismatch, bad_adapter_tensor, missing_base_tensor,
    /// unsupported_tensor_type, unsupported_operation (an adapter that is switched on by tokens), bad_key.
    static Adapter load(const Model& model, const std::filesystem::path& path, const LogSink& log = {});

    [[nodiscard]] const std::string& name() const& noexcept;           ///< the path, as messages show it
    [[nodiscard]] float alpha() const noexcept;                        ///< 0: none
    [[nodiscard]] int n_pairs() const noexcept;                        ///< weights that it changes
    [[nodiscard]] std::uint64_t bytes() const noexcept;                ///< of its tensors in memory
    [[nodiscard]] const std::string& task_name() const& noexcept;      ///< "" where the file has none
    [[nodiscard]] const std::string& prompt_prefix() const& noexcept;  ///< the same
    /// SHA-256 of what it does: alpha, and names, types, shapes and bytes of its pairs.
    [[nodiscard]] const std::array<std::uint8_t, 32>& fingerprint() const& noexcept;
    const std::string& name() const&& = delete;
    const std::string& task_name() const&& = delete;
    const std::string& prompt_prefix() const&& = delete;
    const std::array<std::uint8_t, 32>& fingerprint() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit Adapter(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// Directions that are added to the residual stream after a layer: n_embd floats for each of some layers, never for
/// layer 0. A handle like Adapter.
class TINFER_API ControlVector {
public:
    /// Throws the codes of the container; not_adapter (no directions), arch_mismatch, bad_adapter_tensor.
    static ControlVector load(const Model& model, const std::filesystem::path& path);

    [[nodiscard]] const std::string& name() const& noexcept;                          ///< the path, as messages show it
    [[nodiscard]] int n_layers() const noexcept;                                      ///< that have a direction
    [[nodiscard]] const std::array<std::uint8_t, 32>& fingerprint() const& noexcept;  ///< SHA-256 of the directions
    const std::string& name() const&& = delete;
    const std::array<std::uint8_t, 32>& fingerprint() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit ControlVector(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

/// An adapter times a factor.
struct WeightedAdapter {
    Adapter adapter;
    float scale = 1;
};

/// A control vector times a factor.
struct WeightedControl {
    ControlVector vector;
    float strength = 1;
};

/// Layers first … last, both included; -1: to the last one.
struct LayerRange {
    int first = 1, last = -1;
};

/// From the next decode on the adapter takes part in the products of all sequences, or of `seq`; where it is attached
/// already, its scale changes. Scale 0: attached, but not computed. Several adapters add up, in an order that does not
/// depend on the order of attaching, and neither does any bit. Throws bad_parameter (a scale that is not finite),
/// bad_sequence, model_mismatch (loaded for another model), bad_adapter_tensor (a weight that the context multiplies
/// nothing with), unsupported_operation, limit_exceeded (ContextOptions::memory_limit), and busy while a decode is
/// pending or an observer attached: observers learn the list of tensors once, when they are attached. An exception
/// changes nothing. Allocates; decodes after it do not. A token that belongs to several sequences needs the same
/// adapters in all of them (invalid_batch).
TINFER_API void attach(Context& context, const Adapter& adapter, float scale = 1);
TINFER_API void attach(Context& context, const Adapter& adapter, float scale, SeqId seq);
/// Throws bad_parameter where it is not attached, and busy as attach() does.
TINFER_API void detach(Context& context, const Adapter& adapter);
TINFER_API void detach(Context& context, const Adapter& adapter, SeqId seq);
/// Detaches all adapters; control vectors stay.
TINFER_API void clear_adapters(Context& context);
/// The scale of an adapter in a sequence; nullopt where it is not attached.
[[nodiscard]] TINFER_API std::optional<float> adapter_scale(const Context& context, const Adapter& adapter, SeqId seq);

/// From the next decode on, in place of what was set before, Σ strength · direction is added to the residual stream
/// after each layer of the range, in all sequences. An empty list switches them off. Throws bad_parameter (a strength
/// that is not finite, a range that is not in 1 … n_layer-1), model_mismatch, unsupported_operation (layers with
/// several residual streams), and what attach() does.
TINFER_API void set_control_vectors(Context& context, std::span<const WeightedControl> vectors, LayerRange range = {});

}  // namespace tinfer
