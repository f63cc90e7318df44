// SPDX-License-Identifier: MIT
#include "trace/expected.hpp"

#include <algorithm>
#include <cstring>

#include "base/ops.hpp"

namespace tinfer::trace {

void ByteSet::add(std::uint64_t begin, std::uint64_t end) {
    if (begin < end) intervals.push_back({begin, end});
}

void ByteSet::normalize() {
    std::ranges::sort(intervals, {}, &Interval::begin);
    std::size_t n = 0;
    for (const Interval& next : intervals) {
        if (n > 0 && next.begin <= intervals[n - 1].end)
            intervals[n - 1].end = std::max(intervals[n - 1].end, next.end);
        else intervals[n++] = next;
    }
    intervals.resize(n);
}

std::uint64_t ByteSet::bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Interval& interval : intervals) sum += interval.end - interval.begin;
    return sum;
}

namespace {

std::vector<std::int32_t> integers(const DataOf& data, const TensorInfo& tensor) {
    const auto bytes = data(tensor);
    std::vector<std::int32_t> out(bytes.size() / 4);
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * 4);
    return out;
}

ExpectedAccess rows(const TensorInfo& tensor, AccessMode mode, std::span<const std::int32_t> ids,
                    std::uint64_t row_bytes) {
    ExpectedAccess access{&tensor, mode, {}};
    for (const std::int32_t id : ids) {
        const auto row = static_cast<std::uint64_t>(id);
        access.set.add(row * row_bytes, (row + 1) * row_bytes);
    }
    access.set.normalize();
    return access;
}
ExpectedAccess rows(const TensorInfo& tensor, AccessMode mode, std::span<const std::int32_t> ids) {
    return rows(tensor, mode, ids, tensor.row_bytes);
}

ExpectedAccess all(const TensorInfo& tensor, AccessMode mode) {
    ExpectedAccess access{&tensor, mode, {}};
    access.set.add(0, tensor.bytes);
    return access;
}

// The rows of a view, those that lie without a gap taken together.
ExpectedAccess part(const TensorInfo& tensor, const ViewShape& shape) {
    if (shape.whole) return all(tensor, AccessMode::read);
    ExpectedAccess access{&tensor, AccessMode::read, {}};
    const bool dense = shape.stride[0] == shape.length;
    const std::uint64_t length = dense ? shape.length * shape.count[0] : shape.length, n = dense ? 1 : shape.count[0];
    for (std::uint64_t i2 = 0; i2 < shape.count[2]; ++i2)
        for (std::uint64_t i1 = 0; i1 < shape.count[1]; ++i1)
            for (std::uint64_t i0 = 0; i0 < n; ++i0) {
                const std::uint64_t begin =
                    shape.offset + i2 * shape.stride[2] + i1 * shape.stride[1] + i0 * shape.stride[0];
                access.set.add(begin, begin + length);
            }
    access.set.normalize();
    return access;
}

// Slots of every ordinal that some query of the run may see (kernels/ops.hpp: kv_table, kv_seqs, kv_spans).
// Of every `block` ordinals the last one; of a query that sees no more than `unread` none.
std::vector<std::int32_t> visible_slots(std::span<const std::int32_t> table, std::span<const std::int32_t> seqs,
                                        std::span<const std::int32_t> spans, std::int32_t block = 1,
                                        std::int64_t unread = 0) {
    std::vector<std::int32_t> slots;
    for (std::size_t t = 0; t + 3 < spans.size(); t += 4) {
        if (spans[t] < 0 || spans[t + 2] - spans[t + 1] <= unread) continue;
        const auto seq = static_cast<std::size_t>(spans[t]);
        const std::int32_t begin = spans[t + 1], end = spans[t + 2];
        const auto first = static_cast<std::size_t>(seqs[2 * seq]), count = static_cast<std::size_t>(seqs[2 * seq + 1]);
        for (std::size_t e = first; e < first + count; ++e) {
            std::int32_t ordinal = table[4 * e + 1];
            const std::uint64_t mask = static_cast<std::uint32_t>(table[4 * e + 2]) |
                                       static_cast<std::uint64_t>(static_cast<std::uint32_t>(table[4 * e + 3])) << 32;
            for (std::int32_t offset = 0; offset < 64; ++offset) {
                if ((mask >> offset & 1) == 0) continue;
                if (ordinal >= begin && ordinal < end && (ordinal + 1) % block == 0)
                    slots.push_back(table[4 * e] * 64 + offset);
                ++ordinal;
            }
        }
    }
    std::ranges::sort(slots);
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    return slots;
}

ExpectedAccess experts(const TensorInfo& tensor, std::span<const std::int32_t> ids) {
    ExpectedAccess access{&tensor, AccessMode::read, {}};
    const std::uint64_t slice = tensor.bytes / static_cast<std::uint64_t>(std::max<std::int64_t>(tensor.ne[2], 1));
    for (const std::int32_t id : ids) {
        const auto expert = static_cast<std::uint64_t>(id);
        access.set.add(expert * slice, (expert + 1) * slice);
    }
    access.set.normalize();
    return access;
}

