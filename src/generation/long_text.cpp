// SPDX-License-Identifier: MIT
#include "generation/long_text.hpp"

#include <algorithm>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer::generation {

namespace {

constexpr int kLeastRoom = 4;  // tokens of a context that are never kept for good

int end_of(const Context& context, SeqId seq) {
    const auto last = context.seq_pos_max(seq);
    return last ? static_cast<std::int32_t>(*last) + 1 : 0;
}

}  // namespace

ContextShifter::ContextShifter(const ContextShift& options, std::size_t n_prompt) : options_(options) {
    if (options.keep < -1)
        fail(ErrorCode::bad_parameter, cat("context shift: keep = ", options.keep, ": must be -1 or more"));
    if (options.discard < 0)
        fail(ErrorCode::bad_parameter, cat("context shift: discard = ", options.discard, ": must be 0 or more"));
    if (options.keep == -1)
        options_.keep = static_cast<int>(std::min<std::size_t>(n_prompt, static_cast<std::size_t>(kPosEnd)));
}

bool ContextShifter::make_room(Context& context, SeqId seq, std::size_t n_needed) {
    const auto room = [&] { return static_cast<std::size_t>(context.room(seq)); };
    if (room() >= n_needed) return true;
    const int keep = std::clamp(options_.keep, 1, std::max(1, context.options().n_ctx - kLeastRoom));
    const auto others = [&] { return end_of(context, seq) - keep; };
    // The last token stays: the next one is computed from it.
    if (!context.can_shift() || others() < 2 || room() + static_cast<std::size_t>(others() - 1) < n_needed)
        return false;
    while (room() < n_needed) {
        // Several shifts where one is not enough: they are made in one step, so that none is made without the others.
        int n = 0;
        std::size_t n_shifts = 0;
        for (; room() + static_cast<std::size_t>(n) < n_needed; ++n_shifts) {
            const int left = others() - n;
            const int next = std::min(options_.discard > 0 ? options_.discard : std::max(1, left / 2), left - 1);
            if (next < 1) return false;
            n += next;
        }
        if (context.seq_shift(seq, Pos{keep}, n) != RemoveStatus::ok) return false;
        shifts_.n += n_shifts;
        shifts_.keep = static_cast<std::size_t>(keep);
        shifts_.dropped += static_cast<std::size_t>(n);
    }
    return true;
}

PositionGroups::PositionGroups(const SelfExtend& options) : options_(options) {
    if (options.group < 1)
        fail(ErrorCode::bad_parameter, cat("self-extend: group = ", options.group, ": must be 1 or more"));
    if (options.width < 1 || options.width % options.group != 0)
        fail(ErrorCode::bad_parameter,
             cat("self-extend: width = ", options.width, ": must be a multiple of group = ", options.group));
}

std::size_t PositionGroups::advance(Context& context, SeqId seq) {
    const int group = options_.group, width = options_.width;
    if (group == 1) return static_cast<std::size_t>(kPosEnd);
    if (!context.can_shift() || (context.model().info().n_window > 0 && !context.options().swa_full))
        fail(ErrorCode::unsupported_operation,
             "self-extend: positions of this model cannot be divided (it learned them, or has recurrent layers, or "
             "windows without swa_full)");
    int end = end_of(context, seq), begin = begin_;
    if (end < begin + width) return static_cast<std::size_t>(begin + width - end);
    // On a copy of memory: where a step cannot be done, none of them is.
    Context::Impl& state = detail::impl_of(context);
    const Context::Impl::Busy busy(state.session->busy);
    state.check_movable("self-extend");
    memory::Memory next = state.sequences;
    while (end >= begin + width) {
        // Groups are counted from position 0. So all that is not divided yet first moves up to where it would lie
        // without earlier divisions, is divided there, and moves back.
        const int before = group * begin / width;
        const int lost = width / group * (group - 1);
        if (before > 0) next.seq_add(seq, Pos{begin}, Pos{end}, before * lost);
        next.seq_div(seq, Pos{begin + before * lost}, Pos{begin + before * lost + width}, group);
        const int back = width / group - before * lost - width;
        if (end > begin + width) next.seq_add(seq, Pos{begin + before * lost + width}, Pos{end + before * lost}, back);
        end -= lost;
        begin += width / group;
    }
    state.sequences = std::move(next);
    begin_ = begin;
    return static_cast<std::size_t>(begin_ + width - end);
}

}  // namespace tinfer::generation
