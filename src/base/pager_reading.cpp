// SPDX-License-Identifier: MIT
// The pager's threads: readers, which take pieces of units, and the one that asks routers early; what is read ahead,
// and what is read before the first token.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <numeric>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/pager.hpp"

namespace tinfer {

namespace {

// Guesses are judged by so many units that were read ahead. Where less than this share was needed they have delayed
// other reads more than they gave: they pause, and are tried again. What is guessed early gains less where it is right.
constexpr std::uint32_t kGuessWindow = 64, kGuessPause = 1024;
constexpr double kLeastShare = 0.25, kLeastShareOfDeeper = 0.75;
constexpr std::size_t kManyAhead = 8;      // units that wait to be read ahead, from which on no deeper guess is made
constexpr std::uint64_t kFewMisses = 256;  // holds without a miss, from which on nothing is guessed

template <class Stored, class ToFloat>
float product_of(const std::byte* row, const float* x, std::size_t n, const ToFloat& to_float) noexcept {
    constexpr std::size_t kLanes = 8;
    std::array<float, kLanes> sums{};
    std::array<Stored, kLanes> stored{};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        std::memcpy(stored.data(), row + i * sizeof(Stored), sizeof stored);
        for (std::size_t k = 0; k < kLanes; ++k) sums[k] += to_float(stored[k]) * x[i + k];
    }
    float sum = std::accumulate(sums.begin(), sums.end(), 0.0f);
    for (; i < n; ++i) {
        std::memcpy(stored.data(), row + i * sizeof(Stored), sizeof(Stored));
        sum += to_float(stored[0]) * x[i];
    }
    return sum;
}

float product(const std::byte* row, DType type, const float* x, std::size_t n) noexcept {
    if (type == DType::f32) return product_of<float>(row, x, n, [](float value) { return value; });
    if (type == DType::f16)
        return product_of<std::uint16_t>(row, x, n, [](std::uint16_t half) { return f16_to_f32(half); });
    return product_of<std::uint16_t>(row, x, n, [](std::uint16_t half) { return bf16_to_f32(half); });
}

}  // namespace

// ---- reading --------------------------------------------------------------------------------------------------------

// A piece begins and ends where blocks of the file do, but for the ends of the slice.
std::size_t Pager::read_piece(const Group& group, std::uint32_t slice, std::uint32_t piece, std::span<std::byte> ends) {
    const auto tensor =
        std::prev(std::ranges::upper_bound(group.tensors, std::uint64_t{piece}, {}, &Tensor::first_piece));
    const PagedSlices& slices = tensor->slices;
    const std::uint64_t first = slice * slices.slice_bytes,
                        before = (slices.offset + first) % UnbufferedFile::kAlignment;
    const std::uint64_t at = (piece - tensor->first_piece) * kPieceBytes;  // counted from the slice's first block
    const std::uint64_t begin = std::max(at, before) - before,
                        end = std::min(at + kPieceBytes - before, slices.slice_bytes);
    if (begin >= end) return 0;
    const auto n = static_cast<std::size_t>(end - begin);
    try {
        files_[slices.file]->read_in_place(slices.offset + first + begin, {tensor->begin() + first + begin, n}, ends);
        return n;
    } catch (const Error& error) {
        fail(ErrorCode::io_error, cat(error.what(), " (tensor '", escaped(slices.tensor), "', expert ", slice, ")"));
    }
}

// The life of a reader.
void Pager::read_pieces(std::size_t reader) noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        // One reader is left for those that are waited for.
        const auto may_go_ahead = [&] { return !ahead_.empty() && n_ahead_readers_ + 1 < kReaders; };
        work_.wait(lock, [&] { return stopped_ || !wanted_.empty() || may_go_ahead(); });
        if (stopped_) return;
        const bool goes_ahead = wanted_.empty();
        std::vector<std::uint32_t>& queue = goes_ahead ? ahead_ : wanted_;
        if (goes_ahead) ++n_ahead_readers_;
        const auto at = goes_ahead ? next_ahead() : wanted_.begin();
        const std::uint32_t u = *at;
        Unit& unit = units_[u];
        const Group& group = groups_[unit.group];
        const std::uint32_t piece = unit.next_piece++;
        if (unit.next_piece == group.n_pieces) queue.erase(at);
        std::string failure;
        bool failed = false;
        std::size_t n_bytes = 0;
        const bool is_lost = is_lost_;
        lock.unlock();
        try {
            if (is_lost) fail(ErrorCode::out_of_memory, "addresses are lost");
            n_bytes = read_piece(group, u - group.first_unit, piece, buffers_[reader].bytes());
        } catch (const std::exception& error) {
            failed = true;
            try {
                failure = error.what();
            } catch (...) {  // no memory for the message
            }
        }
        lock.lock();
        if (goes_ahead) {
            --n_ahead_readers_;
            work_.notify_one();
        }
        std::uint32_t n_ended = 1;
        if (failed && !unit.failed) {
            unit.failed = true;
            try {
                failures_.emplace(u, std::move(failure));
            } catch (...) {
            }
            if (unit.next_piece < group.n_pieces) {  // nobody needs the others now
                n_ended += static_cast<std::uint32_t>(group.n_pieces) - unit.next_piece;
                unit.next_piece = static_cast<std::uint32_t>(group.n_pieces);
                std::erase(wanted_, u);
                std::erase(ahead_, u);
            }
        }
        counts_.bytes_read += n_bytes;
        unit.pieces_left -= n_ended;
        if (unit.pieces_left > 0) continue;
        if (unit.failed) {
            drop(u);
            give_back_spares();
        } else {
            unit.state = State::resident;
            unit.at = static_cast<std::uint32_t>(resident_.size());
            resident_.push_back(u);
        }
        done_.notify_all();
    }
}

