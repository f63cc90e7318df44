// SPDX-License-Identifier: MIT
// The bytes of tensors: mapped where possible, else read into one buffer; faulted in, locked and scanned where asked.
// Nothing of a File changes until all of it has succeeded, so a cancelled load leaves no trace.
#include <algorithm>
#include <cstring>
#include <new>

#include "base/checked.hpp"
#include "base/data_check.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"
#include "gguf/load_team.hpp"
#include "tinfer/context.hpp"

namespace tinfer::gguf {

namespace {

/// Reports fractions of a known amount of work: 0 first, 1 last, never falling.
class ProgressMeter {
public:
    ProgressMeter(const ProgressFn& report, std::uint64_t total, const std::string& name)
        : report_(report), total_(total), name_(name) {
        send(0.0);
    }
    void advance(std::uint64_t bytes) { reach(done_ + bytes); }
    void reach(std::uint64_t bytes) {
        done_ = bytes;
        // finish() alone reports 1, after the last thing that can fail.
        if (done_ < total_) send(static_cast<double>(done_) / static_cast<double>(total_));
    }
    void finish() { send(1.0); }

private:
    void send(double fraction) {
        if (report_ && !report_(fraction))
            fail(ErrorCode::cancelled, cat(name_, ": load stopped by the progress callback"));
    }
    const ProgressFn& report_;
    std::uint64_t done_ = 0, total_;
    const std::string& name_;
};

/// Scans one tensor, piece by piece; `piece(offset, bytes)` gives the bytes.
template <class Piece>
void scan_pieces(const Shard& shard, const TensorInfo& tensor, std::uint64_t piece_bytes, const Piece& piece,
                 ProgressMeter& progress) {
    const auto block = static_cast<std::uint64_t>(find_dtype(tensor.type)->block_bytes);
    const std::uint64_t step = std::max(block, piece_bytes / block * block);
    for (std::uint64_t offset = 0; offset < tensor.bytes; offset += step) {
        const std::uint64_t bytes = std::min(step, tensor.bytes - offset);
        if (const auto bad = first_bad_block(tensor.type, piece(offset, bytes)))
            refuse_block(shard, tensor, offset / block + *bad);
        progress.advance(bytes);
    }
}

}  // namespace

void File::Impl::map(Shard& shard, const ModelOptions& options) {
    int error = 0;
    shard.map = shard.file.map(error);
    if (!shard.map.is_mapped()) {
        if (options.log)
            options.log(LogLevel::info, cat(shard.name, ": cannot map (", errno_text(error), "), reading instead"));
        return;
    }
    shard.in_place = shard.map.bytes().data();
    shard.guarded.set(shard.map.bytes());
    guarded.add(shard.guarded);
}

GuardedMaps* File::guarded_maps() const noexcept { return impl_->fault_handler ? &impl_->guarded : nullptr; }

// A file that was cut inside its last page raises no signal: what is lost reads as zeros up to the page's end. So its
// size is looked at as well.
void File::check_intact() const {
    if (!impl_->fault_handler) return;
    for (Shard& shard : impl_->shards) {
        if (!shard.map.is_mapped()) continue;
        if (const std::uint64_t bytes = shard.file.size_now(); bytes < shard.file_bytes) shard.guarded.lose(bytes);
        if (const std::uint64_t offset = shard.guarded.lost_at(); offset != GuardedMap::kIntact)
            fail(ErrorCode::io_error,
                 cat(shard.name, ": cannot read at byte ", offset, " of the mapped file, which had ", shard.file_bytes,
                     " bytes when opened: it was cut short, or its storage failed"));
    }
}

std::span<const std::byte> File::mapped_file(std::size_t shard) const noexcept {
    return shard < impl_->shards.size() ? impl_->shards[shard].map.bytes() : std::span<const std::byte>();
}

void File::read_at(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
    if (offset > tensor.bytes || out.size() > tensor.bytes - offset)
        fail(ErrorCode::index_out_of_range, cat(name(), ": tensor '", escaped(tensor.name), "' has ", tensor.bytes,
                                                " bytes, none from ", offset, " to ", offset, " + ", out.size()));
    const Shard& shard = impl_->shards[static_cast<std::size_t>(tensor.file_index)];
    if (shard.file.size() > 0) shard.file.read_at(tensor.file_offset + offset, out);
    else if (!out.empty()) std::memcpy(out.data(), shard.in_place + tensor.file_offset + offset, out.size());
}

Pager* File::pager() const noexcept { return impl_->pager.get(); }
std::span<const PagedPlace> File::paged_places() const noexcept { return impl_->paged_places; }

bool File::data_loaded() const noexcept { return impl_->data_loaded; }
std::uint64_t File::mapped_bytes() const noexcept { return impl_->mapped_bytes; }
std::uint64_t File::copied_bytes() const noexcept { return impl_->weights.size(); }
void File::count_weights(MemoryPlan& plan) const noexcept {
    plan.weights_mapped = mapped_bytes();
    plan.weights_copied = copied_bytes();
    plan.weights_paged = impl_->pager ? impl_->pager->slot_bytes() + impl_->pager->fixed_bytes() : 0;
}
std::uint64_t File::read_buffer_bytes() const noexcept { return impl_->read_buffer_bytes; }

void File::choose_tensors(std::vector<bool> chosen) {
    impl_->chosen = std::move(chosen);
    impl_->read_buffer_bytes = 0;
    for (const TensorInfo& tensor : impl_->tensors)
        if (is_chosen(tensor)) impl_->read_buffer_bytes += *checked_round_up(tensor.bytes, 64);
}

bool File::is_chosen(const TensorInfo& tensor) const noexcept {
    return impl_->chosen.empty() || impl_->chosen[tensor.id];
}

namespace {

/// Decides for each shard whether its tensors stay where they are or are read. One without a tensor of those that are
/// placed is not mapped.
void choose_places(File::Impl& impl, const ModelOptions& options, bool may_map, const std::vector<bool>& placed) {
    for (Shard& shard : impl.shards) {
        bool maps = may_map && shard.n_tensors == 0;
        for (std::size_t i = shard.first_tensor; i < shard.first_tensor + shard.n_tensors; ++i)
            maps = maps || (may_map && placed[i]);
        if (shard.map.is_mapped() && !maps) {
            shard.guarded.set({});
            shard.map = MappedFile();
            shard.in_place = nullptr;
        } else if (!shard.map.is_mapped() && shard.in_place == nullptr && maps) {
            impl.map(shard, options);
        }
    }
}

/// By id: all tensors but those that are paged, and those that nobody asked for.
std::vector<bool> placed_tensors(const File::Impl& impl, const std::vector<bool>& paged) {
    std::vector<bool> placed(paged);
    placed.flip();
    for (std::size_t id = 0; id < impl.chosen.size(); ++id) placed[id] = placed[id] && impl.chosen[id];
    return placed;
}

/// Bytes of the buffer for the tensors of all shards that are placed and not in their mapping.
std::uint64_t bytes_to_read(const File::Impl& impl, const std::vector<bool>& placed) {
    std::uint64_t sum = 0;  // no overflow: at most the sum that was checked when the directory was merged
    for (const TensorInfo& tensor : impl.tensors)
        if (placed[tensor.id] && impl.shards[static_cast<std::size_t>(tensor.file_index)].in_place == nullptr)
            sum += *checked_round_up(tensor.bytes, 64);
    return sum;
}

/// Where each tensor's bytes are, or will be: in its mapping, or in the buffer that they are read into; null where it
/// is not placed.
std::vector<const std::byte*> place_all(const File::Impl& impl, const std::vector<bool>& placed, AlignedBuffer& weights,
                                        std::uint64_t& mapped) {
    std::vector<const std::byte*> places(impl.tensors.size());
    std::uint64_t used = 0;
    for (const std::uint32_t id : impl.by_place) {
        if (!placed[id]) continue;
        const TensorInfo& tensor = impl.tensors[id];
        const Shard& shard = impl.shards[static_cast<std::size_t>(tensor.file_index)];
        if (shard.in_place != nullptr) {
            places[id] = shard.in_place + tensor.file_offset;
            mapped += tensor.bytes;
        } else {
            places[id] = weights.data() + used;
            used += *checked_round_up(tensor.bytes, 64);
        }
    }
    return places;
}

std::unique_ptr<Pager> make_pager(const File::Impl& impl, const PagingPlan& paging, std::vector<PagedPlace>& places) {
    std::vector<const InputFile*> files;
    for (const Shard& shard : impl.shards) files.push_back(&shard.file);
    auto pager = std::make_unique<Pager>(paging, files);
    places.resize(impl.tensors.size());
    for (std::size_t g = 0; g < paging.groups.size(); ++g)
        for (std::size_t t = 0; t < paging.groups[g].tensors.size(); ++t)
            places[paging.groups[g].tensors[t].id] = {pager->address(g, t), static_cast<std::int32_t>(g)};
    for (std::size_t g = 0; g + 1 < paging.groups.size(); ++g)
        if (const std::int64_t id = paging.groups[g].router.id; id >= 0)
            places[static_cast<std::size_t>(id)].next_group = static_cast<std::int32_t>(g + 1);
    return pager;
}

void show_routers(const PagingPlan& paging, std::span<const std::byte* const> tensors, Pager& pager) {
    for (std::size_t g = 0; g < paging.groups.size(); ++g)
        if (const std::int64_t id = paging.groups[g].router.id; id >= 0)
            pager.set_router(g, tensors[static_cast<std::size_t>(id)]);
}

}  // namespace

void File::load_data(const ModelOptions& options, const PagingPlan* paging) {
    if (!impl_->data_loaded) reading([&] { load_all(options, paging); });
}

void File::load_all(const ModelOptions& options, const PagingPlan* paging) {
    const std::string& name = impl_->shards.front().name;
    try {
        std::uint64_t total = 0;
        for (const TensorInfo& tensor : impl_->tensors) total += is_chosen(tensor) ? tensor.bytes : 0;
        ProgressMeter progress(options.progress, options.check_tensors ? 2 * total : total,
                               name);  // no overflow: below 2^63
        const std::vector<bool> paged = paged_tensors(impl_->tensors.size(), paging);
        const std::vector<bool> placed = placed_tensors(*impl_, paged);
        choose_places(*impl_, options, options.use_mmap && paging == nullptr, placed);
        AlignedBuffer weights(static_cast<std::size_t>(bytes_to_read(*impl_, placed)));
        std::vector<PagedPlace> paged_places;
        auto pager = paging != nullptr ? make_pager(*impl_, *paging, paged_places) : nullptr;
        Locker locker(options.mlock, options.log, name);
        std::uint64_t mapped = 0;
        const auto places = place_all(*impl_, placed, weights, mapped);
        LoadTeam(*impl_, weights, places, options, locker, guarded_maps()).run([&](std::uint64_t bytes) {
            progress.reach(bytes);
        });
        if (options.check_tensors) {
            AlignedBuffer buffer;
            for (const TensorInfo& tensor : impl_->tensors)
                if (paged[tensor.id]) scan(tensor, buffer);
        }
        progress.finish();

        if (pager) show_routers(*paging, places, *pager);
        impl_->paged_places = std::move(paged_places);
        impl_->pager = std::move(pager);
        impl_->weights = std::move(weights);
        impl_->locked = locker.release();
        for (TensorInfo& tensor : impl_->tensors) tensor.address = places[tensor.id];
        impl_->mapped_bytes = mapped;
        impl_->data_loaded = true;
    } catch (const std::bad_alloc&) {
        throw Error(ErrorCode::out_of_memory, "no memory to load the tensors of a model file");
    }
}

void File::check_data() const {
    reading([&] { scan_all(); });
}

void File::scan_all() const {
    AlignedBuffer buffer;
    for (const TensorInfo& tensor : impl_->tensors) scan(tensor, buffer);
}

void File::scan(const TensorInfo& tensor, AlignedBuffer& buffer) const {
    constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
    const ProgressFn silent;
    ProgressMeter progress(silent, 0, impl_->shards.front().name);
    const Shard& shard = impl_->shards[static_cast<std::size_t>(tensor.file_index)];
    const auto* bytes_here = tensor.address != nullptr   ? static_cast<const std::byte*>(tensor.address)
                             : shard.in_place != nullptr ? shard.in_place + tensor.file_offset
                                                         : nullptr;
    if (bytes_here == nullptr && buffer.size() == 0) buffer = AlignedBuffer(piece_bytes);
    const auto piece = [&](std::uint64_t offset, std::uint64_t count) -> std::span<const std::byte> {
        if (bytes_here != nullptr) return {bytes_here + offset, static_cast<std::size_t>(count)};
        const auto room = buffer.bytes().first(static_cast<std::size_t>(count));
        shard.file.read_at(tensor.file_offset + offset, room);
        return room;
    };
    scan_pieces(shard, tensor, piece_bytes, piece, progress);
}

}  // namespace tinfer::gguf
