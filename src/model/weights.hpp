// SPDX-License-Identifier: MIT
// Weights by their GGUF role, and the binder that finds them: required tensors with their exact shape and a type usable in
// their role. A model loads only when every tensor of the file is used: silent ignoring is how engines produce fluent
// nonsense.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.hpp"
#include "model/hparams.hpp"

namespace tinfer::model {

/// One linear map: y = W x (+ b).
struct Linear {
    const TensorInfo* weight = nullptr;
    const TensorInfo* bias = nullptr;
    [[nodiscard]] explicit operator bool() const noexcept { return weight != nullptr; }
};

/// Per-layer weights; absent ones are null. Names are GGUF roles.
struct LayerWeights {
    const TensorInfo* attn_norm = nullptr;
    Linear attn_q, attn_k, attn_v, attn_output;
    const TensorInfo *attn_q_norm = nullptr, *attn_k_norm = nullptr;
    const TensorInfo* attn_sinks = nullptr;                          ///< one logit per head
    const TensorInfo* ffn_norm = nullptr;
    Linear ffn_gate, ffn_up, ffn_down;
    Linear ffn_gate_inp;                                             ///< router
    const TensorInfo *ffn_gate_exps = nullptr, *ffn_up_exps = nullptr, *ffn_down_exps = nullptr;
    Linear ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp, ffn_gate_inp_shexp;
};

struct Weights {
    const TensorInfo* token_embd = nullptr;
    const TensorInfo* output_norm = nullptr;
    Linear output;                              ///< weight = token_embd where the head is tied
    const TensorInfo *rope_freqs = nullptr, *rope_factors_long = nullptr, *rope_factors_short = nullptr;
    std::vector<LayerWeights> layers;
};

class WeightBinder {
public:
    WeightBinder(const gguf::File& file, std::string_view arch);

    /// Matrices and embeddings: any type with kernels. `name` without ".weight".
    const TensorInfo* matrix(std::string_view name, std::initializer_list<std::int64_t> shape);
    const TensorInfo* find_matrix(std::string_view name, std::initializer_list<std::int64_t> shape);
    /// Norm weights, biases, tables: f32, f16 or bf16. `name` in full.
    const TensorInfo* vector(std::string_view name, std::int64_t n);
    const TensorInfo* find_vector(std::string_view name, std::int64_t n);
    /// RoPE factor tables: f32 with at least n entries.
    const TensorInfo* find_factors(std::string_view name, std::int64_t n);

    enum class Bias : std::uint8_t { none, optional, required };
    Linear linear(std::string_view name, std::int64_t n_in, std::int64_t n_out, Bias bias = Bias::none);

    [[nodiscard]] bool exists(std::string_view name) const noexcept { return file_->find_tensor(name) != nullptr; }
    [[nodiscard]] const gguf::File& file() const noexcept { return *file_; }
    [[nodiscard]] const std::string& arch() const noexcept { return arch_; }
    void ignore(std::string_view name);
    /// Every tensor is bound or on the ignore list; otherwise unused_tensor (or a warning, by option).
    void finish(const ModelOptions& options) const;

private:
    const TensorInfo* check(const TensorInfo* tensor, std::string_view name, std::span<const std::int64_t> shape, bool matrix);
    const gguf::File* file_;
    std::string arch_;
    std::vector<bool> used_;
};

/// "blk.3.attn_q"
[[nodiscard]] std::string block_name(int layer, std::string_view role);

}  // namespace tinfer::model
