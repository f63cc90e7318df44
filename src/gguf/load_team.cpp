// SPDX-License-Identifier: MIT
#include "gguf/load_team.hpp"

#include <algorithm>
#include <cstddef>
#include <thread>

#include "base/checked.hpp"
#include "base/data_check.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/threads.hpp"

namespace tinfer::gguf {

namespace {

/// Work between two calls of the progress callback.
constexpr std::uint64_t kLoadPieceBytes = std::uint64_t{16} << 20;
/// Threads beyond these only wait for the storage.
constexpr unsigned kUsefulThreads = 4;

constexpr std::size_t kCannotRead = 0, kCancelled = 1, kDamaged = 2;  // the order of errors

}  // namespace

void refuse_block(const Shard& shard, const TensorInfo& tensor, std::uint64_t block) {
    const auto bytes = static_cast<std::uint64_t>(find_dtype(tensor.type)->block_bytes);
    fail(ErrorCode::bad_tensor_data,
         cat(shard.name, ": tensor '", escaped(tensor.name), "': block ", block, " of ", tensor.bytes / bytes, " (",
             to_string(tensor.type), ") holds a scale or value that is not finite (at byte ",
             tensor.file_offset + block * bytes, ")"));
}

void Locker::add(std::span<const std::byte> range) {
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

LoadTeam::LoadTeam(const File::Impl& file, AlignedBuffer& weights, std::span<const std::byte* const> places,
                   const ModelOptions& options, Locker& locker, GuardedMaps* guarded)
    : file_(file), weights_(weights), places_(places), options_(options), locker_(locker), guarded_(guarded) {
    for (const std::uint32_t id : file_.by_place)
        if (places_[id] != nullptr) split(id);  // else it is paged
}

const Shard& LoadTeam::shard_of(const TensorInfo& tensor) const noexcept {
    return file_.shards[static_cast<std::size_t>(tensor.file_index)];
}

void LoadTeam::split(std::uint32_t id) {
    const TensorInfo& tensor = file_.tensors[id];
    const bool untouched =
        shard_of(tensor).in_place != nullptr && !options_.populate && !options_.mlock && !options_.check_tensors;
    const auto block = static_cast<std::uint64_t>(find_dtype(tensor.type)->block_bytes);
    const std::uint64_t step = untouched ? tensor.bytes : std::max(block, kLoadPieceBytes / block * block);
    for (std::uint64_t offset = 0; offset < tensor.bytes; offset += step)
        pieces_.push_back({id, offset, std::min(step, tensor.bytes - offset)});
}

void LoadTeam::run(const Report& report) {
    const bool touches = options_.populate || options_.check_tensors || weights_.size() > 0;
    unsigned n = std::clamp(std::thread::hardware_concurrency(), 1u, kUsefulThreads);  // as the affinity allows
    if (!touches || options_.mlock) n = 1;  // pages are locked in the order of the file, up to the limit
    n = static_cast<unsigned>(std::min<std::size_t>(n, std::max<std::size_t>(pieces_.size(), 1)));

    std::vector<GuardedWork::ThreadId> ids(n);
    std::optional<GuardedWork> guard;
    if (guarded_ != nullptr) guard.emplace(*guarded_, ids);
    GuardedWork* const work_guard = guard ? &*guard : nullptr;
    HelperThreads others(n - 1, [this, work_guard](unsigned i) { work(work_guard, static_cast<int>(i), nullptr); });
    work(work_guard, 0, &report);
    for (bool is_over = false; !is_over;) {  // what the others still do is reported too
        report_done(report);
        std::unique_lock lock(wake_mutex_);
        const auto is_new = [&] { return stop_.load(std::memory_order_relaxed) || n_reported_ < n_done_.load(); };
        is_over = stop_.load(std::memory_order_relaxed) || n_reported_ == pieces_.size();
        if (!is_over) wake_.wait(lock, is_new);
    }
    others.join();
    if (error_) std::rethrow_exception(error_);
}

void LoadTeam::work(GuardedWork* guard, int thread, const Report* report) {
    const GuardedWork::Thread guarded(guard, thread);
    while (!stop_.load(std::memory_order_relaxed)) {
        const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
        if (i >= pieces_.size()) return;
        const Piece& piece = pieces_[i];
        try {
            fetch(piece);
        } catch (...) {
            record_error(kCannotRead, i, std::current_exception());
            return;
        }
        if (options_.check_tensors) try {
                check(piece);
            } catch (...) {
                record_error(kDamaged, i, std::current_exception());
            }
        n_done_.fetch_add(1, std::memory_order_release);
        wake();
        if (report != nullptr) report_done(*report);
    }
}

void LoadTeam::wake() noexcept {
    const std::lock_guard lock(wake_mutex_);  // so that no wake-up is lost between the test and the wait
    wake_.notify_one();
}

// One report a piece, in the order of pieces, whoever did which: the same reports for every number of threads.
void LoadTeam::report_done(const Report& report) {
    while (n_reported_ < n_done_.load(std::memory_order_acquire) && !stop_.load(std::memory_order_relaxed)) {
        const Piece& piece = pieces_[n_reported_++];
        reported_bytes_ += options_.check_tensors ? 2 * piece.bytes : piece.bytes;
        try {
            report(reported_bytes_);
        } catch (...) {
            record_error(kCancelled, n_reported_ - 1, std::current_exception());
        }
    }
}

std::span<const std::byte> LoadTeam::bytes_of(const Piece& piece) const noexcept {
    return {places_[piece.tensor] + piece.offset, static_cast<std::size_t>(piece.bytes)};
}

void LoadTeam::fetch(const Piece& piece) {
    const TensorInfo& tensor = file_.tensors[piece.tensor];
    const Shard& shard = shard_of(tensor);
    const auto place = bytes_of(piece);
    if (shard.in_place == nullptr) {
        const auto at = static_cast<std::size_t>(place.data() - weights_.data());
        shard.file.read_at(tensor.file_offset + piece.offset, weights_.bytes().subspan(at, place.size()));
    } else if (options_.populate && shard.map.is_mapped()) {
        if (const int error = populate_pages(place); error != 0)
            fail(ErrorCode::io_error, cat(shard.name, ": tensor '", escaped(tensor.name),
                                          "': cannot bring its pages into memory: ", errno_text(error)));
    }
    locker_.add(place);
}

void LoadTeam::check(const Piece& piece) {
    const TensorInfo& tensor = file_.tensors[piece.tensor];
    const auto block = static_cast<std::uint64_t>(find_dtype(tensor.type)->block_bytes);
    if (const auto bad = first_bad_block(tensor.type, bytes_of(piece)))
        refuse_block(shard_of(tensor), tensor, piece.offset / block + *bad);
}

/// Pieces are taken in order, so when one cannot be read all earlier ones are taken already: the earliest error counts.
/// Damage does not stop the others, because something may still turn out unreadable.
void LoadTeam::record_error(std::size_t order, std::size_t piece, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (order != kDamaged) {
        stop_.store(true, std::memory_order_relaxed);
        wake();
    }
    if (order == kDamaged) piece = pieces_[piece].tensor;  // damage is reported in the order of the directory
    if (error_ && std::pair(error_order_, error_piece_) <= std::pair(order, piece)) return;
    error_ = std::move(error);
    error_order_ = order;
    error_piece_ = piece;
}

}  // namespace tinfer::gguf
