// SPDX-License-Identifier: MIT
// Rules about the file itself, its plans, times and references.
#include <algorithm>

#include "ranges.hpp"
#include "validate.hpp"

namespace tinfer::app {

namespace format = tinfer::trace_format;

namespace {

std::string at_event(std::uint64_t event) { return "event " + std::to_string(event); }
std::string at_run(const tinfer::RecordedRun& run) { return "run " + std::to_string(run.record.run); }

template <class Fn>
void for_each_event(const tinfer::TraceReader& trace, Fn&& fn) {
    for (const auto& run : trace.runs())
        for (const auto& events : run.events)
            for (std::size_t i = 0; i < events.events.size(); ++i) fn(run, events, i);
}

}  // namespace

void check_blocks(const Examined& x, Verdict& v) {
    const auto found = damage_of(x.trace);
    const std::size_t n = found.size() - (x.trace.is_closed() ? 0 : 1);  // without its last sentence, which is V2
    for (std::size_t i = 0; i < n; ++i) v.fail(found[i]);
}

void check_close(const Examined& x, Verdict& v) {
    if (!x.trace.is_closed()) v.warn("the writer did not come to its end (see tinfer trace recover)");
}

void check_indices(const Examined& x, Verdict& v) {
    std::uint64_t next = 0, first = 0, n_events = 0;
    bool any = false;
    for_each_event(x.trace, [&](const auto& run, const auto& events, std::size_t i) {
        const std::uint64_t index = events.index(i);
        if (!any) first = x.starts_late || x.is_filtered ? run.record.first_event : 0;
        if (any && index < next) v.fail(at_run(run) + ": " + at_event(index) + " behind " + at_event(next - 1));
        next = index + 1;
        any = true;
        ++n_events;
    });
    for (const auto& run : x.trace.runs())
        if (run.found && run.end) next = std::max(next, run.record.first_event + run.end->n_events);
    if (!any && (next == 0 || x.starts_late)) return;
    const auto& header = x.trace.header();
    const std::uint64_t all = next - std::min(first, next);
    const std::uint64_t dropped = x.trace.is_closed()        ? header.n_dropped
                                  : x.trace.blocks().empty() ? 0
                                                             : x.trace.blocks().back().header.dropped;
    if (!x.trace.is_closed() && x.is_filtered) return v.skip("not closed: what was filtered is not known");
    const std::uint64_t known = n_events + dropped + header.n_filtered;
    if (all != known)
        v.fail(std::to_string(all) + " numbers, but " + std::to_string(n_events) + " events, " +
               std::to_string(dropped) + " dropped and " + std::to_string(header.n_filtered) + " filtered");
    if (x.trace.is_closed() && header.n_events != n_events)
        v.fail("the header says " + counted(header.n_events, "event") + ", there are " + std::to_string(n_events));
}

void check_steps(const Examined& x, Verdict& v) {
    if (x.is_filtered) return v.skip("filtered");
    for (const auto& run : x.trace.runs()) {
        if (!x.is_complete(run)) continue;
        const auto* plan = x.trace.plan(run.record.plan);
        if (plan == nullptr) {
            v.fail(at_run(run) + ": its plan is not there");
            continue;
        }
        std::uint32_t next = 0;
        for (const auto& events : run.events)
            for (const auto& event : events.events) {
                if (event.step != next)
                    v.fail(at_run(run) + ": step " + std::to_string(event.step) + " where " + std::to_string(next) +
                           " was due");
                next = event.step + 1;
            }
        if (next != plan->steps.size() || run.end->n_events != plan->steps.size())
            v.fail(at_run(run) + ": " + std::to_string(run.end->n_events) + " events for " +
                   counted(plan->steps.size(), "step"));
    }
}

void check_times(const Examined& x, Verdict& v) {
    if (!x.has_times) return v.skip("level counts has no times");
    std::uint64_t last_end = 0;
    for (const auto& run : x.trace.runs()) {
        if (run.found && run.record.begin < last_end) v.fail(at_run(run) + " begins before the one before it ends");
        std::uint64_t last = run.record.begin;
        for (const auto& events : run.events)
            for (std::size_t i = 0; i < events.events.size(); ++i) {
                const format::Event& event = events.events[i];
                const std::uint64_t end = event.begin + event.duration;
                if (event.begin < last) v.fail(at_event(events.index(i)) + " begins before the one before it ends");
                if (run.end && end > run.end->end) v.fail(at_event(events.index(i)) + " ends behind its run");
                last = (event.flags & format::saturated) != 0 ? event.begin : end;
                for (std::uint32_t t = 0; t < events.n_threads; ++t) {
                    const format::Span& span = events.spans[i * events.n_threads + t];
                    if ((event.flags & format::saturated) == 0 &&
                        std::uint64_t{span.begin} + span.busy > std::uint64_t{event.duration} + 1000)
                        v.fail(at_event(events.index(i)) + ": thread " + std::to_string(t) + " works behind its end");
                }
            }
        if (run.end) last_end = run.end->end;
    }
}

void check_references(const Examined& x, Verdict& v) {
    std::set<std::pair<int, std::string_view>> names;
    for (const auto& tensor : x.trace.tensors()) {
        const auto name = x.trace.text(tensor.name);
        if (name.empty()) v.fail("tensor " + std::to_string(tensor.id) + " has no name");
        else if (!names.emplace(tensor.tensor_class, name).second)
            v.fail("the name " + harmless_text(name) + " is there twice");
        if (tensor.file_index != format::kNoFile && tensor.file_index >= x.trace.files().size())
            v.fail(harmless_text(name) + " lies in a file that is not listed");
    }
    for (const auto& plan : x.trace.plans()) {
        std::set<std::uint32_t> values;
        for (const auto& value : plan.values) values.insert(value.id);
        const auto check = [&](std::uint32_t ref, const std::string& whose) {
            const bool there = (ref & format::kValueBit) != 0 ? values.contains(ref & ~format::kValueBit)
                                                              : x.trace.tensor(ref) != nullptr;
            if (!there)
                v.fail("plan " + std::to_string(plan.header.id) + ": " + whose + " refers to what is not there");
        };
        for (const auto& operand : plan.operands) check(operand.ref, "an operand");
        for (const auto& node : plan.nodes) check(node.value, "a node");
        for (const auto ref : plan.inputs)
            if (ref != format::kNone) check(ref, "an input");
        for (const auto& step : plan.steps)
            if (x.trace.text(step.kernel).empty() || !x.ops.contains(step.op))
                v.fail("plan " + std::to_string(plan.header.id) + ": step " + std::to_string(step.number) +
                       " has no kernel or op");
    }
    for_each_event(x.trace, [&](const auto& run, const auto& events, std::size_t i) {
        const auto* plan = x.trace.plan(run.record.plan);
        const format::Event& event = events.events[i];
        if (plan == nullptr || event.step >= plan->steps.size())
            return v.fail(at_event(events.index(i)) + ": its plan or step is not there");
        for (const auto& range : events.ranges_of(i))
            if (range.operand >= plan->steps[event.step].n_operands)
                v.fail(at_event(events.index(i)) + ": a range of no operand");
    });
}

void check_partition(const Examined& x, Verdict& v) {
    for (const auto& plan : x.trace.plans()) {
        std::vector<int> uses(plan.nodes.size());
        for (const auto& step : plan.steps)
            for (std::uint32_t i = 0; i < step.n_nodes; ++i) {
                const std::uint32_t node = plan.step_nodes[step.first_step_node + i];
                ++uses[node];
                if (plan.nodes[node].step != step.number)
                    v.fail("plan " + std::to_string(plan.header.id) + ": node " +
                           harmless_text(x.trace.text(plan.nodes[node].name)) + " names another step");
            }
        for (std::size_t n = 0; n < uses.size(); ++n)
            if (uses[n] != (plan.nodes[n].step == format::kNone ? 0 : 1))
                v.fail("plan " + std::to_string(plan.header.id) + ": node " +
                       harmless_text(x.trace.text(plan.nodes[n].name)) + " lies in " + std::to_string(uses[n]) +
                       " steps");
    }
}

void check_ranges(const Examined& x, Verdict& v) {
    const auto size_of = [&](const tinfer::RecordedPlan& plan, std::uint32_t ref) -> std::uint64_t {
        if ((ref & format::kValueBit) == 0)
            return x.trace.tensor(ref) != nullptr ? x.trace.tensor(ref)->bytes : ~std::uint64_t{0};
        for (const auto& value : plan.values)
            if (value.id == (ref & ~format::kValueBit)) return value.bytes;
        return ~std::uint64_t{0};
    };
    for (const auto& plan : x.trace.plans())
        for (const auto& operand : plan.operands)
            if (operand.kind == format::OperandKind::range &&
                !is_inside(operand.offset, operand.length, operand.stride, operand.count, size_of(plan, operand.ref)))
                v.fail("plan " + std::to_string(plan.header.id) + ": an operand's range lies outside its tensor");
    for_each_event(x.trace, [&](const auto& run, const auto& events, std::size_t i) {
        const auto* plan = x.trace.plan(run.record.plan);
        if (plan == nullptr || events.events[i].step >= plan->steps.size()) return;
        const format::Step& step = plan->steps[events.events[i].step];
        std::map<std::uint16_t, std::uint64_t> ends;
        for (const auto& range : events.ranges_of(i)) {
            if (range.operand >= step.n_operands) continue;
            const std::uint64_t size = size_of(*plan, plan->operands[step.first_operand + range.operand].ref);
            if (!is_inside(range.offset, range.length, range.stride, range.count, size)) {
                v.fail(at_event(events.index(i)) + ": a range lies outside its tensor of " + counted(size, "byte"));
                continue;
            }
            auto& end = ends[range.operand];
            if (range.offset < end)
                v.fail(at_event(events.index(i)) + ": ranges of operand " + std::to_string(range.operand) +
                       " are not sorted and apart");
            end = range.offset + range.length;
        }
    });
}

void check_names(const Examined& x, Verdict& v) {
    for (const auto& tensor : x.trace.tensors()) {
        if (tensor.tensor_class != 0) continue;
        const auto name = x.trace.text(tensor.name);
        std::uint64_t layer = format::kNoLayer16;
        auto role = name;
        if (name.starts_with("blk.")) {
            const auto dot = name.find('.', 4);
            if (dot == name.npos) continue;
            try {
                const auto ranges = parse_ranges(std::string(name.substr(4, dot - 4)), "layer");
                layer = ranges.empty() ? layer : ranges[0].first;
            } catch (const UsageError&) {
                continue;  // no standard form
            }
            role = name.substr(dot + 1);
            if (role.ends_with(".weight"))
                role.remove_suffix(std::string_view(".weight").size());  // biases keep their suffix
            if (tensor.layer != layer)
                v.fail(harmless_text(name) + " is recorded as of layer " + std::to_string(tensor.layer));
        }
        const auto recorded =
            tensor.role == 0 ? std::string_view() : x.trace.session_value("role." + std::to_string(tensor.role));
        if (!recorded.empty() && name.starts_with("blk.") && recorded != role)
            v.fail(harmless_text(name) + " is recorded with the role " + harmless_text(recorded));
    }
}

void check_static_parts(const Examined& x, Verdict& v) {
    std::map<std::array<std::uint8_t, 16>, const tinfer::RecordedPlan*> plans;
    for (const auto& plan : x.trace.plans()) {
        const auto [found, is_new] = plans.emplace(plan.header.hash, &plan);
        if (is_new) continue;
        const auto& other = *found->second;
        const auto same_step = [](const format::Step& a, const format::Step& b) {
            return a.op == b.op && a.layer == b.layer && a.kernel == b.kernel && a.part == b.part &&
                   a.n_operands == b.n_operands && a.n_nodes == b.n_nodes;
        };
        if (!std::ranges::equal(plan.steps, other.steps, same_step))
            v.fail("plans " + std::to_string(plan.header.id) + " and " + std::to_string(other.header.id) +
                   " have one hash and different steps");
    }
    for (const auto& run : x.trace.runs())
        if (const auto* plan = x.trace.plan(run.record.plan);
            run.found && plan != nullptr && run.record.n_tokens > 0 && plan->header.n_tokens != run.record.n_tokens)
            v.fail(at_run(run) + " has " + counted(run.record.n_tokens, "token") + ", its plan " +
                   std::to_string(plan->header.n_tokens));
}

void check_drops(const Examined& x, Verdict& v) {
    std::uint64_t in_records = 0;
    for (const auto& drop : x.trace.drops()) in_records += drop.count;
    if (x.trace.header().n_dropped > 0) v.warn(counted(x.trace.header().n_dropped, "event") + " dropped");
    if (x.trace.is_closed() && in_records != x.trace.header().n_dropped)
        v.fail("the header says " + std::to_string(x.trace.header().n_dropped) + " dropped, the records " +
               std::to_string(in_records));
}

void check_filter(const Examined& x, Verdict& v) {
    if (x.is_filtered)
        return v.skip("filtered: " + std::to_string(x.trace.header().n_filtered) +
                      " events left out, V4 and V9 say nothing");
    if (x.trace.header().n_filtered > 0 && !x.starts_late && x.trace.runs().size() < 2)
        v.fail(counted(x.trace.header().n_filtered, "event") + " filtered in a trace that is not marked so");
}

void check_gaps(const Examined& x, Verdict& v) {
    if (!x.has_times) return v.skip("level counts has no times");
    if (x.is_filtered) return v.skip("filtered");
    for (const auto& run : x.trace.runs()) {
        if (!x.is_complete(run) || run.events.empty()) continue;
        std::uint64_t steps = 0, last = run.record.begin, gaps = 0;
        for (const auto& events : run.events)
            for (const auto& event : events.events) {
                steps += event.duration;
                gaps += event.begin - std::min(event.begin, last);
                last = event.begin + event.duration;
            }
        const std::uint64_t all = run.end->end - run.record.begin;
        if (double(steps + gaps) < 0.99 * double(all))
            v.warn(at_run(run) + ": steps and the gaps between them are " +
                   fixed(100 * double(steps + gaps) / double(all), 1) + " % of it");
    }
}

}  // namespace tinfer::app
