// SPDX-License-Identifier: MIT
// The bytes of tensors: mapped where possible, else read into one buffer; faulted in, locked and scanned where asked.
// Nothing of a File changes until all of it has succeeded, so a cancelled load leaves no trace.
#include <algorithm>
#include <new>

#include "base/checked.hpp"
#include "base/data_check.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"

namespace tinfer::gguf {

namespace {

/// Work between two calls of the progress callback.
constexpr std::uint64_t kProgressBytes = std::uint64_t{16} << 20;

/// Reports fractions of a known amount of work: 0 first, 1 last, never falling.
class ProgressMeter {
public:
    ProgressMeter(const ProgressFn& report, std::uint64_t total, const std::string& name)
        : report_(report), total_(total), name_(name) {
        send(0.0);
    }
    void advance(std::uint64_t bytes) {
        done_ += bytes;
        // 1 is said by finish() alone, after the last thing that can fail.
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

[[noreturn]] void refuse_block(const Shard& shard, const TensorInfo& tensor, std::uint64_t block) {
    const auto bytes = static_cast<std::uint64_t>(find_dtype(tensor.type)->block_bytes);
    fail(ErrorCode::bad_tensor_data,
         cat(shard.name, ": tensor '", escaped(tensor.name), "': block ", block, " of ", tensor.bytes / bytes, " (",
             to_string(tensor.type), ") holds a scale or value that is not finite (at byte ",
             tensor.file_offset + block * bytes, ")"));
}

/// Scans one tensor, piece by piece; `piece(offset, bytes)` gives the bytes.
template <class Piece>
void scan(const Shard& shard, const TensorInfo& tensor, std::uint64_t piece_bytes, const Piece& piece,
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

/// Locks pages until the first failure, which is a warning.
class Locker {
public:
    Locker(bool wanted, const LogSink& log, const std::string& name) : active_(wanted), log_(log), name_(name) {}
    void add(std::span<const std::byte> range) {
        if (!active_) return;
        const int error = pages_.add(range);
        if (error == 0) {
            bytes_ += range.size();
            return;
        }
        active_ = false;
        if (log_)
            log_(LogLevel::warning,
                 cat(name_, ": cannot lock weights in memory after ", bytes_, " bytes: ", errno_text(error)));
    }
    LockedPages release() noexcept { return std::move(pages_); }

private:
    bool active_;
    const LogSink& log_;
    const std::string& name_;
    LockedPages pages_;
    std::uint64_t bytes_ = 0;
};

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

void File::check_intact() const {
    if (impl_->guarded.damaged() == nullptr) return;
    for (const Shard& shard : impl_->shards)
        if (const std::uint64_t offset = shard.guarded.lost_at(); offset != GuardedMap::kIntact)
            fail(ErrorCode::io_error,
                 cat(shard.name, ": cannot read at byte ", offset, " of the mapped file, which had ", shard.file_bytes,
                     " bytes when opened: it was cut short, or its storage failed"));
}

bool File::data_loaded() const noexcept { return impl_->data_loaded; }
std::uint64_t File::mapped_bytes() const noexcept { return impl_->mapped_bytes; }
std::uint64_t File::copied_bytes() const noexcept { return impl_->weights.size(); }
std::uint64_t File::read_buffer_bytes() const noexcept { return impl_->read_buffer_bytes; }

namespace {

/// Decides for each shard whether its tensors stay where they are or are read. A mapping made for the header alone is
/// cut back when mapping is not wanted for tensors.
void choose_places(File::Impl& impl, const ModelOptions& options) {
    for (Shard& shard : impl.shards) {
        if (shard.map.is_mapped() && !options.use_mmap) {
            shard.map.keep_front(static_cast<std::size_t>(shard.header_end));
            shard.guarded.set(shard.map.bytes());
            shard.in_place = nullptr;
        } else if (!shard.map.is_mapped() && shard.in_place == nullptr && options.use_mmap) {
            impl.map(shard, options);
        }
    }
}

/// Bytes of the buffer for the tensors of all shards that are not in place.
std::uint64_t bytes_to_read(const File::Impl& impl) {
    std::uint64_t sum = 0;  // no overflow: at most the sum that was checked when the directory was merged
    for (const TensorInfo& tensor : impl.tensors)
        if (impl.shards[static_cast<std::size_t>(tensor.file_index)].in_place == nullptr)
            sum += *checked_round_up(tensor.bytes, 64);
    return sum;
}

std::uint64_t bytes_of(std::span<const TensorInfo> tensors) {
    std::uint64_t sum = 0;
    for (const TensorInfo& tensor : tensors) sum += tensor.bytes;
    return sum;
}

/// Reads or prepares one tensor whose bytes belong at `place`.
void bring(const Shard& shard, const TensorInfo& tensor, std::span<std::byte> buffer, std::span<const std::byte> place,
           const ModelOptions& options, Locker& locker, ProgressMeter& progress) {
    const bool untouched = shard.in_place != nullptr && !options.populate && !options.mlock;
    const std::uint64_t step = untouched ? tensor.bytes : kProgressBytes;
    for (std::uint64_t offset = 0; offset < tensor.bytes; offset += step) {
        const std::uint64_t bytes = std::min(step, tensor.bytes - offset);
        const auto piece = place.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
        if (shard.in_place == nullptr)
            shard.file.read_at(tensor.file_offset + offset,
                               buffer.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes)));
        else if (options.populate && shard.map.is_mapped())
            if (const int error = populate_pages(piece); error != 0)
                fail(ErrorCode::io_error, cat(shard.name, ": tensor '", escaped(tensor.name),
                                              "': cannot bring its pages into memory: ", errno_text(error)));
        locker.add(piece);
        progress.advance(bytes);
    }
}

}  // namespace

void File::load_data(const ModelOptions& options) {
    if (!impl_->data_loaded) reading([&] { bring_all(options); });
}

void File::bring_all(const ModelOptions& options) {
    const std::string& name = impl_->shards.front().name;
    try {
        const std::uint64_t total = bytes_of(impl_->tensors);
        ProgressMeter progress(options.progress, options.check_tensors ? 2 * total : total,
                               name);  // no overflow: below 2^63
        choose_places(*impl_, options);
        AlignedBuffer weights(static_cast<std::size_t>(bytes_to_read(*impl_)));
        Locker locker(options.mlock, options.log, name);

        std::vector<const std::byte*> places(impl_->tensors.size());
        std::uint64_t used = 0, mapped = 0;
        for (const std::uint32_t id : impl_->by_place) {
            const TensorInfo& tensor = impl_->tensors[id];
            const Shard& shard = impl_->shards[static_cast<std::size_t>(tensor.file_index)];
            std::span<std::byte> buffer;
            if (shard.in_place != nullptr) {
                places[id] = shard.in_place + tensor.file_offset;
                mapped += tensor.bytes;
            } else {
                buffer =
                    weights.bytes().subspan(static_cast<std::size_t>(used), static_cast<std::size_t>(tensor.bytes));
                places[id] = buffer.data();
                used += *checked_round_up(tensor.bytes, 64);
            }
            bring(shard, tensor, buffer, {places[id], static_cast<std::size_t>(tensor.bytes)}, options, locker,
                  progress);
        }
        if (options.check_tensors)
            for (const TensorInfo& tensor : impl_->tensors) {
                const auto piece = [&](std::uint64_t offset, std::uint64_t bytes) {
                    return std::span(places[tensor.id] + offset, static_cast<std::size_t>(bytes));
                };
                scan(impl_->shards[static_cast<std::size_t>(tensor.file_index)], tensor, kProgressBytes, piece,
                     progress);
            }
        progress.finish();

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
    constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
    const ProgressFn silent;
    ProgressMeter progress(silent, 0, impl_->shards.front().name);
    AlignedBuffer buffer;
    for (const TensorInfo& tensor : impl_->tensors) {
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
        scan(shard, tensor, piece_bytes, piece, progress);
    }
}

}  // namespace tinfer::gguf
