// SPDX-License-Identifier: MIT
// Keys of windows: how much of the past a layer sees, which layers have one, and how those turn.
#include <algorithm>

#include "base/error.hpp"
#include "model/hparams.hpp"

namespace tinfer::model {

std::vector<bool> periodic_layers(int n_layer, int period) {
    std::vector<bool> out(static_cast<std::size_t>(n_layer));
    for (int il = 0; il < n_layer; ++il) out[static_cast<std::size_t>(il)] = period == 0 || il % period < period - 1;
    return out;
}

void read_window(KeyReader& keys, HParams& hp, WindowKind kind, std::uint32_t otherwise, int period) {
    const std::uint32_t size = keys.u32("attention.sliding_window", otherwise);
    if (size > 1u << 30) keys.bad("attention.sliding_window", cat(size), "must lie in 0 to 2^30");
    auto pattern = keys.find_layer_flags("attention.sliding_window_pattern", hp.n_layer + hp.n_layer_draft);
    if (size == 0) return;
    if (pattern) pattern->resize(static_cast<std::size_t>(hp.n_layer));  // the blocks behind are not run
    hp.windows.layers = pattern ? *pattern : periodic_layers(hp.n_layer, period);
    if (std::ranges::find(hp.windows.layers, true) == hp.windows.layers.end()) return;
    hp.windows.window = {kind, static_cast<std::int32_t>(size), hp.attention.causal};
}

bool read_window_behind_full(KeyReader& keys, HParams& hp, WindowKind kind, int period) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const bool is_array = keys.file().is_array(keys.full(kPattern));
    if (!is_array)
        period = static_cast<int>(std::min(keys.u32(kPattern, static_cast<std::uint32_t>(period)), 1u << 20));
    const std::uint32_t size = keys.u32("attention.sliding_window", 0);
    if (size > 1u << 30) keys.bad("attention.sliding_window", cat(size), "must lie in 0 to 2^30");
    if (is_array) {
        read_window(keys, hp, kind, size, 0);
        return hp.has_windowed_layers();
    }
    if (size == 0) return false;
    for (int il = 0; il < hp.n_layer; ++il) hp.windows.layers.push_back(period == 0 || il % period != 0);
    if (std::ranges::find(hp.windows.layers, true) == hp.windows.layers.end()) return false;
    hp.windows.window = {kind, static_cast<std::int32_t>(size), hp.attention.causal};
    return true;
}

std::vector<bool> windowed_layers(const HParams& hp) {
    return hp.windows.layers.empty() ? std::vector<bool>(static_cast<std::size_t>(hp.n_layer), false)
                                     : hp.windows.layers;
}

void require_window_array(KeyReader& keys) {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const std::uint32_t size = keys.require_u32("attention.sliding_window");
    if (size == 0) keys.bad("attention.sliding_window", "0", "must be above 0");
    if (!keys.file().contains(keys.full(kPattern))) keys.missing(kPattern);
    if (!keys.file().is_array(keys.full(kPattern))) keys.bad(kPattern, "one number", "must be an array, one per layer");
}

void read_window_base(KeyReader& keys, HParams& hp, float otherwise) {
    const float base = keys.f32("rope.freq_base_swa", otherwise > 0 ? otherwise : hp.rope.freq_base);
    if (!(base > 0)) keys.bad("rope.freq_base_swa", cat(base), "must be above 0");
    if (base != hp.rope.freq_base) hp.windows.freq_base = base;
}

void read_window_rotation(KeyReader& keys, HParams& hp) {
    const std::uint32_t n = keys.u32("rope.dimension_count_swa", static_cast<std::uint32_t>(hp.rope.n_rot));
    if (n < 2 || n % 2 != 0 || n > static_cast<std::uint32_t>(hp.head_dim_k))
        keys.bad("rope.dimension_count_swa", cat(n), cat("must be even and at most the head size ", hp.head_dim_k));
    if (static_cast<int>(n) != hp.rope.n_rot) hp.windows.n_rot = static_cast<int>(n);
}

}  // namespace tinfer::model
