// SPDX-License-Identifier: MIT
// An observer that adds up what was touched: bytes by class of tensor and by layer. It needs no clock and no values, so
// it is the one to leave on.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto counts = std::make_shared<tinfer::AccessCounts>();
//     const auto attached = context.attach(counts);
//     if (context.decode({tinfer::Token{0}}) == tinfer::DecodeStatus::ok)
//         std::cout << counts->counts().read_of(tinfer::TensorClass::weight) << " bytes of weights\n";
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/trace.hpp"

namespace tinfer {

/// Bytes and how often. Bytes are unique in each event: what two steps read counts twice. Scratch does not count, so
/// that sums over the classes are those of KernelEvent::bytes_read and bytes_written.
struct TouchedBytes {
    static constexpr std::size_t kClasses = static_cast<std::size_t>(TensorClass::scratch) + 1;
    std::array<std::uint64_t, kClasses> read{}, written{};  ///< by TensorClass
    std::uint64_t runs = 0, steps = 0;
    std::uint64_t tokens = 0;  ///< of the runs

    [[nodiscard]] std::uint64_t read_of(TensorClass c) const noexcept { return read[static_cast<std::size_t>(c)]; }
    [[nodiscard]] std::uint64_t written_of(TensorClass c) const noexcept {
        return written[static_cast<std::size_t>(c)];
    }
    friend bool operator==(const TouchedBytes&, const TouchedBytes&) = default;
};

/// What the steps of one layer have read.
struct TouchedLayer {
    int layer = kNoLayer;  ///< kNoLayer: steps in front of the first layer and behind the last one
    std::uint64_t weight_bytes = 0, cache_bytes = 0, adapter_bytes = 0;  ///< cache: keys, values and recurrent states
    friend bool operator==(const TouchedLayer&, const TouchedLayer&) = default;
};

/// Adds up the events of the runs that it is attached for, those of decodes that were rolled back, too. Its memory does
/// not grow with them.
class TINFER_API AccessCounts : public Observer {
public:
    [[nodiscard]] const TouchedBytes& counts() const& noexcept { return counts_; }
    [[nodiscard]] const std::vector<TouchedLayer>& layers() const& noexcept { return layers_; }  ///< ascending
    const TouchedBytes& counts() const&& = delete;
    const std::vector<TouchedLayer>& layers() const&& = delete;

    [[nodiscard]] TraceRequest request() const override;
    void on_run_begin(const RunInfo&) override;
    void on_events(std::span<const KernelEvent>) override;

private:
    TouchedBytes counts_;
    std::vector<TouchedLayer> layers_;
};

}  // namespace tinfer
