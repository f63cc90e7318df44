// SPDX-License-Identifier: MIT
// A hash of each tensor's bytes, and where each would lie: what can be said of weights without a model.
#include "gguf/tensor_hashes.hpp"

#include <algorithm>
#include <optional>

#include "base/aligned_buffer.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "base/pager.hpp"
#include "base/xxhash.hpp"

namespace tinfer {

std::string_view to_string(WeightPlace place) noexcept {
    switch (place) {
        case WeightPlace::mapped: return "mapped";
        case WeightPlace::read: return "read";
        case WeightPlace::paged: return "paged";
        case WeightPlace::streamed: return "streamed";
    }
    return "unknown";
}

}  // namespace tinfer

namespace tinfer::gguf {

std::vector<std::uint64_t> tensor_hashes(const File& file, const ProgressFn& progress) {
    return file.reading([&] {
        constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;
        std::uint64_t total = 0, done = 0;
        for (const TensorInfo& tensor : file.tensors()) total += tensor.bytes;
        AlignedBuffer buffer;
        std::optional<InputFile> input;  // of tensors that are not in memory
        int input_index = -1;
        std::vector<std::uint64_t> hashes;
        for (const TensorInfo& tensor : file.tensors()) {
            const auto* here = static_cast<const std::byte*>(tensor.address);
            if (here == nullptr && (!input || input_index != tensor.file_index)) {
                input.emplace(file.paths()[static_cast<std::size_t>(tensor.file_index)]);
                input_index = tensor.file_index;
                if (buffer.size() == 0) buffer = AlignedBuffer(piece_bytes);
            }
            Xxh64 hash;
            for (std::uint64_t at = 0; at < tensor.bytes; at += piece_bytes) {
                const auto bytes = static_cast<std::size_t>(std::min(piece_bytes, tensor.bytes - at));
                if (here == nullptr) input->read_at(tensor.file_offset + at, buffer.bytes().first(bytes));
                hash.update({here != nullptr ? here + at : buffer.data(), bytes});
                done += bytes;
                if (progress && !progress(static_cast<double>(done) / static_cast<double>(total)))
                    fail(ErrorCode::cancelled, cat(file.name(), ": hashing stopped by the progress callback"));
            }
            hashes.push_back(hash.value());
        }
        return hashes;
    });
}

std::vector<WeightPlacement> placement(const File& file, bool use_mmap, const PagingPlan* paging) {
    const std::vector<bool> paged = paged_tensors(file.tensors().size(), paging);
    if (paging != nullptr) use_mmap = false;
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : file.tensors())
        if (file.is_chosen(tensor)) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
        return std::pair(a->file_index, a->file_offset) < std::pair(b->file_index, b->file_offset);
    });
    std::vector<WeightPlacement> weights;
    std::uint64_t used = 0;
    for (const TensorInfo* tensor : order) {
        WeightPlacement weight{.tensor = std::string(tensor->name), .type = tensor->type, .bytes = tensor->bytes};
        weight.file_index = tensor->file_index;
        weight.file_offset = tensor->file_offset;
        weight.place = paged[tensor->id] ? (paging->streamed ? WeightPlace::streamed : WeightPlace::paged)
                       : use_mmap        ? WeightPlace::mapped
                                         : WeightPlace::read;
        weight.offset = weight.place == WeightPlace::read ? used : tensor->file_offset;
        if (weight.place == WeightPlace::read)
            used += *checked_round_up(tensor->bytes, 64);  // no overflow: checked when the directory was merged
        weights.push_back(std::move(weight));
    }
    return weights;
}

}  // namespace tinfer::gguf
