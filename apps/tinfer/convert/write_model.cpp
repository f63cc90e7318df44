// SPDX-License-Identifier: MIT
#include "convert/write_model.hpp"

#include <tinfer/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "convert/text.hpp"
#include "convert/values.hpp"

namespace tinfer::convert {

namespace {

/// Values of a piece: 16 MiB of f32, and as much of what is read and written at most.
constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 22, kMaxRow = std::uint64_t{1} << 25;

/// One tensor cut into rows; a vector is cut anywhere.
class TensorPieces {
public:
    TensorPieces(const WeightFiles& files, const TargetTensor& tensor, int n_threads)
        : files_(files), tensor_(tensor), n_threads_(n_threads),
          row_(tensor.ne.size() > 1 ? static_cast<std::uint64_t>(tensor.ne[0]) : tensor.unit),
          n_rows_(tensor.elements() / row_), row_bytes_(quantized_bytes(tensor.type, static_cast<std::int64_t>(row_))) {
        if (row_ > kMaxRow)
            fail(ErrorCode::limit_exceeded, label(), ": rows of ", row_, " values, at most ", kMaxRow,
                 " are converted");
    }

    [[nodiscard]] std::uint64_t n_rows() const { return n_rows_; }
    [[nodiscard]] std::uint64_t rows_of_piece() const { return std::max<std::uint64_t>(1, kPieceValues / row_); }
    [[nodiscard]] std::uint64_t row() const { return row_; }

    /// The bytes of rows [first, first + n), made by all threads. Throws bad_tensor_data where a value is not finite.
    void encode(std::uint64_t first, std::uint64_t n, std::vector<std::byte>& out) const {
        out.resize(static_cast<std::size_t>(n * row_bytes_));
        const std::uint64_t n_parts =
            std::clamp<std::uint64_t>(n * row_ / 65536, 1, static_cast<std::uint64_t>(n_threads_));
        std::vector<std::exception_ptr> errors(n_parts);
        std::atomic<bool> is_finite{true};
        const auto run = [&](std::uint64_t part) {
            const std::uint64_t begin = n * part / n_parts, end = n * (part + 1) / n_parts;
            try {
                if (!encode_rows(first + begin, end - begin,
                                 std::span(out).subspan(begin * row_bytes_, (end - begin) * row_bytes_)))
                    is_finite = false;
            } catch (...) {
                errors[part] = std::current_exception();
            }
        };
        {
            std::vector<std::jthread> threads;
            for (std::uint64_t part = 1; part < n_parts; ++part) threads.emplace_back(run, part);
            run(0);
        }
        if (!is_finite) refuse_values();
        for (const std::exception_ptr& error : errors)
            if (error) std::rethrow_exception(error);
    }

private:
    [[nodiscard]] std::string label() const {
        return tensor_.parts.empty() ? tensor_.name : files_.label(*tensor_.parts[0].source);
    }

    [[nodiscard]] std::vector<float> values_of(std::uint64_t first, std::uint64_t n) const {
        std::vector<float> values(static_cast<std::size_t>(n * row_));
        read_values(files_, tensor_, first * row_ / tensor_.unit, values);
        return values;
    }

    /// Looks through the whole tensor, so that the error says how much of it is damaged.
    [[noreturn]] void refuse_values() const {
        std::uint64_t n_bad = 0, first_bad = 0;
        float value = 0;
        for (std::uint64_t first = 0; first < n_rows_; first += rows_of_piece()) {
            const auto values = values_of(first, std::min(rows_of_piece(), n_rows_ - first));
            for (std::size_t i = 0; i < values.size(); ++i) {
                if (std::isfinite(values[i]) || n_bad++ > 0) continue;
                first_bad = first * row_ + i;
                value = values[i];
            }
        }
        const bool has_rows = tensor_.ne.size() > 1;
        fail(ErrorCode::bad_tensor_data, label(), ": ", n_bad, " of ", tensor_.elements(),
             " values are not finite, the first, ", value,
             has_rows ? cat(", in row ", first_bad / row_, ", column ", first_bad % row_) : cat(" at ", first_bad));
    }

    /// False: a value is not finite, and the bytes are none.
    [[nodiscard]] bool encode_rows(std::uint64_t first, std::uint64_t n, std::span<std::byte> out) const {
        if (n == 0) return true;
        const std::vector<float> values = values_of(first, n);
        if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) return false;
        if (tensor_.type == DType::f32) {
            std::memcpy(out.data(), values.data(), out.size());
            return true;
        }
        if (tensor_.type == DType::f16)
            for (std::size_t i = 0; i < values.size(); ++i)
                if (std::abs(values[i]) >= 65520.0f)  // rounds to infinity
                    fail(ErrorCode::bad_tensor_data, label(), ": row ", first + i / row_, " holds ", values[i],
                         ", which f16 does not (see --type bf16)");
        try {
            quantize_rows(tensor_.type, values, static_cast<std::int64_t>(row_), out);
        } catch (const Error& error) {
            throw Error(error.code(), cat(label(), ": from row ", first, " on: ", error.what()));
        }
        return true;
    }

    const WeightFiles& files_;
    const TargetTensor& tensor_;
    int n_threads_;
    std::uint64_t row_, n_rows_, row_bytes_;
};

}  // namespace

void declare(const Plan& plan, ModelWriter& writer) {
    for (const auto& [key, value] : plan.metadata)
        std::visit([&](const auto& held) { writer.set(key, MetadataValue(held)); }, value);
    for (const TargetTensor& tensor : plan.tensors) writer.add_tensor(tensor.name, tensor.type, tensor.ne);
}

void write_model(const Plan& plan, const WeightFiles& files, ModelWriter& writer, const WriteOptions& options) {
    declare(plan, writer);
    std::uint64_t total = 0, done = 0;
    for (const TargetTensor& tensor : plan.tensors) total += tensor.elements();
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        const TensorPieces pieces(files, plan.tensors[i], options.n_threads);
        for (std::uint64_t first = 0; first < pieces.n_rows();) {
            if (options.progress && !options.progress(done, total)) fail(ErrorCode::cancelled, "interrupted");
            const std::uint64_t n = std::min(pieces.rows_of_piece(), pieces.n_rows() - first);
            pieces.encode(first, n, bytes);
            writer.write(i, bytes);
            first += n;
            done += n * pieces.row();
        }
    }
}

}  // namespace tinfer::convert