// Tokens follow in order: each goes on from a row of the state (none where it is negative) and leaves the next state in
// a row. What a token of this run has left there comes from no earlier step.
void expect_state(const TensorInfo& state, std::span<const std::int32_t> steps, std::vector<ExpectedAccess>& out) {
    std::vector<std::int32_t> read, written;
    for (std::size_t i = 0; i + 1 < steps.size(); i += 2) {
        if (steps[i] >= 0 && std::ranges::find(written, steps[i]) == written.end()) read.push_back(steps[i]);
        written.push_back(steps[i + 1]);
    }
    out.push_back(rows(state, AccessMode::read, read));
    out.push_back(rows(state, AccessMode::write, written));
}

// Of a tensor or view whose dimension `dim` counts queries, the rows of those that score.
ExpectedAccess rows_of_queries(const TensorInfo& tensor, const ViewShape& shape, std::size_t dim,
                               std::span<const std::int32_t> spans, std::int64_t unread) {
    ExpectedAccess access{&tensor, AccessMode::read, {}};
    const auto n = [&](std::size_t d) { return static_cast<std::uint64_t>(tensor.ne[d]); };
    const std::uint64_t length = shape.whole ? tensor.row_bytes : shape.length;
    const std::uint64_t row_stride = shape.whole ? tensor.row_bytes : shape.stride[0];
    const std::uint64_t n_rows = dim == 1 ? 1 : shape.whole ? n(1) : shape.count[0];
    const std::uint64_t stride = dim == 1 ? row_stride : shape.whole ? tensor.row_bytes * n(1) : shape.stride[1];
    for (std::size_t t = 0; 4 * t + 3 < spans.size(); ++t) {
        if (spans[4 * t] < 0 || spans[4 * t + 2] - spans[4 * t + 1] <= unread) continue;
        for (std::uint64_t row = 0; row < n_rows; ++row) {
            const std::uint64_t begin = shape.offset + t * stride + row * row_stride;
            access.set.add(begin, begin + length);
        }
    }
    access.set.normalize();
    return access;
}

// Inputs: iq, index keys, weights, table, seqs, spans, positions. A query that may take all that it sees, one by one,
// needs no scores, nor does one that sees no whole block; without keys nobody does.
void expect_selection(const NodeView& node, const DataOf& data, std::vector<ExpectedAccess>& out) {
    const auto given = [&](std::size_t i) { return i < node.inputs.size() && node.inputs[i] != nullptr; };
    out.push_back(all(*node.output, AccessMode::write));
    for (std::size_t i = 3; i < node.inputs.size(); ++i)
        if (given(i)) out.push_back(part(*node.inputs[i], node.shapes[i]));
    if (!given(1)) return;
    const auto spans = integers(data, *node.inputs[5]);
    const std::int64_t unread = node.block > 0 ? node.block - 1 : given(6) ? 0 : node.output->ne[0];
    out.push_back(rows(*node.inputs[1], AccessMode::read,
                       visible_slots(integers(data, *node.inputs[3]), integers(data, *node.inputs[4]), spans,
                                     std::max(node.block, 1), unread)));
    out.push_back(rows_of_queries(*node.inputs[0], node.shapes[0], 2, spans, unread));
    if (given(2)) out.push_back(rows_of_queries(*node.inputs[2], node.shapes[2], 1, spans, unread));
}

void expect_page_copies(const NodeView& node, std::span<const std::int32_t> pairs, std::vector<ExpectedAccess>& out) {
    std::vector<std::int32_t> from, to;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
        if (pairs[i] < 0) continue;
        for (std::int32_t offset = 0; offset < 64; ++offset) {
            from.push_back(pairs[i] * 64 + offset);
            to.push_back(pairs[i + 1] * 64 + offset);
        }
    }
    out.push_back(rows(*node.inputs[0], AccessMode::read, from));
    out.push_back(rows(*node.output, AccessMode::write, to));
    out.push_back(all(*node.inputs[1], AccessMode::read));
}

void expect_moves(const NodeView& node, std::span<const std::int32_t> moves, std::vector<ExpectedAccess>& out) {
    std::vector<std::int32_t> from, to;
    for (std::size_t i = 0; i + 2 < moves.size() && moves[i + 2] > 0; i += 3)
        for (std::int32_t k = 0; k < moves[i + 2]; ++k) {
            if (moves[i] >= 0) from.push_back(moves[i] + k);
            if (moves[i + 1] >= 0) to.push_back(moves[i + 1] + k);
        }
    out.push_back(rows(*node.inputs[0], AccessMode::read, from));
    out.push_back(rows(*node.output, AccessMode::write, to));
    out.push_back(all(*node.inputs[1], AccessMode::read));
}

}  // namespace

