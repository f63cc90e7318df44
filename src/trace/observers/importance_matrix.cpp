// SPDX-License-Identifier: MIT
// ImportanceMatrix: sums of squares of what products multiply. quantize/importance_file.cpp has the files of it.
#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/observers/value_rows.hpp"

namespace tinfer {

struct ImportanceMatrix::Impl {
    struct Weight {
        ImportanceColumns columns;
        std::uint32_t id = 0;
    };
    std::map<std::string, Weight, std::less<>> weights;
    std::vector<float> row;

    Weight& of(const TensorInfo& tensor, std::int64_t n_columns, std::int64_t n_matrices);
};

ImportanceMatrix::Impl::Weight& ImportanceMatrix::Impl::of(const TensorInfo& tensor, std::int64_t n_columns,
                                                           std::int64_t n_matrices) {
    auto found = weights.find(tensor.name);
    if (found == weights.end()) {
        found = weights.emplace(tensor.name, Weight{}).first;
        ImportanceColumns& columns = found->second.columns;
        columns.name = tensor.name;
        columns.n_columns = n_columns;
        columns.n_matrices = n_matrices;
        columns.sum_squares.assign(static_cast<std::size_t>(n_columns * n_matrices), 0);
        columns.rows.assign(static_cast<std::size_t>(n_matrices), 0);
        found->second.id = tensor.id;
    }
    const ImportanceColumns& columns = found->second.columns;
    if (columns.n_columns != n_columns || columns.n_matrices != n_matrices)
        fail(ErrorCode::bad_parameter,
             cat("importance matrix: '", escaped(tensor.name), "' has ", n_columns, " columns of ", n_matrices,
                 " matrices, before it had ", columns.n_columns, " of ", columns.n_matrices));
    return found->second;
}

ImportanceMatrix::ImportanceMatrix() : impl_(std::make_unique<Impl>()) {}
ImportanceMatrix::~ImportanceMatrix() = default;

TraceRequest ImportanceMatrix::request() const {
    return {.level = TraceLevel::counts,
            .delivery = Delivery::immediate,
            .filter = {.ops = {Op::mul_mat, Op::mul_mat_id, Op::mul_mat_heads, Op::mul_mat_add}}};
}

void ImportanceMatrix::on_step_end(const KernelEvent& event, const StepValues& values) {
    if (event.status != EventStatus::ok) return;
    const auto input = trace::product_input(event, values);
    if (!input) return;
    ImportanceColumns& columns = impl_->of(*input->weight, input->n_columns, input->n_matrices).columns;
    const bool routed = !input->matrix.empty();
    const auto n = routed ? static_cast<std::int64_t>(input->matrix.size()) : input->rows.n_rows();
    impl_->row.resize(static_cast<std::size_t>(input->n_columns));
    for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t matrix = routed ? input->matrix[at] : 0;
        if (matrix < 0 || matrix >= input->n_matrices ||
            !input->rows.read(input->source.empty() ? i : input->source[at], impl_->row))
            continue;
        double* sums = columns.sum_squares.data() + matrix * input->n_columns;
        for (std::size_t k = 0; k < impl_->row.size(); ++k) sums[k] += double{impl_->row[k]} * double{impl_->row[k]};
        ++columns.rows[static_cast<std::size_t>(matrix)];
    }
}

std::vector<ImportanceColumns> ImportanceMatrix::weights() const {
    std::vector<const Impl::Weight*> order;
    for (const auto& [name, weight] : impl_->weights) order.push_back(&weight);
    std::ranges::stable_sort(order, {}, [](const Impl::Weight* weight) { return weight->id; });
    std::vector<ImportanceColumns> out;
    for (const Impl::Weight* weight : order) out.push_back(weight->columns);
    return out;
}

void ImportanceMatrix::merge(const ImportanceMatrix& other) {
    for (const auto& [name, from] : other.impl_->weights) {  // all or nothing
        const auto found = impl_->weights.find(name);
        if (found != impl_->weights.end() && (found->second.columns.n_columns != from.columns.n_columns ||
                                              found->second.columns.n_matrices != from.columns.n_matrices))
            fail(ErrorCode::bad_parameter, cat("importance matrix: '", escaped(name), "' has other shapes"));
    }
    for (const auto& [name, from] : other.impl_->weights) {
        const auto [place, is_new] = impl_->weights.try_emplace(name, from);
        if (is_new) continue;
        ImportanceColumns& to = place->second.columns;
        for (std::size_t i = 0; i < to.sum_squares.size(); ++i) to.sum_squares[i] += from.columns.sum_squares[i];
        for (std::size_t i = 0; i < to.rows.size(); ++i) to.rows[i] += from.columns.rows[i];
    }
}

}  // namespace tinfer
