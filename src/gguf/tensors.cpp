// SPDX-License-Identifier: MIT
// Looking things up in the directory: by name, by address, by type.
#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "gguf/contents.hpp"

namespace tinfer::gguf {

NameParts split_name(std::string_view tensor_name) noexcept {
    const auto without_weight = [](std::string_view text) {
        return text.size() > 7 && text.ends_with(".weight") ? text.substr(0, text.size() - 7) : text;
    };
    std::string_view rest = tensor_name;
    if (rest.starts_with("enc.") || rest.starts_with("dec.")) rest.remove_prefix(4);
    if (!rest.starts_with("blk.")) return {kNoLayer, without_weight(tensor_name)};
    rest.remove_prefix(4);
    int layer = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    const bool numbered =
        error == std::errc() && layer >= 0 && layer < 65535 && digits + 1 < rest.size() && rest[digits] == '.';
    if (!numbered) return {kNoLayer, without_weight(tensor_name)};
    return {layer, without_weight(rest.substr(digits + 1))};
}

File::File() : impl_(std::make_unique<Impl>()) {}
File::~File() = default;

std::span<const TensorInfo> File::tensors() const noexcept { return impl_->tensors; }

const TensorInfo* File::find_tensor(std::string_view name) const noexcept {
    const auto i = impl_->names.find(name, [this](std::size_t k) { return impl_->tensor_name(k); });
    return i ? &impl_->tensors[*i] : nullptr;
}

const TensorInfo* File::find_tensor(const void* address) const noexcept {
    if (!impl_->data_loaded || address == nullptr) return nullptr;
    const auto begin_of = [this](std::uint32_t id) {
        return reinterpret_cast<std::uintptr_t>(impl_->tensors[id].address);
    };
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    const bool has_gaps = impl_->pager != nullptr || !impl_->chosen.empty();  // tensors without an address
    for (const TensorInfo& tensor : std::span(impl_->tensors).first(has_gaps ? impl_->tensors.size() : 0)) {
        const auto begin = reinterpret_cast<std::uintptr_t>(tensor.address);
        if (begin != 0 && wanted >= begin && wanted - begin < tensor.bytes) return &tensor;
    }
    if (has_gaps) return nullptr;
    for (const Shard& shard : impl_->shards) {  // inside one shard addresses ascend as the bytes in the file do
        const auto first = impl_->by_place.begin() + static_cast<std::ptrdiff_t>(shard.first_tensor);
        const auto last = first + static_cast<std::ptrdiff_t>(shard.n_tensors);
        const auto after =
            std::upper_bound(first, last, wanted, [&](std::uintptr_t a, std::uint32_t id) { return a < begin_of(id); });
        if (after == first) continue;
        const TensorInfo& candidate = impl_->tensors[*(after - 1)];
        if (wanted - begin_of(candidate.id) < candidate.bytes) return &candidate;
    }
    return nullptr;
}

std::vector<TypeCount> File::type_mix() const {
    std::array<TypeCount, 64> by_id{};
    for (const TensorInfo& tensor : impl_->tensors) {
        TypeCount& count = by_id[static_cast<std::size_t>(tensor.type)];  // ids of the format end at 42
        count.type = tensor.type;
        ++count.tensors;
        count.bytes += tensor.bytes;
    }
    std::vector<TypeCount> mix;
    for (const TypeCount& count : by_id)
        if (count.tensors != 0) mix.push_back(count);
    return mix;
}

std::uint64_t File::padding_before(const TensorInfo& tensor) const noexcept {
    const Shard& shard = impl_->shards[static_cast<std::size_t>(tensor.file_index)];
    const auto first = impl_->by_place.begin() + static_cast<std::ptrdiff_t>(shard.first_tensor);
    const auto last = first + static_cast<std::ptrdiff_t>(shard.n_tensors);
    const auto here = std::lower_bound(first, last, tensor.data_offset, [this](std::uint32_t id, std::uint64_t offset) {
        return impl_->tensors[id].data_offset < offset;
    });
    if (here == first || here == last) return tensor.data_offset;
    const TensorInfo& before = impl_->tensors[*(here - 1)];
    return tensor.data_offset - (before.data_offset + before.bytes);
}

int File::version() const noexcept { return impl_->shards.front().version; }
std::uint64_t File::alignment() const noexcept { return impl_->shards.front().alignment; }
std::string File::name() const { return impl_->shards.front().name; }

std::span<const std::filesystem::path> File::paths() const noexcept { return impl_->paths; }

std::uint64_t File::file_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Shard& shard : impl_->shards) sum += shard.file_bytes;
    return sum;
}

}  // namespace tinfer::gguf
