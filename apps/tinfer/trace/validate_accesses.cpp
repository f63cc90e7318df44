// SPDX-License-Identifier: MIT
// Rules about accesses, derived from graph nodes and from tokens and routes of the runs.
#include <algorithm>
#include <numeric>

#include "validate.hpp"

namespace tinfer::app {

namespace format = tinfer::trace_format;

namespace {

using Bytes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // [begin, end), sorted, merged

Bytes merged(Bytes bytes) {
    std::ranges::sort(bytes);
    Bytes out;
    for (const auto& [begin, end] : bytes)
        if (!out.empty() && begin <= out.back().second) out.back().second = std::max(out.back().second, end);
        else if (end > begin) out.emplace_back(begin, end);
    return out;
}

std::uint64_t size_of(const Bytes& bytes) {
    std::uint64_t n = 0;
    for (const auto& [begin, end] : bytes) n += end - begin;
    return n;
}

/// An event with its records in the plan.
struct Seen {
    const tinfer::RecordedRun& run;
    const tinfer::RecordedPlan& plan;
    const format::Step& step;
    const tinfer::RecordedEvents& events;
    std::size_t i;
    [[nodiscard]] std::uint64_t index() const { return events.index(i); }
    [[nodiscard]] std::string text() const { return "event " + std::to_string(index()); }
};

template <class Fn>
void for_each_complete(const Examined& x, Fn&& fn) {
    for (const auto& run : x.trace.runs()) {
        const auto* plan = x.is_complete(run) ? x.trace.plan(run.record.plan) : nullptr;
        if (plan == nullptr) continue;
        for (const auto& events : run.events)
            for (std::size_t i = 0; i < events.events.size(); ++i)
                if (events.events[i].step < plan->steps.size())
                    fn(Seen{run, *plan, plan->steps[events.events[i].step], events, i});
    }
}

/// Bytes touched by operand `o` of an event.
Bytes touched(const Examined& x, const Seen& seen, std::uint32_t o, bool with_padding = true) {
    const format::Operand& operand = seen.plan.operands[seen.step.first_operand + o];
    Bytes bytes;
    const auto add = [&](std::uint64_t offset, std::uint64_t length, std::uint64_t stride, std::uint32_t count) {
        for (std::uint32_t k = 0; k < std::min<std::uint32_t>(count, 1u << 20); ++k)
            bytes.emplace_back(offset + k * stride, offset + k * stride + length);
    };
    if (operand.kind == format::OperandKind::whole && (operand.ref & format::kValueBit) == 0 &&
        x.trace.tensor(operand.ref) != nullptr)
        add(0, x.trace.tensor(operand.ref)->bytes, 0, 1);
    if (operand.kind == format::OperandKind::range) add(operand.offset, operand.length, operand.stride, operand.count);
    if (operand.kind == format::OperandKind::dynamic)
        for (const auto& range : seen.events.ranges_of(seen.i))
            if (range.operand == o && (with_padding || (range.flags & format::padding) == 0))
                add(range.offset, range.length, range.stride, range.count);
    return merged(std::move(bytes));
}

const std::string& op_of(const Examined& x, std::uint16_t number) {
    static const std::string kNothing;
    const auto found = x.ops.find(number);
    return found == x.ops.end() ? kNothing : found->second;
}

/// Finds the router record of a product with experts by its ids operand. A layer may have several groups of experts,
/// each with its own router.
class Routings {
public:
    explicit Routings(const Examined& x) {
        std::map<std::uint64_t, const tinfer::RecordedRouting*> by_event;
        for (const auto& routing : x.trace.routings()) by_event[routing.header.event] = &routing;
        if (by_event.empty()) return;
        for (const auto& plan : x.trace.plans()) remember_aliases(plan);
        for_each_complete(x, [&](const Seen& seen) {
            const auto found = by_event.find(seen.index());
            if (found == by_event.end()) return;
            for (std::uint32_t k = 0; k < seen.step.n_nodes; ++k) {
                const format::Node& node = seen.plan.nodes[seen.plan.step_nodes[seen.step.first_step_node + k]];
                if (op_of(x, node.op) == "moe_weights" && node.n_inputs > 1)
                    by_ids_[{seen.run.record.run, ids_of(seen, node, 1)}] = found->second;
            }
        });
    }
    /// Null if no router produced the ids of this product.
    [[nodiscard]] const tinfer::RecordedRouting* find(const Seen& seen, const format::Node& node) const {
        if (by_ids_.empty() || node.n_inputs < 3) return nullptr;
        const auto found = by_ids_.find({seen.run.record.run, ids_of(seen, node, 2)});
        return found == by_ids_.end() ? nullptr : found->second;
    }

private:
    void remember_aliases(const tinfer::RecordedPlan& plan) {
        auto& aliases = aliases_[plan.header.id];
        for (const format::Node& node : plan.nodes)
            if (node.step == format::kNone && node.n_inputs > 0)
                aliases[node.value | format::kValueBit] = plan.inputs[node.first_input];
    }
    [[nodiscard]] std::uint32_t ids_of(const Seen& seen, const format::Node& node, std::uint32_t input) const {
        std::uint32_t ref = seen.plan.inputs[node.first_input + input];
        const auto& aliases = aliases_.at(seen.plan.header.id);
        for (std::size_t i = 0; i < aliases.size(); ++i) {  // aliases of aliases; bounded, in case of a cycle
            const auto found = aliases.find(ref);
            if (found == aliases.end()) break;
            ref = found->second;
        }
        return ref;
    }
    std::map<std::uint32_t, std::map<std::uint32_t, std::uint32_t>> aliases_;
    std::map<std::pair<std::uint64_t, std::uint32_t>, const tinfer::RecordedRouting*> by_ids_;
};

bool is_weight_ref(const Examined& x, std::uint32_t ref) {
    const auto* tensor = (ref & format::kValueBit) == 0 ? x.trace.tensor(ref) : nullptr;
    return tensor != nullptr && tensor->tensor_class == 0;
}

}  // namespace

// A product reads its whole weight, a lookup the rows of its tokens, experts the chosen slices. If the choice is not
// recorded, only whole rows or slices are required.
void check_weights(const Examined& x, Verdict& v) {
    if (x.is_filtered) return v.skip("filtered");
    const Routings routings(x);
    for_each_complete(x, [&](const Seen& seen) {
        std::map<std::uint32_t, Bytes> expected, observed;
        std::set<std::uint32_t> in_part;  // read in part: rows, slices or views
        for (std::uint32_t k = 0; k < seen.step.n_nodes; ++k) {
            const format::Node& node = seen.plan.nodes[seen.plan.step_nodes[seen.step.first_step_node + k]];
            const std::string& op = op_of(x, node.op);
            for (std::uint32_t n = 0; n < node.n_inputs; ++n) {
                const std::uint32_t ref = seen.plan.inputs[node.first_input + n];
                if (!is_weight_ref(x, ref)) continue;
                const format::Tensor& tensor = *x.trace.tensor(ref);
                Bytes& bytes = expected[ref];
                const auto* routing = op == "mul_mat_id" ? routings.find(seen, node) : nullptr;
                if (routing != nullptr && n == 0 && tensor.slice_bytes > 0) {
                    for (const auto& pick : routing->picks)
                        bytes.emplace_back(pick.expert * tensor.slice_bytes, (pick.expert + 1) * tensor.slice_bytes);
                } else if (op == "get_rows" || op == "mul_mat_id" || op == "add_id" ||
                           (node.flags & format::reads_view) != 0) {
                    in_part.insert(ref);
                } else {
                    bytes.emplace_back(0, tensor.bytes);
                }
            }
        }
        for (std::uint32_t o = 0; o < seen.step.n_operands; ++o) {
            const format::Operand& operand = seen.plan.operands[seen.step.first_operand + o];
            if (!is_weight_ref(x, operand.ref) || operand.kind == format::OperandKind::elided) continue;
            for (const auto& piece : touched(x, seen, o)) observed[operand.ref].push_back(piece);
        }
        for (auto& [ref, bytes] : expected) {
            const Bytes want = merged(bytes), got = merged(observed[ref]);
            const format::Tensor& tensor = *x.trace.tensor(ref);
            if (in_part.contains(ref)) {
                const std::uint64_t unit = tensor.slice_bytes > 0 ? tensor.slice_bytes : tensor.row_bytes;
                if (size_of(got) == 0 || (unit > 0 && size_of(got) % unit != 0 && tensor.slice_bytes > 0))
                    v.fail(seen.text() + ": of " + x.name_of(ref) + " " + counted(size_of(got), "byte") +
                           " were read, which are no rows");
            } else if (want != got) {
                v.fail(seen.text() + ": of " + x.name_of(ref) + " " + counted(size_of(got), "byte") + " were read, " +
                       std::to_string(size_of(want)) + " expected");
            }
        }
        for (const auto& [ref, bytes] : observed)
            if (!expected.contains(ref)) v.fail(seen.text() + ": " + x.name_of(ref) + " was read, no node has it");
    });
}

void check_embedding(const Examined& x, Verdict& v) {
    if (!x.has_ids) return v.skip("no token ids");
    // A token that switches its sequence to an adapter of the model is replaced by another token, whose row is read.
    const auto has_switches = [&](const tinfer::RecordedPlan& plan) {
        return std::ranges::any_of(plan.values,
                                   [&](const format::Value& value) { return x.trace.text(value.name) == "inp_marks"; });
    };
    bool any = false;
    for_each_complete(x, [&](const Seen& seen) {
        if (op_of(x, seen.step.op) != "get_rows") return;
        for (std::uint32_t o = 0; o < seen.step.n_operands; ++o) {
            const format::Operand& operand = seen.plan.operands[seen.step.first_operand + o];
            if (!is_weight_ref(x, operand.ref) || operand.kind != format::OperandKind::dynamic) continue;
            if (x.trace.session_value("role." + std::to_string(x.trace.tensor(operand.ref)->role)) != "token_embd")
                continue;
            any = true;
            std::map<std::uint32_t, std::uint64_t> want, got;
            for (const auto& token : seen.run.tokens)
                if (token.id >= 0) ++want[static_cast<std::uint32_t>(token.id)];
            const std::uint64_t row = x.trace.tensor(operand.ref)->row_bytes;
            for (const auto& range : seen.events.ranges_of(seen.i)) {
                if (range.operand != o) continue;
                got[range.tag] += range.weight;
                if (row == 0 || range.offset != range.tag * row || range.length != row)
                    v.fail(seen.text() + ": row " + std::to_string(range.tag) + " lies elsewhere");
            }
            const auto sum = [](const auto& rows) {
                return std::accumulate(rows.begin(), rows.end(), std::uint64_t{0},
                                       [](std::uint64_t n, const auto& entry) { return n + entry.second; });
            };
            if (has_switches(seen.plan) ? sum(want) != sum(got) : want != got)
                v.fail(seen.text() + ": " + counted(got.size(), "row") + " for " +
                       counted(want.size(), "different token"));
        }
    });
    if (!any) v.skip("no lookup of tokens");
}

void check_experts(const Examined& x, Verdict& v) {
    if (x.trace.routings().empty()) return v.skip("no router records");
    const Routings routings(x);
    for_each_complete(x, [&](const Seen& seen) {
        const tinfer::RecordedRouting* routing = nullptr;
        bool has_experts = false;
        for (std::uint32_t k = 0; k < seen.step.n_nodes; ++k) {
            const format::Node& node = seen.plan.nodes[seen.plan.step_nodes[seen.step.first_step_node + k]];
            if (op_of(x, node.op) != "mul_mat_id") continue;
            has_experts = x.trace.session_value("part." + std::to_string(node.part)) == "experts";
            if (routing == nullptr) routing = routings.find(seen, node);
        }
        if (routing == nullptr) {
            if (has_experts) v.fail(seen.text() + " has no record of its router");
            return;
        }
        std::map<std::uint32_t, std::uint64_t> want, got;
        for (const auto& pick : routing->picks) ++want[pick.expert];
        for (std::uint32_t o = 0; o < seen.step.n_operands; ++o) {
            const format::Operand& operand = seen.plan.operands[seen.step.first_operand + o];
            if (!is_weight_ref(x, operand.ref) || x.trace.tensor(operand.ref)->slice_bytes == 0) continue;
            got.clear();
            for (const auto& range : seen.events.ranges_of(seen.i))
                if (range.operand == o) got[range.tag] += range.weight;
            if (want != got)
                v.fail(seen.text() + ": slices of " + counted(got.size(), "expert") + ", the router chose " +
                       std::to_string(want.size()));
        }
    });
}

// Each token writes a row of K and V per layer; attention reads only rows that this or an earlier run wrote. After a
// run with missing events this cannot be checked.
void check_cache(const Examined& x, Verdict& v) {
    std::map<std::uint32_t, Bytes> written;
    bool any = false;
    std::uint64_t first_unknown = ~std::uint64_t{0};
    for (const auto& run : x.trace.runs())
        if (!run.found || !run.end || run.end->n_dropped > 0) first_unknown = std::min(first_unknown, run.record.run);
    std::uint64_t next_run = x.trace.runs().empty() ? 0 : x.trace.runs()[0].record.run;
    for (const auto& run : x.trace.runs()) {  // a run without any events
        if (run.record.run != next_run) first_unknown = std::min(first_unknown, next_run);
        next_run = run.record.run + 1;
    }
    if (!x.trace.runs().empty() && x.trace.runs()[0].record.run > 0) first_unknown = 0;
    for_each_complete(x, [&](const Seen& seen) {
        const std::string& op = op_of(x, seen.step.op);
        for (std::uint32_t o = 0; o < seen.step.n_operands; ++o) {
            const format::Operand& operand = seen.plan.operands[seen.step.first_operand + o];
            const auto* tensor = (operand.ref & format::kValueBit) == 0 ? x.trace.tensor(operand.ref) : nullptr;
            if (tensor == nullptr || (tensor->tensor_class != 1 && tensor->tensor_class != 2) || tensor->row_bytes == 0)
                continue;
            if (operand.mode != 1) {
                Bytes& all = written[operand.ref];
                const Bytes now = touched(x, seen, o);
                all.insert(all.end(), now.begin(), now.end());
                all = merged(std::move(all));
                any = true;
                std::uint64_t rows = 0;  // a token of several sequences may be written once per sequence
                for (const auto& range : seen.events.ranges_of(seen.i))
                    if (range.operand == o) rows += range.length / tensor->row_bytes * range.count;
                const bool writes_tokens = op == "kv_write" || op == "rope_kv_write";
                if (writes_tokens && rows != seen.run.record.n_tokens)
                    v.fail(seen.text() + ": " + counted(rows, "row") + " of " + x.name_of(operand.ref) +
                           " written for " + counted(seen.run.record.n_tokens, "token"));
            } else if (op == "attention" && !x.starts_late && !x.is_filtered && seen.run.record.run < first_unknown) {
                for (const auto& [begin, end] : touched(x, seen, o, false)) {
                    const auto& all = written[operand.ref];
                    const bool inside = std::ranges::any_of(all, [&, b = begin, e = end](const auto& piece) {
                        return piece.first <= b && e <= piece.second;
                    });
                    if (!inside)
                        v.fail(seen.text() + ": rows of " + x.name_of(operand.ref) +
                               " are read that nothing has written");
                }
            }
        }
    });
    if (!any) v.skip("nothing writes a cache");
}

void check_totals(const Examined& x, Verdict& v) {
    if (x.is_filtered) return v.skip("filtered");
    std::map<std::uint64_t, std::uint64_t> observed;
    for_each_complete(x, [&](const Seen& seen) {
        auto& sum = observed[seen.run.record.run];
        for (std::uint32_t o = 0; o < seen.step.n_operands; ++o)
            if (is_weight_ref(x, seen.plan.operands[seen.step.first_operand + o].ref))
                sum += size_of(touched(x, seen, o));
    });
    for (const auto& run : x.trace.runs()) {
        if (!x.is_complete(run) || x.trace.plan(run.record.plan) == nullptr) continue;
        const std::string where = "run " + std::to_string(run.record.run);
        if (run.end->observed_weight_bytes != observed[run.record.run])
            v.fail(where + " says " + counted(run.end->observed_weight_bytes, "byte") + " of weights, its events " +
                   std::to_string(observed[run.record.run]));
        if (run.end->observed_weight_bytes != run.end->expected_weight_bytes)
            v.fail(where + ": " + counted(run.end->observed_weight_bytes, "byte") + " of weights, " +
                   std::to_string(run.end->expected_weight_bytes) + " expected");
    }
}

void check_directory(const Examined& x, const tinfer::ModelFile& file, Verdict& v) {
    const auto tensors = file.tensors();
    std::size_t n_weights = 0;
    for (const auto& tensor : x.trace.tensors()) n_weights += tensor.tensor_class == 0 ? 1 : 0;
    if (x.trace.tensors().empty() && x.trace.plans().empty()) return v.warn("the list of tensors is lost");
    if (n_weights != tensors.size())
        v.fail(counted(n_weights, "weight") + ", the file has " + std::to_string(tensors.size()));
    for (const auto& tensor : tensors) {
        const auto* recorded = x.trace.tensor(tensor.id);
        const std::string name = harmless_text(tensor.name);
        if (recorded == nullptr || x.trace.text(recorded->name) != tensor.name) {
            v.fail(name + " is not there");
            continue;
        }
        bool same_shape = true;
        for (std::size_t d = 0; d < 4; ++d) same_shape = same_shape && recorded->ne[d] == std::uint64_t(tensor.ne[d]);
        if (recorded->type != std::uint32_t(tensor.type)) v.fail(name + ": another type");
        if (!same_shape || recorded->bytes != tensor.bytes) v.fail(name + ": another shape or size");
        if (recorded->file_offset != tensor.file_offset)
            v.fail(name + ": at " + std::to_string(recorded->file_offset) + ", the file has it at " +
                   std::to_string(tensor.file_offset));
    }
}

}  // namespace tinfer::app
