// SPDX-License-Identifier: MIT
// ImportanceMatrix: sums of squares of what products multiply, and the GGUF file that they are saved as.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/byte_io.hpp"
#include "base/error.hpp"
#include "base/replace_file.hpp"
#include "tinfer/observers_values.hpp"
#include "trace/observers/value_rows.hpp"

namespace tinfer {

namespace {

// Of the container: type numbers of metadata values, and the alignment of tensor data.
constexpr std::uint32_t kGgufString = 8, kGgufArray = 9, kGgufUint32 = 4, kGgufVersion = 3;
constexpr std::uint64_t kGgufAlignment = 32;

struct FileTensor {
    std::string name;
    std::int64_t ne[2];
    std::vector<float> data;
};

void write_text(ByteWriter& out, std::string_view text) {
    out.number<std::uint64_t>(text.size());
    out.text(text);
}

std::vector<std::byte> gguf_bytes(const std::vector<FileTensor>& tensors, std::span<const std::string> datasets) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, "importance matrix");
    out.text("GGUF");
    out.number(kGgufVersion);
    out.number<std::uint64_t>(tensors.size());
    out.number<std::uint64_t>(3);
    write_text(out, "general.type");
    out.number(kGgufString);
    write_text(out, "imatrix");
    write_text(out, "imatrix.datasets");
    out.number(kGgufArray);
    out.number(kGgufString);
    out.number<std::uint64_t>(datasets.size());
    for (const std::string& dataset : datasets) write_text(out, dataset);
    write_text(out, "general.alignment");
    out.number(kGgufUint32);
    out.number(static_cast<std::uint32_t>(kGgufAlignment));
    std::uint64_t offset = 0;
    for (const FileTensor& tensor : tensors) {
        write_text(out, tensor.name);
        out.number<std::uint32_t>(2);
        for (const std::int64_t n : tensor.ne) out.number(static_cast<std::uint64_t>(n));
        out.number(static_cast<std::uint32_t>(DType::f32));
        out.number(offset);
        offset += (4 * tensor.data.size() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
    }
    for (const FileTensor& tensor : tensors) {
        out.align(kGgufAlignment);
        out.numbers(std::span(tensor.data));
    }
    out.align(kGgufAlignment);
    return bytes;
}

}  // namespace

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

void ImportanceMatrix::save(const std::filesystem::path& path, std::span<const std::string> datasets) const {
    std::vector<FileTensor> tensors;
    for (const ImportanceColumns& columns : weights()) {
        FileTensor sums{columns.name + ".in_sum2", {columns.n_columns, columns.n_matrices}, {}};
        for (std::size_t i = 0; i < columns.sum_squares.size(); ++i) {
            const auto sum = static_cast<float>(columns.sum_squares[i]);
            if (!std::isfinite(sum))
                fail(ErrorCode::compute_failed, cat("importance matrix: column ", i, " of '", escaped(columns.name),
                                                    "' met values that are not finite"));
            sums.data.push_back(sum);
        }
        FileTensor counts{columns.name + ".counts", {1, columns.n_matrices}, {}};
        for (const std::uint64_t n : columns.rows) counts.data.push_back(static_cast<float>(n));
        tensors.push_back(std::move(sums));
        tensors.push_back(std::move(counts));
    }
    const auto bytes = gguf_bytes(tensors, datasets);
    ReplacingFile file(path);
    file.write(bytes);
    file.finish();
}

}  // namespace tinfer
