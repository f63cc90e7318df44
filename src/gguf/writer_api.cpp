// SPDX-License-Identifier: MIT
// The public door of the writer.
#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "gguf/model_file.hpp"
#include "gguf/writer.hpp"

namespace tinfer {

struct ModelWriter::Impl {
    gguf::Writer writer;
};

namespace {

constexpr std::string_view kWriting = "writing a model file: an allocation failed";

}  // namespace

ModelWriter::ModelWriter(const std::filesystem::path& path, const ModelWriterOptions& options)
    : impl_(reporting_memory(kWriting, [&] { return std::make_unique<Impl>(Impl{gguf::Writer(path, options)}); })) {}
ModelWriter::ModelWriter(ModelWriter&&) noexcept = default;
ModelWriter& ModelWriter::operator=(ModelWriter&&) noexcept = default;
ModelWriter::~ModelWriter() = default;

void ModelWriter::set(std::string_view key, MetadataValue value) {
    reporting_memory(kWriting, [&] { impl_->writer.set(key, value); });
}

void ModelWriter::copy_metadata(const ModelFile& file) {
    reporting_memory(kWriting, [&] { impl_->writer.copy_metadata(*detail::impl_of(file).file); });
}

void ModelWriter::remove(std::string_view key) {
    reporting_memory(kWriting, [&] { impl_->writer.remove(key); });
}

std::size_t ModelWriter::add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& ne) {
    return reporting_memory(kWriting, [&] {
        if (ne.empty())
            fail(ErrorCode::bad_tensor_info, cat("tensor '", escaped(name), "': 0 dimensions, allowed are 1 to 4"));
        auto extents = ne;
        while (extents.size() > 1 && extents.back() == 1) extents.pop_back();
        return impl_->writer.add_tensor(name, type, extents);
    });
}

std::size_t ModelWriter::add_tensor(const TensorInfo& like, DType type) {
    return reporting_memory(kWriting, [&] {
        return impl_->writer.add_tensor(like.name, type,
                                        std::span(like.ne).first(static_cast<std::size_t>(like.n_dims)));
    });
}

std::uint64_t ModelWriter::tensor_bytes(std::size_t tensor) const { return impl_->writer.tensor_bytes(tensor); }

std::uint64_t ModelWriter::total_bytes() const {
    return reporting_memory(kWriting, [&] { return impl_->writer.total_bytes(); });
}

void ModelWriter::write(std::size_t tensor, std::span<const std::byte> bytes) {
    reporting_memory(kWriting, [&] { impl_->writer.write(tensor, bytes); });
}

void ModelWriter::copy(std::size_t tensor, const ModelFile& file, const TensorInfo& from) {
    reporting_memory(kWriting, [&] {
        constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
        if (from.bytes != impl_->writer.tensor_bytes(tensor))
            fail(ErrorCode::bad_parameter, cat("tensor '", escaped(from.name), "' has ", from.bytes,
                                               " bytes, its copy would have ", impl_->writer.tensor_bytes(tensor)));
        std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPiece, from.bytes)));
        for (std::uint64_t at = 0; at < from.bytes; at += piece.size()) {
            const auto part = std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, from.bytes - at)));
            detail::impl_of(file).file->read_at(from, at, part);
            impl_->writer.write(tensor, part);
        }
    });
}

std::vector<std::filesystem::path> ModelWriter::finish() {
    return reporting_memory(kWriting, [&] { return impl_->writer.finish(); });
}

void read_tensor(const ModelFile& file, const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) {
    reporting_memory("reading a tensor: an allocation failed",
                     [&] { detail::impl_of(file).file->read_at(tensor, offset, out); });
}

}  // namespace tinfer