// ---- ahead ----------------------------------------------------------------------------------------------------------

void Pager::set_ahead(bool on) {
    const std::lock_guard lock(mutex_);
    reads_ahead_ = on;
    question_.group = -1;
}

/// What is needed first of what is to be read ahead.
std::vector<std::uint32_t>::iterator Pager::next_ahead() noexcept {
    return std::ranges::min_element(ahead_, {}, [&](std::uint32_t u) { return distance(units_[u].group); });
}

/// Begins to read a unit where that needs no unit of a group that comes before its own. Returns whether there was room.
bool Pager::read_ahead(std::uint32_t u, std::size_t least_distance) {
    Unit& unit = units_[u];
    if (unit.state != State::absent) return true;
    const std::uint64_t bytes = groups_[unit.group].unit_bytes;
    bool has_room = true;
    while (has_room && used_bytes_ + bytes > slot_bytes_) has_room = drop_one_behind(least_distance);
    if (has_room) {
        begin_reading(u, streamed_ ? wanted_ : ahead_);
        unit.ahead = static_cast<std::uint8_t>(std::clamp<std::size_t>(least_distance - 1, 1, kDepth));
    }
    give_back_spares();
    return has_room;
}

// What comes next of a stream is certain, so it waits behind nothing but what comes before it.
void Pager::read_next_of_stream() {
    for (std::size_t d = 1; reads_ahead_ && d < groups_.size(); ++d) {
        const std::uint32_t u = groups_[(at_group_ + d) % groups_.size()].first_unit;
        if (units_[u].failed || !read_ahead(u, d)) return;
    }
}

/// Takes back what was to be read ahead and has not begun. Returns whether there was something.
bool Pager::forget_waiting() noexcept {
    for (std::size_t i = ahead_.size(); i-- > 0;) {
        const std::uint32_t u = ahead_[i];
        if (units_[u].next_piece > 0 || units_[u].holds > 0) continue;
        ahead_.erase(ahead_.begin() + static_cast<std::ptrdiff_t>(i));
        units_[u].ahead = 0;  // nothing was wasted
        drop(u);
        return true;
    }
    return false;
}

/// A group has its turn: what was guessed of it and is not held has been wrong, and is kept no better than others.
void Pager::settle_guesses(const Group& group) noexcept {
    if (streamed_) return;
    for (std::uint32_t u = group.first_unit; u < group.first_unit + group.n_units; ++u) {
        Unit& unit = units_[u];
        if (unit.ahead == 0) continue;
        if (unit.state == State::reading && unit.next_piece == 0) {
            std::erase(ahead_, u);
            unit.ahead = 0;  // nothing was wasted
            drop(u);
        } else {
            note_guess(unit, false);
        }
    }
    give_back_spares();
}

void Pager::note_guess(Unit& unit, bool used) noexcept {
    const std::uint8_t depth = std::exchange(unit.ahead, std::uint8_t{0});
    Guesses& guesses = guesses_[depth - 1u];
    ++(used ? counts_.ahead_used : counts_.ahead_wasted);
    if (streamed_) return;
    ++(used ? guesses.n_used : guesses.n_wasted);
    const std::uint32_t n = guesses.n_used + guesses.n_wasted;
    if (n < kGuessWindow) return;
    if (guesses.n_used < (depth == 1 ? kLeastShare : kLeastShareOfDeeper) * n) guesses.n_paused = kGuessPause;
    guesses.n_used = guesses.n_wasted = 0;
}

void Pager::expect_all(std::size_t group_index) {
    const std::lock_guard lock(mutex_);
    if (!reads_ahead_ || streamed_) return;
    const Group& group = groups_[group_index];
    for (std::uint32_t u = 0; u < group.n_units; ++u)
        if (!read_ahead(group.first_unit + u, distance(group_index))) return;
}

void Pager::guess(std::size_t group, const float* x, std::size_t n_in, std::size_t n_tokens) {
    const PagedRouter& router = groups_[group].router;
    if (n_in != router.n_in || groups_[group].router_rows == nullptr || n_tokens > kGuessTokens) return;
    {
        const std::lock_guard lock(mutex_);
        if (!reads_ahead_ || n_holds_since_miss_ > kFewMisses * groups_.size()) return;
        question_.group = static_cast<std::int64_t>(group);
        question_.n_tokens = n_tokens;
        std::copy_n(x, n_in * n_tokens, question_.x.begin());
    }
    asked_.notify_one();
}

