// SPDX-License-Identifier: MIT
// Slices of tensors that are in memory some of the time: the experts of a mixture that is larger than memory. A tensor
// has addresses for all of its bytes, so that whoever reads it finds slice e at e times the stride, as in its file;
// what is limited are the pages behind them. A unit (the slices of one expert) is read before the step that needs it, kept
// while it is held, and dropped when another unit that is needed more often wants its room.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/mapped_file.hpp"
#include "base/paging_plan.hpp"
#include "base/unbuffered_file.hpp"

namespace tinfer {

/// Counts since a pager was made.
struct PagerCounts {
    std::uint64_t hits = 0, misses = 0;  ///< units that a step needed and found, or did not find
    std::uint64_t bytes_read = 0;
    std::uint64_t waited_ns = 0;  ///< of leading threads
};

class Pager {
public:
    /// The units that one run has at present: they stay until they are released. One object for each executor, which
    /// allocates once.
    class Hold {
    public:
        Hold() noexcept = default;
        explicit Hold(std::uint32_t max_units) : is_wanted_(max_units) {
            wanted_.reserve(max_units);
            held_.reserve(max_units);
        }
        [[nodiscard]] static std::uint64_t bytes(std::uint32_t max_units) noexcept {
            return std::uint64_t{max_units} * (2 * sizeof(std::uint32_t) + sizeof(std::uint8_t));
        }
        /// For the next hold(): a unit's number in its group. The same one again, and numbers beyond the largest group,
        /// are passed over.
        void want(std::int32_t unit) noexcept {
            const auto u = static_cast<std::uint32_t>(unit);
            if (u < is_wanted_.size() && std::exchange(is_wanted_[u], std::uint8_t{1}) == 0) wanted_.push_back(u);
        }
        [[nodiscard]] std::uint64_t waited_ns() const noexcept { return waited_ns_; }  ///< for storage, so far

    private:
        friend class Pager;
        std::vector<std::uint8_t> is_wanted_;
        std::vector<std::uint32_t> wanted_, held_;  // held: numbered over all groups
        std::uint64_t waited_ns_ = 0;
    };

    /// The files must outlive it. Reads nothing. Throws out_of_memory, and not_available where no thread can be made.
    Pager(const PagingPlan& plan, std::span<const InputFile* const> files);
    ~Pager();
    Pager(const Pager&) = delete;
    Pager& operator=(const Pager&) = delete;

    /// Bytes that a pager of this plan takes beside its units.
    [[nodiscard]] static std::uint64_t fixed_bytes(const PagingPlan& plan) noexcept;

    /// Where tensor t of a group begins.
    [[nodiscard]] std::byte* address(std::size_t group, std::size_t t) const noexcept {
        return groups_[group].tensors[t].memory.data();
    }

    /// Lets go of what is held, and holds what is wanted of a group, when all of it is in memory. Returns false where
    /// `cancelled` said so (asked now and then while it waits; null: never); throws io_error naming tensor, unit and
    /// place in the file, and limit_exceeded where the units do not fit together. Nothing is held then. Any thread.
    [[nodiscard]] bool hold(Hold& hold, std::size_t group, bool (*cancelled)(void*) noexcept, void* context);
    void release(Hold& hold) noexcept;

    [[nodiscard]] PagerCounts counts() const;
    [[nodiscard]] std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] std::uint64_t fixed_bytes() const noexcept { return fixed_bytes_; }  ///< tables and buffers
    [[nodiscard]] std::uint64_t used_bytes() const;
    /// Pages of units in memory, as the system counts them; nullopt where it does not.
    [[nodiscard]] std::optional<std::uint64_t> resident_bytes() const;
    [[nodiscard]] bool is_direct() const noexcept;  ///< reads pass the page cache by

private:
    enum class State : std::uint8_t { absent, reading, resident };
    struct Tensor {
        PagedSlices slices;
        SparseMemory memory;
        std::uint64_t first_piece = 0;  ///< of a unit's pieces
    };
    struct Group {
        std::vector<Tensor> tensors;
        std::uint32_t first_unit = 0, n_units = 0;
        std::uint64_t unit_bytes = 0, n_pieces = 0;
        std::uint64_t n_passes = 0;  ///< how often units of it were held
    };
    struct Unit {
        double weight = 0;  ///< how much it is needed: log2 of picks that count half after kHalfLife passes, plus age
        std::uint32_t group = 0, holds = 0;
        std::uint32_t at = 0;  ///< in resident_
        State state = State::absent;
        bool failed = false;
        std::uint32_t next_piece = 0, pieces_left = 0;  ///< while it is read: to hand out, and to end
    };

    void read_pieces(std::size_t reader) noexcept;
    std::size_t read_piece(const Group& group, std::uint32_t unit, std::uint32_t piece, std::span<std::byte> buffer);
    bool wait_for(Hold& hold, std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept, void* context);
    bool reserve(Hold& hold);
    bool drop_one();
    void drop(std::uint32_t unit) noexcept;
    void begin_reading(std::uint32_t unit);
    void count_pick(Unit& unit, Group& group) noexcept;
    [[nodiscard]] bool overlaps_kept(const Group& group, const Tensor& tensor, std::uint64_t page) const noexcept;
    void unpin(Hold& hold) noexcept;
    void throw_failure(std::uint32_t unit);

    std::vector<Group> groups_;
    std::vector<Unit> units_;              // of all groups, one behind the other
    std::vector<std::uint32_t> resident_;  // units in memory, in no order
    std::vector<std::uint32_t> wanted_;    // units that readers take pieces of, first come first served
    std::vector<std::unique_ptr<UnbufferedFile>> files_;
    std::vector<AlignedBuffer> buffers_;             // of readers
    std::map<std::uint32_t, std::string> failures_;  // of units whose last read failed
    std::uint64_t slot_bytes_ = 0, fixed_bytes_ = 0, used_bytes_ = 0;
    PagerCounts counts_;
    long process_ = 0;
    mutable std::mutex mutex_;  // of all above that changes
    std::condition_variable work_, done_;
    bool stopped_ = false;
    std::vector<std::jthread> readers_;  // last: they use the rest
};

}  // namespace tinfer
