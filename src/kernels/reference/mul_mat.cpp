// SPDX-License-Identifier: MIT
#include "kernels/reference/ops.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/reduce.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/formats.hpp"

namespace tinfer::kernels::ref {

namespace {

/// One input row, where its products go, and what is added to them (or null).
struct Column {
    std::byte* x;
    float* out;
    const float* addend;
};

/// A few columns at a time, so that a block is unpacked once for all of them.
struct ColumnTile {
    static constexpr int kMax = 16;
    Column columns[kMax];
    int n = 0;
};

// ---- One output element: the order of float steps that defines the product (kernels.md §4.1, numerics rules 3, 5) ---

/// S = Σ_j scale_j · Σ q·a and N = Σ_j min_j · Σ a are exact (ranges: beside kMaxCode of each format);
/// acc = fma(d·d_x, S, acc), then acc = fma(−dmin·d_x, N, acc).
template <class Format>
float add_block(const Codes256& w, const Activations& x, std::int64_t b, float acc) noexcept {
    std::int32_t s = 0, n = 0;
    for (int j = 0; j < 16; ++j) {
        const std::int8_t* a = x.q + 256 * b + 16 * j;
        std::int32_t sum = 0;
        for (int i = 0; i < 16; ++i) sum += w.q[16 * j + i] * a[i];
        s += w.scale[j] * sum;
        if constexpr (Format::kHasMin) n += w.min[j] * x.sum16[16 * b + j];
    }
    acc = std::fma(w.d * x.d[b], static_cast<float>(s), acc);
    if constexpr (Format::kHasMin) acc = std::fma(-(w.dmin * x.d[b]), static_cast<float>(n), acc);
    return acc;
}

/// acc = fma(d·d_x, Σ q·a, acc) over 32 values, or over 16 and 16 where each half has its d; then acc = fma(m, s_x,
/// acc).
template <class Format>
float add_block(const Codes32& w, const Activations& x, std::int64_t b, float acc) noexcept {
    constexpr int kRun = Format::kScaleElems;
    for (int first = 0; first < 32; first += kRun) {
        std::int32_t s = 0;
        for (int i = first; i < first + kRun; ++i) s += w.q[i] * x.q[32 * b + i];
        acc = std::fma(w.d[first / 16] * x.d[b], static_cast<float>(s), acc);
    }
    if constexpr (Format::kHasMin) acc = std::fma(w.m, x.s[b], acc);
    return acc;
}

// ---- One weight row against a tile of columns -----------------------------------------------------------------------

/// Weights in block format, activations quantized: one accumulator per column, blocks in ascending order.
template <class Format>
struct QuantizedRow {
    static void multiply(const std::byte* row, std::int64_t k, const ColumnTile& tile, float* acc) noexcept {
        constexpr DType kActivation = Format::kUnit == 256 ? DType::x8_256 : DType::x8_32;
        constexpr int kUnits = Format::kBlockElems / Format::kUnit;
        Activations x[ColumnTile::kMax];
        for (int c = 0; c < tile.n; ++c) x[c] = activation_parts<reference>(kActivation, k, tile.columns[c].x);

        const auto* block = reinterpret_cast<const std::uint8_t*>(row);
        for (std::int64_t b = 0; b < k / Format::kBlockElems; ++b, block += Format::kBlockBytes)
            for (int unit = 0; unit < kUnits; ++unit) {
                std::conditional_t<Format::kUnit == 256, Codes256, Codes32> codes;
                Format::template unpack<reference>(block, unit, codes);
                for (int c = 0; c < tile.n; ++c) acc[c] = add_block<Format>(codes, x[c], kUnits * b + unit, acc[c]);
            }
    }
};

/// Float weights, widened exactly, against float activations: 16 lanes per column, the tail padded with zeros.
template <DType type>
struct FloatRow {
    static void multiply(const std::byte* row, std::int64_t k, const ColumnTile& tile, float* acc) noexcept {
        constexpr std::int64_t kBytes = type == DType::f32 ? 4 : 2;
        float lanes[ColumnTile::kMax][16] = {};
        for (std::int64_t first = 0; first < k; first += 16) {
            const std::int64_t n = k - first < 16 ? k - first : 16;
            float w[16] = {};
            dequantize_row(type, row + first * kBytes, n, w);
            for (int c = 0; c < tile.n; ++c) {
                float x[16] = {};
                std::memcpy(x, tile.columns[c].x + first * 4, static_cast<std::size_t>(n) * 4);
                for (int l = 0; l < 16; ++l) lanes[c][l] = std::fma(w[l], x[l], lanes[c][l]);
            }
        }
        for (int c = 0; c < tile.n; ++c) acc[c] = reduce16(lanes[c]);
    }
};

template <class Row>
void multiply_rows(const Operand& w, std::int64_t matrix, Range rows, const ColumnTile& tile) noexcept {
    for (std::int64_t n = rows.begin; n < rows.end; ++n) {
        float acc[ColumnTile::kMax] = {};
        Row::multiply(w.row<std::byte>(n, matrix), w.ne[0], tile, acc);
        for (int c = 0; c < tile.n; ++c) {
            const Column& column = tile.columns[c];
            column.out[n] = column.addend == nullptr ? acc[c] : acc[c] + column.addend[n];
        }
    }
}

/// Rows of matrix number `matrix` of a stack times a tile, for whatever type the weights have.
void multiply_micro_tile(const Operand& w, std::int64_t matrix, Range rows, const ColumnTile& tile) noexcept {
    switch (w.type) {
        case DType::f32: return multiply_rows<FloatRow<DType::f32>>(w, matrix, rows, tile);
        case DType::f16: return multiply_rows<FloatRow<DType::f16>>(w, matrix, rows, tile);
        case DType::bf16: return multiply_rows<FloatRow<DType::bf16>>(w, matrix, rows, tile);
        default:
            with_format<reference>(
                w.type, [&](auto format) { multiply_rows<QuantizedRow<decltype(format)>>(w, matrix, rows, tile); });
    }
}

}  // namespace

void mul_mat_add(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &w = call[1], &x = call[2], &addend = call[3];
    const Range rows = slice.share(w.ne[1]);
    const std::int64_t n_columns = x.n_rows();
    for (std::int64_t first = 0; first < n_columns; first += ColumnTile::kMax) {
        ColumnTile tile;
        for (std::int64_t t = first; t < n_columns && tile.n < ColumnTile::kMax; ++t) {
            const float* added = nullptr;
            if (addend.present()) added = addend.flat_row<const float>(addend.n_rows() == 1 ? 0 : t);
            tile.columns[tile.n++] = {x.flat_row<std::byte>(t), out.flat_row<float>(t), added};
        }
        multiply_micro_tile(w, 0, rows, tile);
    }
}

void mul_mat(const KernelCall& call, WorkSlice slice) noexcept { mul_mat_add(call, slice); }  // slot 3 is absent

void mul_mat_id(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &w = call[1], &x = call[2], &ids = call[3];
    const Range rows = slice.share(w.ne[1]);
    // Columns are gathered by expert; experts without tokens are never touched.
    for (std::int64_t expert = 0; expert < w.ne[2]; ++expert) {
        ColumnTile tile;
        for (std::int64_t t = 0; t < out.ne[2]; ++t)
            for (std::int64_t i = 0; i < out.ne[1]; ++i) {
                if ((ids.present() ? ids.row<const std::int32_t>(t)[i] : i) != expert) continue;
                tile.columns[tile.n++] = {x.row<std::byte>(x.ne[1] == 1 ? 0 : i, t), out.row<float>(i, t), nullptr};
                if (tile.n < ColumnTile::kMax) continue;
                multiply_micro_tile(w, expert, rows, tile);
                tile.n = 0;
            }
        if (tile.n > 0) multiply_micro_tile(w, expert, rows, tile);
    }
}

void mul_mat_heads(const KernelCall& call, WorkSlice slice) noexcept { mul_mat_id(call, slice); }

void quantize(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t k = x.ne[0], n_blocks = k / (out.type == DType::x8_32 ? 32 : 256);
    // Threads share blocks, not rows, because one token has one row.
    const Range blocks = slice.share(n_blocks * x.n_rows());
    for (std::int64_t b = blocks.begin; b < blocks.end;) {
        const std::int64_t r = b / n_blocks, left = blocks.end - r * n_blocks, end = left < n_blocks ? left : n_blocks;
        std::byte* row = out.flat_row<std::byte>(r);
        quantize_activation<reference>(out.type, x.flat_row<const float>(r), k, row, b % n_blocks, end);
        b = r * n_blocks + end;
    }
}

void get_rows(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &matrix = call[1], &ids = call[2];
    const Range share = slice.share(ids.ne[0]);
    for (std::int64_t t = share.begin; t < share.end; ++t) {
        const std::byte* row = matrix.row<const std::byte>(ids.row<const std::int32_t>(0)[t]);
        if (matrix.type == out.type)
            std::memcpy(out.row<std::byte>(t), row, static_cast<std::size_t>(row_bytes(out.type, out.ne[0])));
        else dequantize_row(matrix.type, row, matrix.ne[0], out.row<float>(t));
    }
}

}  // namespace tinfer::kernels::ref
