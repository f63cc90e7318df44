// SPDX-License-Identifier: MIT
// Slices of tensors that are in memory some of the time: the experts of a mixture that is larger than memory. A tensor
// has addresses for all of its bytes, so that whoever reads it finds slice e at e times the stride, as in its file;
// what is limited are the pages behind them. A unit (the slices of one expert) is read before the step that needs it,
// kept while it is held, and dropped when another unit that is needed more often wants its room. Units that will be
// needed are read ahead: the next ones of a stream, and those that the next router names when it is asked early.
#pragma once

#include <array>
#include <chrono>
#include <compare>
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
#include "tinfer/trace.hpp"

namespace tinfer {

/// Counts since a pager was made, or of one run of steps.
struct PagerCounts {
    std::uint64_t hits = 0, misses = 0;              ///< units that a step needed and found, or did not find
    std::uint64_t bytes_read = 0;                    ///< of a run: those of its misses
    std::uint64_t waited_ns = 0;                     ///< of leading threads
    std::uint64_t ahead_used = 0, ahead_wasted = 0;  ///< units that were read ahead: needed then, or dropped before
};

class Pager {
public:
    /// The units that one run has at present: they stay until they are released. One object for each executor, which
    /// allocates once.
    class Hold {
    public:
        Hold() noexcept = default;
        explicit Hold(std::uint32_t max_units) : is_wanted_(max_units), is_here_(max_units) {
            wanted_.reserve(max_units);
            held_.reserve(max_units);
        }
        [[nodiscard]] static std::uint64_t bytes(std::uint32_t max_units) noexcept {
            return std::uint64_t{max_units} * (2 * sizeof(std::uint32_t) + 2 * sizeof(std::uint8_t));
        }
        /// For the next hold(): a unit's number in its group. The same one again, and numbers beyond the largest group,
        /// are passed over.
        void want(std::int32_t unit) noexcept {
            const auto u = static_cast<std::uint32_t>(unit);
            if (u < is_wanted_.size() && std::exchange(is_wanted_[u], std::uint8_t{1}) == 0) wanted_.push_back(u);
        }
        /// Whether a unit of the group of the last begin() was in memory then.
        [[nodiscard]] bool is_here(std::int32_t unit) const noexcept {
            const auto u = static_cast<std::uint32_t>(unit);
            return u < is_here_.size() && is_here_[u] != 0;
        }
        [[nodiscard]] const PagerCounts& counts() const noexcept { return counts_; }  ///< so far

        /// A unit that had to be read, or was read ahead and is needed for the first time.
        struct Read {
            std::uint32_t unit = 0;  ///< numbered over all groups
            bool ahead = false;
            std::uint64_t waited_ns = 0;
        };
        /// Whether reads are noted, which allocates; forgets those so far.
        void note_reads(bool wanted) noexcept { notes_reads_ = wanted, reads_.clear(); }
        [[nodiscard]] std::span<const Read> reads() const noexcept { return reads_; }

    private:
        friend class Pager;
        std::vector<std::uint8_t> is_wanted_, is_here_;
        std::vector<std::uint32_t> wanted_, held_;  // held: numbered over all groups
        PagerCounts counts_;
        bool notes_reads_ = false;
        std::size_t first_read_ = 0;  // of reads_, of the units that are waited for
        std::vector<Read> reads_;
    };

    /// What of the units is in memory that a run has begun to hold.
    enum class Begun : std::uint8_t { cancelled, all, some, none };

    /// The files must outlive it. Reads nothing. Throws out_of_memory, and not_available where no thread can be made.
    Pager(const PagingPlan& plan, std::span<const InputFile* const> files);
    ~Pager();
    Pager(const Pager&) = delete;
    Pager& operator=(const Pager&) = delete;

    /// Bytes that a pager of this plan takes beside its units.
    [[nodiscard]] static std::uint64_t fixed_bytes(const PagingPlan& plan) noexcept;

    /// Where tensor t of a group begins.
    [[nodiscard]] std::byte* address(std::size_t group, std::size_t t) const noexcept {
        return groups_[group].tensors[t].begin();
    }

    /// Lets go of what is held, and holds what is wanted of a group, when all of it is in memory. Returns false where
    /// `cancelled` said so (asked now and then while it waits; null: never); throws io_error naming tensor, unit and
    /// place in the file, out_of_memory where the system has taken addresses away, and limit_exceeded where the units
    /// do not fit together. Nothing is held then. Any thread.
    [[nodiscard]] bool hold(Hold& hold, std::size_t group, bool (*cancelled)(void*) noexcept, void* context);
    /// The same in two parts: holds all units of which some may still be read, and waits for these. Units that are in
    /// memory when begin() returns can be used before finish().
    [[nodiscard]] Begun begin(Hold& hold, std::size_t group, bool (*cancelled)(void*) noexcept, void* context);
    [[nodiscard]] bool finish(Hold& hold, bool (*cancelled)(void*) noexcept, void* context);
    void release(Hold& hold) noexcept;
    /// What a noted read was of: one slice of each tensor. Its run and time are left to the caller.
    void tell(const Hold::Read& read, std::vector<ReadEvent>& out) const;