void expect(const NodeView& node, const DataOf& data, std::vector<ExpectedAccess>& out) {
    const auto read_whole = [&](std::size_t i) {
        if (i < node.inputs.size() && node.inputs[i] != nullptr)
            out.push_back(part(*node.inputs[i], i < node.shapes.size() ? node.shapes[i] : ViewShape{}));
    };
    if (info(node.op).types == KernelTypes::none) return;  // nothing is computed
    switch (info(node.op).touches) {
        case Touches::rows:
            out.push_back(all(*node.output, AccessMode::write));
            // A vector may be looked up as rows of one element: a row is as long as one of the result.
            out.push_back(rows(*node.inputs[0], AccessMode::read, integers(data, *node.inputs[1]),
                               node.inputs[0]->row_bytes * static_cast<std::uint64_t>(node.output->ne[0]) /
                                   static_cast<std::uint64_t>(node.inputs[0]->ne[0])));
            read_whole(1);
            return;
        case Touches::kv_rows:  // inputs: rows, slots; the output is the cache
            out.push_back(rows(*node.output, AccessMode::write, integers(data, *node.inputs[1])));
            read_whole(0);
            read_whole(1);
            return;
        case Touches::ranked: expect_selection(node, data, out); return;
        case Touches::marks: {  // inputs: -, marks, -, table, seqs, spans
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(rows(*node.inputs[1], AccessMode::read,
                               visible_slots(integers(data, *node.inputs[3]), integers(data, *node.inputs[4]),
                                             integers(data, *node.inputs[5]))));
            for (const std::size_t i : {std::size_t{3}, std::size_t{4}, std::size_t{5}}) read_whole(i);
            return;
        }
        case Touches::entries: {  // inputs: q, K, entries, table, seqs, spans, chosen entries, sinks
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(rows(*node.inputs[1], AccessMode::read,
                               visible_slots(integers(data, *node.inputs[3]), integers(data, *node.inputs[4]),
                                             integers(data, *node.inputs[5]))));
            if (node.inputs[2] != nullptr) {
                std::vector<std::int32_t> slots = integers(data, *node.inputs[6]);
                std::erase_if(slots, [](std::int32_t slot) { return slot < 0; });
                out.push_back(rows(*node.inputs[2], AccessMode::read, slots));
            }
            for (std::size_t i = 0; i < node.inputs.size(); ++i)
                if (i != 1 && i != 2) read_whole(i);
            return;
        }
        case Touches::chosen: {  // inputs: q, K, V, chosen slots, sinks
            std::vector<std::int32_t> slots = integers(data, *node.inputs[3]);
            std::erase_if(slots, [](std::int32_t slot) { return slot < 0; });
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(rows(*node.inputs[1], AccessMode::read, slots));
            out.push_back(rows(*node.inputs[2], AccessMode::read, slots));
            for (const std::size_t i : {std::size_t{0}, std::size_t{3}, std::size_t{4}}) read_whole(i);
            return;
        }
        case Touches::visible: {  // inputs: q, K, V, table, seqs, spans, sinks, positions, bias
            const auto slots = visible_slots(integers(data, *node.inputs[3]), integers(data, *node.inputs[4]),
                                             integers(data, *node.inputs[5]));
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(rows(*node.inputs[1], AccessMode::read, slots));
            out.push_back(rows(*node.inputs[2], AccessMode::read, slots));
            for (const std::size_t i : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{5}, std::size_t{6},
                                        std::size_t{7}, std::size_t{8}})
                read_whole(i);
            return;
        }
        case Touches::state: {
            const std::size_t state = node.inputs.size() - 2;  // then state_rows
            out.push_back(all(*node.output, AccessMode::write));
            expect_state(*node.inputs[state], integers(data, *node.inputs[state + 1]), out);
            for (std::size_t i = 0; i < node.inputs.size(); ++i)
                if (i != state) read_whole(i);
            return;
        }
        case Touches::experts:  // inputs: W, x, ids
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(experts(*node.inputs[0], integers(data, *node.inputs[2])));
            read_whole(1);
            read_whole(2);
            return;
        case Touches::biases:  // inputs: x, biases, ids
            out.push_back(all(*node.output, AccessMode::write));
            out.push_back(rows(*node.inputs[1], AccessMode::read, integers(data, *node.inputs[2])));
            read_whole(0);
            read_whole(2);
            return;
        case Touches::shifts: {  // inputs: the cache, table, slots
            std::vector<std::int32_t> slots = integers(data, *node.inputs[2]);
            std::erase_if(slots, [](std::int32_t slot) { return slot < 0; });
            out.push_back(rows(*node.output, AccessMode::write, slots));
            out.push_back(rows(*node.inputs[0], AccessMode::read, slots));
            read_whole(1);
            read_whole(2);
            return;
        }
        case Touches::pages: expect_page_copies(node, integers(data, *node.inputs[1]), out); return;
        case Touches::moves: expect_moves(node, integers(data, *node.inputs[1]), out); return;
        case Touches::whole:
        case Touches::norm:
            out.push_back(all(*node.output, AccessMode::write));
            for (std::size_t i = 0; i < node.inputs.size(); ++i) read_whole(i);
            return;
    }
}

std::uint64_t weight_bytes(std::span<const ExpectedAccess> accesses) {
    std::uint64_t sum = 0;
    for (const ExpectedAccess& access : accesses)
        if (access.tensor->tensor_class == TensorClass::weight) sum += access.set.bytes();
    return sum;
}

}  // namespace tinfer::trace
