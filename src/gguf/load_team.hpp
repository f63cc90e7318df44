// SPDX-License-Identifier: MIT
// Loads the bytes of tensors: reads or faults in, locks and checks them, in pieces that several threads take in the
// order of the file. While one thread waits for storage another checks what it has, and a piece is checked while it is
// in cache. The result, errors included, is the same for every number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.hpp"
#include "gguf/contents.hpp"

namespace tinfer::gguf {

/// Throws bad_tensor_data for a block whose scale is not finite.
[[noreturn]] void refuse_block(const Shard& shard, const TensorInfo& tensor, std::uint64_t block);

/// Locks pages until the first failure, which is a warning.
class Locker {
public:
    Locker(bool wanted, const LogSink& log, const std::string& name) : active_(wanted), log_(log), name_(name) {}
    void add(std::span<const std::byte> range);
    LockedPages release() noexcept { return std::move(pages_); }

private:
    bool active_;
    const LogSink& log_;
    const std::string& name_;
    LockedPages pages_;
    std::uint64_t bytes_ = 0;
};

class LoadTeam {
public:
    using Report = std::function<void(std::uint64_t bytes)>;  ///< of work done, on the calling thread; may throw

    /// Tensors without a mapping are read to their places, which lie in `weights`.
    LoadTeam(const File::Impl& file, AlignedBuffer& weights, std::span<const std::byte* const> places,
             const ModelOptions& options, Locker& locker, GuardedMaps* guarded);
    /// Does all of it. Of several errors throws the one that a single thread would meet first: what cannot be read
    /// before what is damaged.
    void run(const Report& report);

private:
    struct Piece {
        std::uint32_t tensor;
        std::uint64_t offset, bytes;
    };
    void split(std::uint32_t id);
    void work(GuardedWork* guard, int thread, const Report* report);
    void fetch(const Piece& piece);
    void check(const Piece& piece);
    void report_done(const Report& report);
    void wake() noexcept;
    void record_error(std::size_t order, std::size_t piece, std::exception_ptr error);
    [[nodiscard]] std::span<const std::byte> bytes_of(const Piece& piece) const noexcept;
    [[nodiscard]] const Shard& shard_of(const TensorInfo& tensor) const noexcept;

    const File::Impl& file_;
    AlignedBuffer& weights_;
    std::span<const std::byte* const> places_;
    const ModelOptions& options_;
    Locker& locker_;
    GuardedMaps* guarded_;

    std::vector<Piece> pieces_;
    std::atomic<std::size_t> next_{0};
    std::atomic<std::size_t> n_done_{0};
    std::mutex wake_mutex_;
    std::condition_variable wake_;  // a piece is done, or all is to stop: what the calling thread waits for
    std::atomic<bool> stop_{false};
    std::size_t n_reported_ = 0;        // of the calling thread: reports so far,
    std::uint64_t reported_bytes_ = 0;  // and the work that they told of
    std::mutex mutex_;                  // of what follows
    std::exception_ptr error_;
    std::size_t error_order_ = 0, error_piece_ = 0;
};

}  // namespace tinfer::gguf
