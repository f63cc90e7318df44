// SPDX-License-Identifier: MIT
#include "quantize_run.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "common.hpp"

#if defined(__linux__)
#    include <sched.h>
#endif

namespace tinfer::app {

namespace {

constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 22;  ///< of one piece of a tensor: 16 MiB of floats
constexpr std::int64_t kShareValues = std::int64_t{1} << 16;    ///< what a thread takes at once

/// Integers and doubles are copied as they are.
bool is_plain_number(tinfer::DType type) {
    using tinfer::DType;
    constexpr DType kPlain[]{DType::i8, DType::i16, DType::i32, DType::i64, DType::f64};
    return std::ranges::find(kPlain, type) != std::end(kPlain);
}

[[noreturn]] void refuse(const tinfer::TensorInfo& tensor, tinfer::ErrorCode code, const std::string& what) {
    throw tinfer::Error(code, "tensor '" + std::string(tensor.name) + "': " + what);
}

/// Rows of a piece, shared among threads; the first error, by row, is thrown.
class SharedRows {
public:
    SharedRows(std::int64_t n_rows, std::int64_t at_once) : n_rows_(n_rows), at_once_(at_once) {}

    template <class Work>
    void run(int n_threads, const Work& work) {
        const auto serve = [&] {
            for (;;) {
                const std::int64_t first = next_.fetch_add(at_once_);
                if (first >= n_rows_ || stops_) return;
                try {
                    if (interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, "interrupted");
                    work(first, std::min(first + at_once_, n_rows_));
                } catch (...) {
                    keep_error(first);
                }
            }
        };
        const auto shares = (n_rows_ + at_once_ - 1) / at_once_;
        {
            std::vector<std::jthread> helpers;
            for (std::int64_t i = 1; i < std::min<std::int64_t>(n_threads, shares); ++i) try {
                    helpers.emplace_back(serve);
                } catch (const std::system_error&) {
                    break;  // fewer do as well
                }
            serve();
        }
        if (error_) std::rethrow_exception(error_);
    }

private:
    void keep_error(std::int64_t row) {
        const std::lock_guard lock(mutex_);
        stops_ = true;
        if (error_ && row >= error_row_) return;
        error_ = std::current_exception();
        error_row_ = row;
    }

    std::int64_t n_rows_, at_once_;
    std::atomic<std::int64_t> next_{0};
    std::atomic<bool> stops_{false};
    std::mutex mutex_;
    std::exception_ptr error_;
    std::int64_t error_row_ = 0;
};

}  // namespace

Importance importance_by_name(tinfer::ImportanceFile file) {
    Importance out;
    for (auto& columns : file.weights) {
        std::string name = columns.name;
        out.emplace(std::move(name), std::move(columns));
    }
    return out;
}

int default_threads() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Weights of the columns of each matrix of a tensor; none where nothing is known.
struct TensorEncoder::Columns {
    std::vector<float> weights;  ///< {n_columns, n_matrices}
    std::vector<bool> known;     ///< by matrix: it has met a row
    std::int64_t n_columns = 0, rows_per_matrix = 1;

    [[nodiscard]] std::span<const float> of_row(std::int64_t row) const {
        if (known.empty()) return {};
        const auto matrix = static_cast<std::size_t>(row / rows_per_matrix) % known.size();
        if (!known[matrix]) return {};
        return std::span(weights).subspan(matrix * static_cast<std::size_t>(n_columns),
                                          static_cast<std::size_t>(n_columns));
    }
};

TensorEncoder::Columns TensorEncoder::columns_of(const tinfer::TensorInfo& tensor, tinfer::DType type) const {
    Columns out;
    if (importance_ == nullptr || !tinfer::uses_importance(type)) return out;
    const auto found = importance_->find(tensor.name);
    if (found == importance_->end()) return out;
    const tinfer::ImportanceColumns& columns = found->second;
    const std::int64_t n = tensor.ne[0], n_matrices = tensor.ne[2];
    const auto size = static_cast<std::int64_t>(columns.sum_squares.size());
    if (size != n && size != n * n_matrices)
        refuse(tensor, tinfer::ErrorCode::bad_parameter,
               "the importance matrix has " + std::to_string(size) + " columns, it has " + std::to_string(n) +
                   (n_matrices > 1 ? " in each of " + std::to_string(n_matrices) + " matrices" : ""));
    out.n_columns = n;
    out.rows_per_matrix = tensor.ne[1];
    const auto matrices = static_cast<std::size_t>(size / n);
    for (std::size_t m = 0; m < matrices; ++m) {
        const auto rows = static_cast<double>(columns.rows[columns.rows.size() == matrices ? m : 0]);
        out.known.push_back(rows > 0);
        for (std::int64_t k = 0; k < n; ++k) {
            const double sum = columns.sum_squares[m * static_cast<std::size_t>(n) + static_cast<std::size_t>(k)];
            out.weights.push_back(static_cast<float>(rows > 0 ? sum / rows : 0));
        }
    }
    return out;
}

void TensorEncoder::encode(const tinfer::ModelFile& file, const tinfer::TensorInfo& tensor, tinfer::DType type,
                           const TakeBytes& take, const std::function<void(std::uint64_t)>& progress) const {
    const std::int64_t n = tensor.ne[0], n_rows = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
    const auto width = static_cast<std::uint64_t>(n);
    const bool is_copy = type == tensor.type, has_values = !is_plain_number(tensor.type);
    const Columns columns = columns_of(tensor, type);
    const std::uint64_t row_bytes = tinfer::quantized_bytes(type, n);
    const auto piece_rows = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPieceValues / width));
    std::vector<std::byte> source, target;
    std::vector<float> values;
    for (std::int64_t first = 0; first < n_rows; first += piece_rows) {
        const auto rows = static_cast<std::uint64_t>(std::min(piece_rows, n_rows - first));
        source.resize(static_cast<std::size_t>(rows * tensor.row_bytes));
        tinfer::read_tensor(file, tensor, static_cast<std::uint64_t>(first) * tensor.row_bytes, source);
        values.resize(static_cast<std::size_t>(rows * width));
        if (!is_copy) target.resize(static_cast<std::size_t>(rows * row_bytes));
        SharedRows shared(static_cast<std::int64_t>(rows), std::max<std::int64_t>(1, kShareValues / n));
        shared.run(n_threads_, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r) {
                const auto at = static_cast<std::uint64_t>(r);
                const auto row = std::span(values).subspan(at * width, width);
                try {
                    if (has_values)
                        tinfer::dequantize_rows(
                            tensor.type, std::span(source).subspan(at * tensor.row_bytes, tensor.row_bytes), n, row);
                    if (!is_copy)
                        tinfer::quantize_rows(type, row, n, std::span(target).subspan(at * row_bytes, row_bytes),
                                              {.importance = columns.of_row(first + r), .search = search_});
                    else if (has_values && !all_finite(row))
                        refuse(tensor, tinfer::ErrorCode::bad_tensor_data,
                               "row " + std::to_string(first + r) + " has values that are not finite");
                } catch (const tinfer::Error& error) {
                    std::string what = error.what();
                    if (what.starts_with("tensor")) throw;
                    if (what.starts_with("row 0")) what.replace(4, 1, std::to_string(first + r));
                    refuse(tensor, error.code(), what);
                }
            }
        });
        take(is_copy ? source : target);
        if (progress) progress(source.size());
    }
}

}  // namespace tinfer::app