    /// The rows of a group's router, which must outlive the pager.
    void set_router(std::size_t group, const std::byte* rows) noexcept { groups_[group].router_rows = rows; }
    /// At most so many tokens' vectors are looked at in a guess.
    static constexpr std::size_t kGuessTokens = 8;
    /// A group will be needed, and these are the vectors that the router before its own has got, n_in floats each at
    /// most kGuessTokens of them: what its router says of them is read at low priority, by other threads. Nothing where
    /// guesses do not pay.
    void guess(std::size_t group, const float* x, std::size_t n_in, std::size_t n_tokens);
    /// All of a group will be needed, or nearly.
    void expect_all(std::size_t group);
    /// The units that were needed most often are read into the room there is, by other threads, and count as picked.
    /// `picks`: of each unit of the group.
    void warm(std::size_t group, std::span<const std::uint64_t> picks);
    void read_warm();
    [[nodiscard]] std::vector<std::uint64_t> picks(std::size_t group) const;
    /// Of passes of one token that came behind another such pass.
    struct Repeats {
        std::uint64_t n_compared = 0, n_repeated = 0;  ///< picks, and those that the pass before had, too
    };
    [[nodiscard]] Repeats repeats(std::size_t group) const;
    /// Whether units are read before they are needed.
    void set_ahead(bool on);

    [[nodiscard]] std::size_t n_groups() const noexcept { return groups_.size(); }
    [[nodiscard]] std::uint32_t n_units(std::size_t group) const noexcept { return groups_[group].n_units; }
    [[nodiscard]] std::int32_t layer(std::size_t group) const noexcept { return groups_[group].layer; }
    [[nodiscard]] bool is_streamed() const noexcept { return streamed_; }

    [[nodiscard]] PagerCounts counts() const;
    [[nodiscard]] std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }
    [[nodiscard]] std::uint64_t fixed_bytes() const noexcept { return fixed_bytes_; }  ///< tables and buffers
    [[nodiscard]] std::uint64_t used_bytes() const;
    /// Pages of units in memory, as the system counts them; nullopt where it does not.
    [[nodiscard]] std::optional<std::uint64_t> resident_bytes() const;
    [[nodiscard]] bool is_direct() const noexcept;  ///< reads pass the page cache by

    static constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;  ///< of one request

private:
    static constexpr std::size_t kReaders = 4;  // requests that the storage has at once
    static constexpr double kHalfLife = 16;     // passes of a group after which a pick counts half
    enum class State : std::uint8_t { absent, reading, resident };
    struct Tensor {
        PagedSlices slices;
        SparseMemory memory;
        std::size_t lead = 0;           ///< of memory before the tensor: pages here are cut as pages of the file are
        bool is_whole = false;          ///< it has one slice, and so all pages of its memory
        std::uint64_t first_piece = 0;  ///< of a unit's pieces
        [[nodiscard]] std::byte* begin() const noexcept { return memory.data() + lead; }
    };
    /// Bytes of a tensor's memory, whole pages.
    struct Pages {
        std::size_t begin = 0, end = 0;
    };
    /// Pages that a unit does not need any more and the next one that is read may get.
    struct Spare {
        std::byte* begin = nullptr;
        std::size_t bytes = 0;
        std::uint32_t unit = 0;
    };
    struct Group {
        std::vector<Tensor> tensors;
        std::uint32_t first_unit = 0, n_units = 0;
        std::uint64_t unit_bytes = 0, n_pieces = 0;
        std::uint64_t n_passes = 0;  ///< how often units of it were held
        bool was_one_token = false;  ///< in the last of them
        Repeats repeats;
        std::int32_t layer = -1;
        PagedRouter router;
        const std::byte* router_rows = nullptr;
    };
    struct Unit {
        double weight = 0;  ///< how much it is needed: log2 of picks that count half after kHalfLife passes, plus age
        std::uint32_t group = 0, holds = 0;
        std::uint32_t at = 0;  ///< in resident_
        State state = State::absent;
        bool failed = false;
        bool is_split = false;   ///< its pages may be mappings of their own
        std::uint8_t ahead = 0;  ///< it is, or was, read ahead and nobody has needed it yet: so many groups before
        std::uint32_t next_piece = 0, pieces_left = 0;  ///< while it is read: to hand out, and to end
        std::uint64_t n_picks = 0, last_pass = 0;       ///< the pass of its group that has picked it last, from 1 on
    };
    /// How good guesses of one depth were of late.
    struct Guesses {
        std::uint32_t n_used = 0, n_wasted = 0;  ///< of the units read ahead, in this window
        std::uint32_t n_paused = 0;              ///< guesses that are left out
    };
    /// A vector is shown to the routers of so many groups: each is a worse guess than the one before.
    static constexpr std::size_t kDepth = 2;
    /// A guess that waits for its thread.
    struct Question {
        std::int64_t group = -1;  ///< -1: there is none
        std::size_t n_tokens = 0;
        std::vector<float> x;
    };

