// SPDX-License-Identifier: MIT
// Importance matrices as files. GGUF: general.type "imatrix", imatrix.datasets, imatrix.chunk_count,
// imatrix.chunk_size; for each weight NAME.in_sum2 {n_columns, n_matrices} and NAME.counts {1, n_matrices}, float32;
// tinfer.imatrix.rests, where sums have more digits than float32: what is missing to each, in the order of the tensors.
// The older form:
//     i32 entries; for each i32 bytes of its name, the name, i32 calls, i32 values, f32 values (mean · calls);
//     then, or nothing, i32 chunks, i32 bytes of the dataset's name, the name.
#include "tinfer/observers.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/byte_io.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "base/replace_file.hpp"
#include "gguf/writer.hpp"

namespace tinfer {

namespace {

constexpr std::uint64_t kMaxImportanceBytes = std::uint64_t{4} << 30;
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts", kRests = "tinfer.imatrix.rests";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view name, std::string_view why) {
    fail(ErrorCode::damaged, cat(display_name(path), ": importance of '", escaped(name), "': ", why));
}

void check_values(const std::filesystem::path& path, const ImportanceColumns& columns) {
    for (std::size_t i = 0; i < columns.sum_squares.size(); ++i)
        if (!std::isfinite(columns.sum_squares[i]) || columns.sum_squares[i] < 0)
            refuse(path, columns.name, cat("column ", i, " is ", columns.sum_squares[i]));
}

std::vector<float> floats_of(const gguf::File& file, const TensorInfo& tensor, const std::filesystem::path& path) {
    if (tensor.type != DType::f32) refuse(path, tensor.name, cat("is ", to_string(tensor.type), ", f32 is needed"));
    std::vector<float> values(static_cast<std::size_t>(tensor.bytes / sizeof(float)));
    file.read_at(tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
}

/// Adds what float32 could not hold, so that sums go on where they were. A rest is less than a place of its sum.
void add_rests(const gguf::ArrayView& rests, ImportanceFile& file, const std::filesystem::path& path) {
    std::uint64_t at = 0;
    for (ImportanceColumns& columns : file.weights)
        for (double& sum : columns.sum_squares) {
            if (at == rests.size()) refuse(path, columns.name, cat(kRests, " has ", at, " values"));
            const double rest = rests.number(at++);
            if (!(std::fabs(rest) <= sum * 0x1p-23)) refuse(path, columns.name, cat("a rest of ", rest, " for ", sum));
            sum += rest;
        }
    if (at != rests.size()) refuse(path, kRests, cat(rests.size(), " values for ", at, " sums"));
}

ImportanceFile read_gguf(const std::filesystem::path& path) {
    const auto file = gguf::File::open(std::span(&path, 1), {});
    if (file->find_string("general.type") != "imatrix")
        fail(ErrorCode::damaged, cat(display_name(path), ": a GGUF file, but no importance matrix (general.type)"));
    ImportanceFile out;
    if (const auto datasets = file->find_array("imatrix.datasets"))
        for (std::uint64_t i = 0; i < datasets->size(); ++i) out.datasets.emplace_back(datasets->string(i));
    out.n_chunks = file->find_u32("imatrix.chunk_count").value_or(0);
    out.chunk_tokens = file->find_u32("imatrix.chunk_size").value_or(0);
    for (const TensorInfo& tensor : file->tensors()) {
        if (!tensor.name.ends_with(kSums)) continue;
        ImportanceColumns columns;
        columns.name = std::string(tensor.name.substr(0, tensor.name.size() - kSums.size()));
        columns.n_columns = tensor.ne[0];
        columns.n_matrices = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
        const TensorInfo* counts = file->find_tensor(cat(columns.name, kCounts));
        if (counts == nullptr) refuse(path, columns.name, "sums without counts");
        const auto sums = floats_of(*file, tensor, path), rows = floats_of(*file, *counts, path);
        if (rows.size() != static_cast<std::size_t>(columns.n_matrices))
            refuse(path, columns.name, cat(rows.size(), " counts for ", columns.n_matrices, " matrices"));
        columns.sum_squares.assign(sums.begin(), sums.end());
        for (const float n : rows) {
            if (!(n >= 0) || n > 0x1p62f) refuse(path, columns.name, cat("a count of ", n));
            columns.rows.push_back(static_cast<std::uint64_t>(n));
        }
        check_values(path, columns);
        out.weights.push_back(std::move(columns));
    }
    if (const auto rests = file->find_array(kRests, gguf::ValueType::f32)) add_rests(*rests, out, path);
    return out;
}

ImportanceFile read_binary(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    const std::string name = display_name(path);
    ByteReader in(bytes, name, ErrorCode::damaged);
    const auto count = [&](std::uint64_t min_bytes) {
        const std::uint64_t at = in.position();
        if (in.number<std::int32_t>() < 0) in.refuse(at, "a negative count");
        in.seek(at);
        return in.count<std::int32_t>(min_bytes);
    };
    ImportanceFile out;
    std::map<std::string, bool, std::less<>> seen;
    const std::uint64_t entries = count(12);
    for (std::uint64_t i = 0; i < entries; ++i) {
        ImportanceColumns columns;
        columns.name = std::string(in.text(count(1)));
        if (!seen.emplace(columns.name, true).second) refuse(path, columns.name, "comes twice");
        columns.rows = {count(0)};
        columns.n_columns = static_cast<std::int64_t>(count(sizeof(float)));
        std::vector<float> values(static_cast<std::size_t>(columns.n_columns));
        in.numbers(std::span(values));
        columns.sum_squares.assign(values.begin(), values.end());
        check_values(path, columns);
        out.weights.push_back(std::move(columns));
    }
    if (in.at_end()) return out;
    out.n_chunks = static_cast<std::uint32_t>(count(0));
    out.datasets.emplace_back(in.text(count(1)));
    return out;
}

float finite_sum(const ImportanceColumns& columns, std::size_t i, double value) {
    const auto sum = static_cast<float>(value);
    if (!std::isfinite(sum))
        fail(ErrorCode::compute_failed,
             cat("importance matrix: column ", i, " of '", escaped(columns.name), "' met values that are not finite"));
    return sum;
}

std::vector<float> rests_of(const ImportanceFile& file) {
    std::vector<float> rests;
    for (const ImportanceColumns& columns : file.weights)
        for (const double sum : columns.sum_squares)
            rests.push_back(static_cast<float>(sum - double{static_cast<float>(sum)}));
    if (std::ranges::all_of(rests, [](float rest) { return rest == 0; })) rests.clear();
    return rests;
}

void write_gguf(const std::filesystem::path& path, const ImportanceFile& file) {
    gguf::Writer out(path, {});
    out.set("general.type", MetadataValue(std::string("imatrix")));
    out.set("imatrix.datasets", MetadataValue(file.datasets));
    if (file.n_chunks != 0) out.set("imatrix.chunk_count", MetadataValue(file.n_chunks));
    if (file.chunk_tokens != 0) out.set("imatrix.chunk_size", MetadataValue(file.chunk_tokens));
    if (auto rests = rests_of(file); !rests.empty()) out.set(kRests, MetadataValue(std::move(rests)));
    for (const ImportanceColumns& columns : file.weights) {
        const std::array<std::int64_t, 2> sums{columns.n_columns, columns.n_matrices}, counts{1, columns.n_matrices};
        out.add_tensor(cat(columns.name, kSums), DType::f32, sums);
        out.add_tensor(cat(columns.name, kCounts), DType::f32, counts);
    }
    std::size_t at = 0;
    for (const ImportanceColumns& columns : file.weights) {
        std::vector<float> values;
        for (std::size_t i = 0; i < columns.sum_squares.size(); ++i)
            values.push_back(finite_sum(columns, i, columns.sum_squares[i]));
        out.write(at++, std::as_bytes(std::span(values)));
        values.assign(columns.rows.begin(), columns.rows.end());
        out.write(at++, std::as_bytes(std::span(values)));
    }
    out.finish();
}

void write_binary(const std::filesystem::path& path, const ImportanceFile& file) {
    std::vector<std::byte> bytes;
    ByteWriter out(bytes, "importance matrix");
    const auto put_text = [&](std::string_view text) {
        out.number(static_cast<std::int32_t>(text.size()));
        out.text(text);
    };
    out.number(static_cast<std::int32_t>(file.weights.size()));
    for (const ImportanceColumns& columns : file.weights) {
        const std::uint64_t most = *std::max_element(columns.rows.begin(), columns.rows.end());
        const std::uint64_t window = std::max<std::uint32_t>(1, file.chunk_tokens);
        const auto calls = static_cast<std::int32_t>(std::min<std::uint64_t>((most + window - 1) / window, 1u << 30));
        put_text(columns.name);
        out.number(calls);
        out.number(static_cast<std::int32_t>(columns.sum_squares.size()));
        for (std::size_t i = 0; i < columns.sum_squares.size(); ++i) {
            const auto rows = static_cast<double>(columns.rows[i / static_cast<std::size_t>(columns.n_columns)]);
            out.number(finite_sum(columns, i, rows > 0 ? columns.sum_squares[i] / rows * calls : 0));
        }
    }
    out.number(static_cast<std::int32_t>(file.n_chunks));
    put_text(file.datasets.empty() ? std::string_view() : std::string_view(file.datasets.front()));
    ReplacingFile target(path);
    target.write(bytes);
    target.finish();
}

}  // namespace

std::string_view to_string(ImportanceFormat format) noexcept {
    switch (format) {
        case ImportanceFormat::gguf: return "gguf";
        case ImportanceFormat::binary: return "binary";
    }
    return "unknown";
}

ImportanceFile read_importance(const std::filesystem::path& path) {
    return reporting_memory("reading an importance matrix: an allocation failed", [&] {
        const InputFile file(path);
        std::array<std::byte, 4> magic{};
        if (file.size() >= magic.size()) file.read_at(0, magic);
        if (std::memcmp(magic.data(), "GGUF", magic.size()) == 0) return read_gguf(path);
        return read_binary(path, read_whole_file(path, kMaxImportanceBytes));
    });
}

void write_importance(const std::filesystem::path& path, const ImportanceFile& file, ImportanceFormat format) {
    reporting_memory("writing an importance matrix: an allocation failed", [&] {
        for (const ImportanceColumns& columns : file.weights)
            if (columns.n_columns < 1 || columns.n_matrices < 1 ||
                columns.sum_squares.size() != static_cast<std::size_t>(columns.n_columns * columns.n_matrices) ||
                columns.rows.size() != static_cast<std::size_t>(columns.n_matrices))
                fail(ErrorCode::bad_parameter,
                     cat("importance of '", escaped(columns.name), "': ", columns.sum_squares.size(), " sums and ",
                         columns.rows.size(), " counts of ", columns.n_columns, " columns of ", columns.n_matrices));
        if (format == ImportanceFormat::gguf) write_gguf(path, file);
        else write_binary(path, file);
    });
}

void merge_importance(ImportanceFile& into, const ImportanceFile& from) {
    reporting_memory("merging importance matrices: an allocation failed", [&] {
        ImportanceFile merged = into;
        std::map<std::string, std::size_t, std::less<>> places;
        for (std::size_t i = 0; i < merged.weights.size(); ++i) places.emplace(merged.weights[i].name, i);
        for (const ImportanceColumns& other : from.weights) {
            const auto found = places.find(other.name);
            if (found == places.end()) {
                merged.weights.push_back(other);
                continue;
            }
            ImportanceColumns& ours = merged.weights[found->second];
            if (ours.n_columns != other.n_columns || ours.n_matrices != other.n_matrices)
                fail(ErrorCode::bad_parameter,
                     cat("importance of '", escaped(other.name), "': ", other.n_columns, " columns of ",
                         other.n_matrices, " matrices cannot be added to ", ours.n_columns, " of ", ours.n_matrices));
            for (std::size_t i = 0; i < ours.sum_squares.size(); ++i) ours.sum_squares[i] += other.sum_squares[i];
            for (std::size_t i = 0; i < ours.rows.size(); ++i) ours.rows[i] += other.rows[i];
        }
        for (const std::string& dataset : from.datasets)
            if (std::ranges::find(merged.datasets, dataset) == merged.datasets.end())
                merged.datasets.push_back(dataset);
        merged.n_chunks += from.n_chunks;
        if (merged.chunk_tokens == 0) merged.chunk_tokens = from.chunk_tokens;
        into = std::move(merged);
    });
}

void ImportanceMatrix::save(const std::filesystem::path& path, std::span<const std::string> datasets) const {
    write_importance(path, {.weights = weights(), .datasets = {datasets.begin(), datasets.end()}});
}

}  // namespace tinfer
