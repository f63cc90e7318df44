// SPDX-License-Identifier: MIT
// HeatMap: bytes by place in the file and run, in a matrix whose size is fixed at the start. When runs outgrow its
// columns, neighbouring columns become one.
#include <algorithm>

#include "base/error.hpp"
#include "tinfer/observers.hpp"

namespace tinfer {

struct HeatMap::Impl {
    std::uint32_t rows = 0, max_columns = 0, columns = 0;
    std::uint64_t bytes_per_row = 1, runs_per_column = 1, runs = 0, total = 0;
    std::vector<std::uint64_t> cells;        ///< {rows, max_columns}
    std::vector<std::uint64_t> file_begins;  ///< offset of each file, as if they were laid end to end

    void add(std::uint64_t begin, const AccessRange& range);
    void add(const Access& access);
    void halve();
};

// The first byte of each file on the axis, and how much a row of the map holds.
void HeatMap::on_session(const SessionInfo& session) {
    std::vector<std::uint64_t> sizes;
    for (const TensorInfo& tensor : session.weights) {
        if (tensor.file_index < 0 || tensor.file_offset == kNoOffset) continue;
        const auto file = static_cast<std::size_t>(tensor.file_index);
        if (file >= sizes.size()) sizes.resize(file + 1, 0);
        sizes[file] = std::max(sizes[file], tensor.file_offset + tensor.bytes);
    }
    std::vector<std::uint64_t> begins;
    std::uint64_t end = 0;
    for (const std::uint64_t size : sizes) {
        begins.push_back(end);
        end += size;
    }
    const std::uint64_t per_row = std::max<std::uint64_t>((end + impl_->rows - 1) / impl_->rows, 1);
    if (impl_->runs > 0 && (begins != impl_->file_begins || per_row != impl_->bytes_per_row))
        fail(ErrorCode::bad_parameter, "heat map: the session is of another model than the runs so far");
    impl_->file_begins = std::move(begins);
    impl_->bytes_per_row = per_row;
}

void HeatMap::Impl::halve() {
    for (std::uint32_t c = 0; c < max_columns; ++c)
        for (std::uint32_t r = 0; r < rows; ++r) {
            const auto at = [&](std::uint32_t column) { return std::size_t{column} * rows + r; };
            const std::uint64_t a = 2 * c < max_columns ? cells[at(2 * c)] : 0;
            const std::uint64_t b = 2 * c + 1 < max_columns ? cells[at(2 * c + 1)] : 0;
            cells[at(c)] = a + b;
        }
    runs_per_column *= 2;
}

namespace {

// Bytes of the pieces that lie below `position`, which counts from the first one.
std::uint64_t bytes_below(const AccessRange& range, std::uint64_t position) noexcept {
    if (range.count <= 1 || range.stride == 0) return std::min(position, range.length);
    const std::uint64_t n = std::min<std::uint64_t>(position / range.stride, range.count);
    return n * range.length + (n < range.count ? std::min(position - n * range.stride, range.length) : 0);
}

}  // namespace

// What falls into each row is what lies below its end less what lies below its begin, however many pieces there are.
void HeatMap::Impl::add(std::uint64_t begin, const AccessRange& range) {
    const std::uint64_t pieces = std::max<std::uint32_t>(range.count, 1) - std::uint64_t{1};
    constexpr std::uint64_t kFarthest = std::uint64_t{1} << 62;  // beyond it the file is inconsistent
    if (begin > kFarthest || range.length > kFarthest || (pieces > 0 && range.stride > kFarthest / pieces)) return;
    const std::uint64_t end = begin + pieces * range.stride + range.length;
    std::uint64_t* column = cells.data() + std::size_t{columns - 1} * rows;
    std::uint64_t before = 0;
    for (std::uint64_t at = begin; at < end;) {
        const std::uint64_t row = std::min<std::uint64_t>(at / bytes_per_row, rows - 1);
        const std::uint64_t stop = row == rows - 1 ? end : std::min(end, (row + 1) * bytes_per_row);
        const std::uint64_t below = bytes_below(range, stop - begin);
        column[row] += below - before;
        before = below;
        at = stop;
    }
    total += before;
}

void HeatMap::Impl::add(const Access& access) {
    const TensorInfo& tensor = *access.tensor;
    if (tensor.tensor_class != TensorClass::weight || access.kind == AccessKind::elided || tensor.file_index < 0 ||
        static_cast<std::size_t>(tensor.file_index) >= file_begins.size() || tensor.file_offset == kNoOffset)
        return;
    const std::uint64_t first = file_begins[static_cast<std::size_t>(tensor.file_index)] + tensor.file_offset;
    if (access.kind == AccessKind::whole) return add(first, {.length = tensor.bytes});
    for (const AccessRange& range : access.ranges) add(first + range.offset, range);
}

HeatMap::HeatMap(HeatMapOptions options) : impl_(std::make_unique<Impl>()) {
    if (options.rows < 1) fail(ErrorCode::bad_parameter, "heat map: 0 rows, at least 1 is needed");
    if (options.columns < 2)
        fail(ErrorCode::bad_parameter, cat("heat map: ", options.columns, " columns, at least 2 are needed"));
    impl_->rows = options.rows;
    impl_->max_columns = options.columns;
    impl_->cells.assign(std::size_t{options.rows} * options.columns, 0);
}
HeatMap::~HeatMap() = default;

std::uint32_t HeatMap::rows() const noexcept { return impl_->rows; }
std::uint32_t HeatMap::columns() const noexcept { return impl_->columns; }
std::uint64_t HeatMap::bytes_per_row() const noexcept { return impl_->bytes_per_row; }
std::uint64_t HeatMap::runs_per_column() const noexcept { return impl_->runs_per_column; }
std::uint64_t HeatMap::total_bytes() const noexcept { return impl_->total; }

std::uint64_t HeatMap::bytes(std::uint32_t row, std::uint32_t column) const {
    if (row >= impl_->rows || column >= impl_->columns)
        fail(ErrorCode::bad_parameter, cat("heat map: cell (", row, ", ", column, ") of ", impl_->rows, " rows and ",
                                           impl_->columns, " columns"));
    return impl_->cells[std::size_t{column} * impl_->rows + row];
}

std::string HeatMap::csv() const {
    std::string out = "first_byte,end_byte,first_run,runs,bytes\n";
    for (std::uint32_t c = 0; c < impl_->columns; ++c)
        for (std::uint32_t r = 0; r < impl_->rows; ++r) {
            const std::uint64_t bytes = impl_->cells[std::size_t{c} * impl_->rows + r];
            if (bytes == 0) continue;
            const std::uint64_t first_run = c * impl_->runs_per_column;
            out += cat(r * impl_->bytes_per_row, ',', (r + 1) * impl_->bytes_per_row, ',', first_run, ',',
                       std::min(impl_->runs_per_column, impl_->runs - first_run), ',', bytes, '\n');
        }
    return out;
}

void HeatMap::on_run_begin(const RunInfo&) {
    if (impl_->runs / impl_->runs_per_column >= impl_->max_columns) impl_->halve();
    impl_->columns = static_cast<std::uint32_t>(impl_->runs / impl_->runs_per_column) + 1;
    ++impl_->runs;
}

void HeatMap::on_events(std::span<const KernelEvent> events) {
    if (impl_->columns == 0) return;
    for (const KernelEvent& event : events)
        for (const Access& access : event.accesses) impl_->add(access);
}

}  // namespace tinfer