    /// A unit that may be dropped, and how much it would be missed: the least of them goes.
    struct Rank {
        bool ahead = false;
        std::int64_t first = 0, second = 0;
        auto operator<=>(const Rank&) const = default;
    };

    void read_pieces(std::size_t reader) noexcept;
    void answer_questions() noexcept;
    [[nodiscard]] bool may_guess(std::size_t depth) noexcept;
    void answer(const Question& question, std::size_t group, std::vector<std::uint32_t>& named) const;
    std::size_t read_piece(const Group& group, std::uint32_t unit, std::uint32_t piece, std::span<std::byte> ends);
    bool reserve(Hold& hold);
    bool drop_one();
    bool drop_one_behind(std::size_t least_distance) noexcept;
    bool forget_waiting() noexcept;
    void settle_guesses(const Group& group) noexcept;
    [[nodiscard]] std::vector<std::uint32_t>::iterator next_ahead() noexcept;
    [[nodiscard]] Rank rank(const Unit& unit) const noexcept;
    [[nodiscard]] std::size_t distance(std::size_t group) const noexcept;
    void count_repeats(const Hold& hold, Group& group) noexcept;
    bool look_at(Hold& hold, std::uint32_t unit, Group& group);
    void count_wait(Hold& hold, std::chrono::steady_clock::time_point begin) noexcept;
    bool wait_a_moment(std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept, void* context);
    bool wait_for_room(Hold& hold, std::unique_lock<std::mutex>& lock, bool (*cancelled)(void*) noexcept,
                       void* context);
    void drop(std::uint32_t unit) noexcept;
    void take_spares(std::uint32_t unit) noexcept;
    [[nodiscard]] bool may_split(std::uint32_t unit) noexcept;
    void give_back_spares() noexcept;
    [[nodiscard]] std::byte* fresh_pages(std::size_t bytes) noexcept;
    void make_fresh();
    void trim_fresh() noexcept;
    [[nodiscard]] static Pages own_pages(const Tensor& tensor, std::uint32_t slice) noexcept;
    void read_next_of_stream();
    bool read_ahead(std::uint32_t unit, std::size_t least_distance);
    void note_guess(Unit& unit, bool used) noexcept;
    void begin_reading(std::uint32_t unit, std::vector<std::uint32_t>& queue) noexcept;
    void count_pick(Unit& unit, Group& group) noexcept;
    [[nodiscard]] bool overlaps_kept(const Group& group, const Tensor& tensor, std::size_t page) const noexcept;
    void unpin(Hold& hold) noexcept;
    void throw_failure(std::uint32_t unit);

    std::vector<Group> groups_;
    std::vector<Unit> units_;              // of all groups, one behind the other
    std::vector<std::uint32_t> resident_;  // units in memory, in no order
    std::vector<std::uint32_t> wanted_;    // units that readers take pieces of, first come first served
    std::vector<std::uint32_t> ahead_;     // the same where nobody waits for them yet
    std::size_t n_ahead_readers_ = 0;      // at work on these
    std::size_t at_group_ = 0;             // that was held last
    bool streamed_ = false, reads_ahead_ = true;
    bool sweeps_ = false;  // the step that was held last needs most of its group: a prompt goes through all groups
    std::array<Guesses, kDepth> guesses_{};  // by depth, less one
    std::uint64_t n_holds_since_miss_ = 0;
    Question question_;
    std::vector<std::unique_ptr<UnbufferedFile>> files_;
    std::vector<AlignedBuffer> buffers_;             // of readers
    std::map<std::uint32_t, std::string> failures_;  // of units whose last read failed
    std::uint64_t slot_bytes_ = 0, fixed_bytes_ = 0, used_bytes_ = 0;
    PagerCounts counts_;
    long process_ = 0;
    mutable std::mutex mutex_;  // of all above that changes
    std::condition_variable work_, done_, asked_;
    bool stopped_ = false;
    bool is_lost_ = false;                         // addresses of a tensor: nothing is read any more
    bool mappings_are_out_ = false;                // the process has too many for more of them
    std::size_t mappings_ = 0;                     // that may be made before they are counted again
    std::vector<Spare> spares_;                    // none while the mutex is free
    SparseMemory fresh_;                           // pages that no unit has had yet
    std::size_t fresh_begin_ = 0, fresh_end_ = 0;  // of those that are in memory; what comes before has been taken
    std::vector<std::jthread> readers_;            // last: they use the rest
    std::jthread guesser_;
};

}  // namespace tinfer