/// The units that a group's router would choose for each of the vectors.
void Pager::answer(const Question& question, std::size_t group_index, std::vector<std::uint32_t>& named) const {
    const Group& group = groups_[group_index];
    const PagedRouter& router = group.router;
    const std::size_t row_bytes = router.n_in * (router.type == DType::f32 ? sizeof(float) : sizeof(std::uint16_t));
    std::vector<std::pair<float, std::uint32_t>> products(group.n_units);
    named.clear();
    for (std::size_t t = 0; t < question.n_tokens; ++t) {
        for (std::uint32_t u = 0; u < group.n_units; ++u)
            products[u] = {
                product(group.router_rows + u * row_bytes, router.type, &question.x[t * router.n_in], router.n_in), u};
        const auto n = std::min(router.n_used, group.n_units);
        std::ranges::partial_sort(products, products.begin() + n, std::greater{});
        for (std::uint32_t i = 0; i < n; ++i) named.push_back(products[i].second);
    }
}

/// Whether a guess of this depth pays; those that do not are made again after some time.
bool Pager::may_guess(std::size_t depth) noexcept {
    Guesses& guesses = guesses_[depth - 1];
    if (guesses.n_paused > 0) return --guesses.n_paused, false;
    return depth == 1 || ahead_.size() < kManyAhead;
}

// The life of the thread that asks: first the next router, then those behind it, as long as nothing newer is known.
void Pager::answer_questions() noexcept {
    Question question;
    std::vector<std::uint32_t> named;
    std::unique_lock lock(mutex_);
    for (;;) {
        asked_.wait(lock, [&] { return stopped_ || question_.group >= 0; });
        if (stopped_) return;
        try {
            question.x.resize(question_.x.size());
            std::swap(question, question_);
            question_.group = -1;
            const auto first = static_cast<std::size_t>(question.group);
            const std::size_t n_in = groups_[first].router.n_in;
            for (std::size_t i = 0; i < kDepth && first + i < groups_.size() && question_.group < 0; ++i) {
                const std::size_t group = first + i;
                if (groups_[group].router_rows == nullptr || groups_[group].router.n_in != n_in) break;
                if (!may_guess(i + 1)) continue;
                lock.unlock();
                answer(question, group, named);
                lock.lock();
                const std::size_t away = distance(group);
                if (away > kDepth + 1) continue;  // too late
                for (const std::uint32_t u : named)
                    if (!read_ahead(groups_[group].first_unit + u, away)) break;
            }
        } catch (const std::exception&) {  // no memory: nothing is guessed
            if (!lock.owns_lock()) lock.lock();
            question_.group = -1;
        }
    }
}

std::vector<std::uint64_t> Pager::picks(std::size_t group_index) const {
    const Group& group = groups_[group_index];
    std::vector<std::uint64_t> picks(group.n_units);
    const std::lock_guard lock(mutex_);
    for (std::uint32_t u = 0; u < group.n_units; ++u) picks[u] = units_[group.first_unit + u].n_picks;
    return picks;
}

Pager::Repeats Pager::repeats(std::size_t group) const {
    const std::lock_guard lock(mutex_);
    return groups_[group].repeats;
}

// A unit that is picked in a share p of the passes has p · kHalfLife / ln 2 picks in the long run, older ones counting
// less.
void Pager::warm(std::size_t group_index, std::span<const std::uint64_t> picks) {
    const Group& group = groups_[group_index];
    const double sum = std::accumulate(picks.begin(), picks.end(), 0.0);
    if (sum <= 0) return;
    const std::lock_guard lock(mutex_);
    for (std::uint32_t u = 0; u < group.n_units && u < picks.size(); ++u) {
        const double share = std::min(1.0, static_cast<double>(picks[u]) * group.router.n_used / sum);
        units_[group.first_unit + u].weight =
            static_cast<double>(group.n_passes) / kHalfLife + std::log2(1.0 + share * kHalfLife / std::numbers::ln2);
    }
}

void Pager::read_warm() {
    std::vector<std::uint32_t> order(units_.size());
    std::iota(order.begin(), order.end(), 0u);
    const std::lock_guard lock(mutex_);
    const auto weight = [&](std::uint32_t u) {
        return units_[u].weight - static_cast<double>(groups_[units_[u].group].n_passes) / kHalfLife;
    };
    std::ranges::sort(order, std::greater{}, weight);
    for (const std::uint32_t u : order) {
        if (units_[u].state != State::absent || weight(u) <= 0) continue;
        if (used_bytes_ + groups_[units_[u].group].unit_bytes > slot_bytes_) return;
        begin_reading(u, ahead_);
    }
}

}  // namespace tinfer
