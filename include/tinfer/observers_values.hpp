// SPDX-License-Identifier: MIT
// Observers that look at values: immediate delivery, so all threads wait for them after each step that they want. No
// bit of a result changes. A value inside a fused step is never stored; ContextOptions::fuse = false shows it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto finite = std::make_shared<tinfer::FiniteCheck>();
//     const auto sparsity = std::make_shared<tinfer::ActivationSparsity>();
//     const auto first = context.attach(finite), second = context.attach(sparsity);
//     if (context.decode({tinfer::Token{0}}) != tinfer::DecodeStatus::ok) return;
//     if (const auto& found = finite->first()) std::cerr << found->what << '\n';   // all is finite
//     for (const auto& layer : sparsity->layers())
//         std::cout << "layer " << layer.layer << ": " << 100 * layer.mean_active() << " % of the neurons\n";
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

/// The first value that was not finite.
struct NotFinite {
    std::uint64_t run = 0;
    std::uint32_t step = 0;
    int layer = kNoLayer;
    std::string node, kernel, tensor;
    std::uint64_t index = 0;  ///< of the element in its tensor
    float value = 0;
    std::string what;  ///< all of it as one line
};

/// Finds the first step that produces a NaN or an infinity. Results in f32 and quantized activations are looked at;
/// steps that mask (keep_groups) write infinities by design and are not.
class TINFER_API FiniteCheck : public Observer {
public:
    /// With `fail_decode` what is found is thrown (compute_failed), so the decode leaves nothing.
    explicit FiniteCheck(bool fail_decode = false);
    ~FiniteCheck() override;
    [[nodiscard]] const std::optional<NotFinite>& first() const& noexcept;
    const std::optional<NotFinite>& first() const&& = delete;
    [[nodiscard]] std::uint64_t values() const noexcept;  ///< how many were looked at

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct SparsityOptions {
    float threshold = 0;                ///< a neuron is active where |x| is above it
    std::uint32_t window = 8;           ///< tokens that SparsityLayer::overlap and ::working_set speak of, at least 1
    std::vector<int> together{};        ///< layers whose neurons are counted in pairs: 4·n² bytes for each
    std::uint64_t max_active_sets = 0;  ///< tokens whose active sets are kept, in all layers together
};

/// The feed-forward neurons of one layer, or of one expert of it: what its down projection multiplies.
struct SparsityLayer {
    int layer = kNoLayer;
    int expert = -1;  ///< -1: the layer has no experts, or this is the shared one
    std::uint64_t tokens = 0;
    std::vector<std::uint64_t> active;  ///< {n_ff}: tokens for which the neuron was active
    /// {n_ff, n_ff}, symmetric: tokens for which both were active; may be empty.
    std::vector<std::uint32_t> together{};
    /// Of tokens whose sequence had `window` tokens before, in layers without experts; 0 where there were none.
    std::uint64_t windows = 0;
    double overlap = 0;      ///< mean share of a token's active neurons that one of the `window` tokens before had, too
    double working_set = 0;  ///< mean share of neurons that the token and the `window - 1` before need together

    [[nodiscard]] TINFER_API double mean_active() const noexcept;  ///< share of the neurons, mean of the tokens
};

/// Neurons of one token that were active.
struct ActiveSet {
    int layer = kNoLayer;
    int expert = -1;
    std::uint64_t run = 0;
    std::uint32_t token = 0;             ///< row of the product: the token of the run where all go through it
    std::vector<std::uint32_t> neurons;  ///< ascending
};

/// How sparse the feed-forward layers are: what a predictor of neurons could leave out. Values are those that the down
/// projection multiplies. Where its weights are quantized that are 8-bit codes, and what is below 1/254 of the largest
/// of its block is 0.
class TINFER_API ActivationSparsity : public Observer {
public:
    explicit ActivationSparsity(SparsityOptions options = {});  ///< throws bad_parameter
    ~ActivationSparsity() override;
    [[nodiscard]] std::vector<SparsityLayer> layers() const;  ///< by layer, then expert
    [[nodiscard]] const std::vector<ActiveSet>& active_sets() const& noexcept;
    const std::vector<ActiveSet>& active_sets() const&& = delete;
    [[nodiscard]] std::string report() const;  ///< a line for each layer

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The importance of the columns of one weight.
struct ImportanceColumns {
    std::string name;                            ///< of the weight
    std::int64_t n_columns = 0, n_matrices = 1;  ///< experts or heads
    std::vector<double> sum_squares;  ///< {n_columns, n_matrices}: Σ x² of what each column was multiplied with
    std::vector<std::uint64_t> rows;  ///< {n_matrices}: how many activation rows that were
};

/// Sums of squares of what every product's columns are multiplied with: what a quantizer weighs errors by. Activations
/// are as the product sees them: 8-bit codes times scale where weights are quantized, else float32.
class TINFER_API ImportanceMatrix : public Observer {
public:
    ImportanceMatrix();
    ~ImportanceMatrix() override;
    [[nodiscard]] std::vector<ImportanceColumns> weights() const;  ///< by the weight's id, which is directory order
    /// Adds what another has seen. Throws bad_parameter where a weight has other shapes.
    void merge(const ImportanceMatrix& other);
    /// A GGUF file of `general.type` "imatrix": for each weight `NAME.in_sum2` {n_columns, n_matrices} and
    /// `NAME.counts` {1, n_matrices}, float32. Throws io_error, and compute_failed where a sum is not finite.
    /// `datasets` says what texts it was made from.
    void save(const std::filesystem::path& path, std::span<const std::string> datasets = {}) const;

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// A captured value: header and data of one record.
struct CapturedValue {
    std::uint64_t run = 0;
    std::uint32_t step = 0;
    int layer = kNoLayer;
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};  ///< contiguous dimension first
    std::string name;
    std::vector<float> data;  ///< {ne}; quantized activations as code · scale
};

struct CaptureOptions {
    std::vector<std::string> names{};  ///< globs (* and ?) on names of values, as "l_out-*"; empty: all
    std::uint64_t max_bytes = 0;       ///< of the file; what would exceed it is counted; 0: no limit
    bool overwrite = false;
};

/// Writes values as they are computed into a file of little-endian records: `TNVALUE1`; then for each value u64 run,
/// u32 step, i32 layer, i64 ne[4], u32 bytes of the name, u32 0, the name padded with zeros to 8 bytes, f32 data
/// padded to 8. A disk that fails never fails the decode: close() says so.
class TINFER_API ActivationCapture : public Observer {
public:
    explicit ActivationCapture(const std::filesystem::path& path, CaptureOptions options = {});  ///< throws io_error
    ~ActivationCapture() override;
    void close();                                           ///< throws the first error since the beginning
    [[nodiscard]] std::uint64_t captured() const noexcept;  ///< values written
    [[nodiscard]] std::uint64_t dropped() const noexcept;   ///< of those asked for: by limit or error
    [[nodiscard]] std::uint64_t elided() const noexcept;    ///< of those asked for: never stored, inside fused steps
    /// Throws io_error; damaged for what is no whole file of records.
    [[nodiscard]] static std::vector<CapturedValue> read(const std::filesystem::path& path);

    [[nodiscard]] TraceRequest request() const override;
    void on_step_end(const KernelEvent&, const StepValues&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
