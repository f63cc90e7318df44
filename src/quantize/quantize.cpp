// SPDX-License-Identifier: MIT
#include "tinfer/tensor.hpp"

#include <cmath>

#include "base/data_check.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "quantize/encoders.hpp"

namespace tinfer {

namespace quantize {

BlockEncoder encoder_of(DType type) noexcept {
    switch (type) {
        case DType::q4_0: return encode_q4_0;
        case DType::q4_1: return encode_q4_1;
        case DType::q5_0: return encode_q5_0;
        case DType::q5_1: return encode_q5_1;
        case DType::q8_0: return encode_q8_0;
        case DType::q2_k: return encode_q2_k;
        case DType::q3_k: return encode_q3_k;
        case DType::q4_k: return encode_q4_k;
        case DType::q5_k: return encode_q5_k;
        case DType::q6_k: return encode_q6_k;
        case DType::iq4_nl: return encode_iq4_nl;
        case DType::iq4_xs: return encode_iq4_xs;
        case DType::iq1_s: return encode_iq1_s;
        case DType::iq1_m: return encode_iq1_m;
        case DType::iq2_xxs: return encode_iq2_xxs;
        case DType::iq2_xs: return encode_iq2_xs;
        case DType::iq2_s: return encode_iq2_s;
        case DType::iq3_xxs: return encode_iq3_xxs;
        case DType::iq3_s: return encode_iq3_s;
        case DType::mxfp4: return encode_mxfp4;
        case DType::nvfp4: return encode_nvfp4;
        case DType::q1_0: return encode_q1_0;
        case DType::q2_0: return encode_q2_0;
        case DType::tq1_0: return encode_tq1_0;
        case DType::tq2_0: return encode_tq2_0;
        default: return nullptr;
    }
}

namespace {

/// Throws for the first value that no encoder can take.
void check_finite(std::span<const float> row, std::int64_t index) {
    for (std::size_t i = 0; i < row.size(); ++i)
        if (!(std::fabs(row[i]) < 1e19f))  // its square must be finite, NaN is not
            fail(ErrorCode::non_finite, cat("row ", index, ", column ", i, " is ", row[i], ", no value to quantize"));
}

float mean_square(std::span<const float> row) noexcept {
    float sum = 0;
    for (const float x : row) sum += x * x;
    return sum / static_cast<float>(row.size());
}

void put_floats(DType type, std::span<const float> row, std::byte* out) noexcept {
    if (type == DType::f32) {
        std::memcpy(out, row.data(), row.size_bytes());
        return;
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
        const std::uint16_t half = type == DType::f16 ? f32_to_f16(row[i]) : f32_to_bf16(row[i]);
        std::memcpy(out + 2 * i, &half, sizeof half);
    }
}

const DTypeInfo& file_type(DType type) {
    const DTypeInfo* info = find_dtype(type);
    if (info == nullptr || is_activation(type))
        fail(ErrorCode::unsupported_tensor_type, cat("type ", static_cast<std::uint32_t>(type), " is none of files"));
    return *info;
}

void check_importance(std::span<const float> importance, std::int64_t n) {
    if (importance.empty()) return;
    if (importance.size() != static_cast<std::size_t>(n))
        fail(ErrorCode::bad_parameter, cat("importance of ", importance.size(), " columns for rows of ", n));
    for (std::size_t i = 0; i < importance.size(); ++i)
        if (!std::isfinite(importance[i]) || importance[i] < 0)
            fail(ErrorCode::bad_parameter, cat("the importance of column ", i, " is ", importance[i]));
}

/// Rows in `values` floats and `bytes` bytes, which must be as many.
std::int64_t check_rows(std::size_t values, std::size_t bytes, std::int64_t n, std::uint64_t row_bytes) {
    const auto count = values / static_cast<std::size_t>(n);
    if (values % static_cast<std::size_t>(n) != 0 || bytes != count * row_bytes)
        fail(ErrorCode::bad_parameter,
             cat(values, " values in rows of ", n, " do not fit ", bytes, " bytes in rows of ", row_bytes));
    return static_cast<std::int64_t>(count);
}

}  // namespace

}  // namespace quantize

std::string_view to_string(QuantizeSearch search) noexcept {
    switch (search) {
        case QuantizeSearch::quick: return "quick";
        case QuantizeSearch::standard: return "standard";
        case QuantizeSearch::thorough: return "thorough";
    }
    return "unknown";
}

bool can_quantize(DType type) noexcept { return is_float(type) || quantize::encoder_of(type) != nullptr; }

bool uses_importance(DType type) noexcept {
    switch (type) {
        case DType::q4_0:
        case DType::q4_1:
        case DType::q5_0:
        case DType::q5_1:
        case DType::q2_k:
        case DType::q3_k:
        case DType::q4_k:
        case DType::q5_k:
        case DType::q6_k:
        case DType::iq1_s:
        case DType::iq1_m:
        case DType::iq2_xxs:
        case DType::iq2_xs:
        case DType::iq2_s:
        case DType::iq3_xxs:
        case DType::iq3_s:
        case DType::iq4_nl:
        case DType::iq4_xs: return true;
        default: return false;
    }
}

std::uint64_t quantized_bytes(DType type, std::int64_t n) {
    const DTypeInfo& info = quantize::file_type(type);
    if (n < 1 || n % info.block_elems != 0)
        fail(ErrorCode::bad_tensor_info,
             cat("rows of ", n, " elements are not whole blocks of ", info.block_elems, " (", info.name, ")"));
    return static_cast<std::uint64_t>(row_bytes(type, n));
}

void quantize_rows(DType type, std::span<const float> rows, std::int64_t n, std::span<std::byte> out,
                   const QuantizeOptions& options) {
    const std::uint64_t bytes = quantized_bytes(type, n);
    const auto encode = quantize::encoder_of(type);
    if (encode == nullptr && !is_float(type))
        fail(ErrorCode::unsupported_tensor_type, cat(to_string(type), " cannot be written, it has no encoder"));
    const std::int64_t count = quantize::check_rows(rows.size(), out.size(), n, bytes);
    const bool weighted = uses_importance(type);
    if (weighted) quantize::check_importance(options.importance, n);
    const DTypeInfo& info = quantize::file_type(type);
    const FpEnvironment usual;
    for (std::int64_t r = 0; r < count; ++r) {
        const auto row = rows.subspan(static_cast<std::size_t>(r * n), static_cast<std::size_t>(n));
        std::byte* to = out.data() + static_cast<std::uint64_t>(r) * bytes;
        if (encode == nullptr) {
            quantize::put_floats(type, row, to);
            continue;
        }
        quantize::check_finite(row, r);
        quantize::BlockContext context{.search = options.search};
        const bool has_importance = weighted && !options.importance.empty();
        if (has_importance) context.row_mean_square = quantize::mean_square(row);
        for (std::int64_t at = 0; at < n; at += info.block_elems) {
            if (has_importance) context.importance = options.importance.data() + at;
            encode(row.data() + at, context, to);
            to += info.block_bytes;
        }
    }
    if (const auto bad = first_bad_block(type, out)) {
        const auto row_blocks = static_cast<std::uint64_t>(n / info.block_elems);
        fail(ErrorCode::bad_tensor_data,
             cat("row ", *bad / row_blocks, ", block ", *bad % row_blocks, ": the scale is not finite in ", info.name));
    }
}

void dequantize_rows(DType type, std::span<const std::byte> bytes, std::int64_t n, std::span<float> out) {
    const std::uint64_t row = quantized_bytes(type, n);
    if (!kernels::can_dequantize(type))
        fail(ErrorCode::unsupported_tensor_type, cat(to_string(type), " has no decoder"));
    const std::int64_t count = quantize::check_rows(out.size(), bytes.size(), n, row);
    for (std::int64_t r = 0; r < count; ++r)
        kernels::dequantize_row(type, bytes.data() + static_cast<std::uint64_t>(r) * row, n, out.data() + r * n);
}

}  // namespace tinfer
