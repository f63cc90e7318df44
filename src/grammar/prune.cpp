// SPDX-License-Identifier: MIT
// Removes dead ends from a program. A node is productive if some text leads from it to the end of its rule; productive
// nodes are found by fixed-point iteration, and branches to all others are removed.
#include <algorithm>

#include "grammar/gbnf.hpp"

namespace tinfer::grammar {
namespace {

/// Finds the productive nodes: begins at the ends of rules and goes back along what leads there, so that each edge is
/// looked at once, in whatever order the rules stand.
class Productive {
public:
    explicit Productive(const Program& program)
        : program_(program), ends_(program.nodes.size()), first_(program.nodes.size() + 1) {
        for_each_edge([&](std::uint32_t, std::uint32_t to) { ++first_[to + 1]; });
        for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
        before_.resize(first_.back());
        std::vector<std::uint32_t> at(first_.begin(), first_.end() - 1);
        for_each_edge([&](std::uint32_t from, std::uint32_t to) { before_[at[to]++] = from; });
        n_missing_.reserve(program.objects.size());
        for (const ObjectTerminal& object : program.objects)
            n_missing_.push_back(static_cast<std::uint32_t>(std::ranges::count(object.is_required, 1)));
    }

    std::vector<char> find() {
        for (std::uint32_t i = 0; i < ends_.size(); ++i) look_at(i);
        while (!work_.empty()) {
            const std::uint32_t node = work_.back();
            work_.pop_back();
            for (std::uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
                const Node& user = program_.nodes[before_[i]];
                // Each required value counts once, the end of the object not at all.
                if (user.kind == NodeKind::object && node != user.next) --n_missing_[user.arg];
                look_at(before_[i]);
            }
        }
        return std::move(ends_);
    }

private:
    /// Calls f(node, successor) for each successor that a node's productivity depends on. An object's next node is one
    /// of them once, even if it were the rule of a value, too.
    template <class F>
    void for_each_edge(F&& f) const {
        for (std::uint32_t i = 0; i < program_.nodes.size(); ++i) {
            const Node& node = program_.nodes[i];
            if (node.kind == NodeKind::bytes)
                for (std::uint32_t k = 0; k < node.count; ++k) f(i, program_.edges[node.first + k].next);
            else if (node.kind == NodeKind::split)
                for (std::uint32_t k = 0; k < node.count; ++k) f(i, program_.targets[node.first + k]);
            else if (node.kind == NodeKind::call || node.kind == NodeKind::repeat) f(i, node.arg);
            else if (node.kind == NodeKind::choice)
                for (const std::uint32_t entry : program_.choices[node.arg].first) f(i, entry);
            else if (node.kind == NodeKind::object) {
                const ObjectTerminal& object = program_.objects[node.arg];
                for (std::size_t k = 0; k < object.value_entries.size(); ++k)
                    if (object.is_required[k] != 0 && object.value_entries[k] != kNone) f(i, object.value_entries[k]);
            }
            if (node.next != kNone) f(i, node.next);
        }
    }

    void look_at(std::uint32_t number) {
        if (ends_[number] != 0 || !can_end(program_.nodes[number])) return;
        ends_[number] = 1;
        work_.push_back(number);
    }

    /// What is known by now; of nodes with many successors no more is looked at than it takes.
    [[nodiscard]] bool can_end(const Node& node) const {
        const auto next_ends = [&] { return ends_[node.next] != 0; };
        switch (node.kind) {
            case NodeKind::ret: return true;
            case NodeKind::bytes:
            case NodeKind::split: return has_end(node);
            case NodeKind::call: return ends_[node.arg] != 0 && next_ends();
            case NodeKind::repeat: return (node.min == 0 || ends_[node.arg] != 0) && next_ends();
            case NodeKind::lexeme: return !program_.dfas[node.arg].empty() && next_ends();
            case NodeKind::object: {
                const ObjectTerminal& object = program_.objects[node.arg];
                if (n_missing_[node.arg] > 0) return false;
                return (object.is_required.size() >= object.min || object.other_names != nullptr) && next_ends();
            }
            case NodeKind::choice: {
                const auto n =
                    std::ranges::count_if(program_.choices[node.arg].first, [&](auto e) { return ends_[e] != 0; });
                return n >= static_cast<std::ptrdiff_t>(node.min) && next_ends();
            }
            case NodeKind::token:
            case NodeKind::string:
            case NodeKind::key: return node.next == kNone || next_ends();
        }
        return false;
    }
    [[nodiscard]] bool has_end(const Node& node) const {
        for (std::uint32_t i = 0; i < node.count; ++i)
            if (ends_[node.kind == NodeKind::bytes ? program_.edges[node.first + i].next
                                                   : program_.targets[node.first + i]] != 0)
                return true;
        return false;
    }

    const Program& program_;
    std::vector<char> ends_;
    std::vector<std::uint32_t> first_, before_;  // before_[first_[n] .. first_[n + 1]): nodes that lead to node n
    std::vector<std::uint32_t> n_missing_;       // {objects}: required values not known to be productive
    std::vector<std::uint32_t> work_;
};

}  // namespace

bool prune(Program& program) {
    const std::vector<char> ends = Productive(program).find();
    for (Node& node : program.nodes) {
        if (node.kind == NodeKind::bytes) {
            const auto begin = program.edges.begin() + node.first;
            const auto kept =
                std::stable_partition(begin, begin + node.count, [&](auto& e) { return ends[e.next] != 0; });
            node.count = static_cast<std::uint32_t>(kept - begin);
        } else if (node.kind == NodeKind::split) {
            const auto begin = program.targets.begin() + node.first;
            const auto kept = std::stable_partition(begin, begin + node.count, [&](auto t) { return ends[t] != 0; });
            node.count = static_cast<std::uint32_t>(kept - begin);
        } else if (node.kind == NodeKind::repeat && !ends[node.arg]) {
            node.max = 0;
        }
    }
    for (ChoiceTerminal& choice : program.choices)
        for (std::size_t i = 0; i < choice.first.size(); ++i)
            if (!ends[choice.first[i]]) choice.first[i] = choice.rest[i] = kNone;
    for (ObjectTerminal& object : program.objects) {
        bool changes = false;
        for (std::uint32_t& entry : object.value_entries)
            if (entry != kNone && !ends[entry]) entry = kNone, changes = true;
        for (std::uint32_t& entry : object.other_entries)
            if (entry != kNone && !ends[entry]) entry = kNone, changes = true;
        const std::size_t n = object.value_entries.size();
        object.allowed_from.assign(n + 1, 0);
        object.required_from.assign(n + 1, 0);
        for (std::size_t p = n; p-- > 0;) {
            object.allowed_from[p] = object.allowed_from[p + 1] + (object.value_entries[p] != kNone ? 1 : 0);
            object.required_from[p] = object.required_from[p + 1] + (object.is_required[p] ? 1 : 0);
        }
        if (!changes) continue;
        for (auto& node : object.trie)
            std::erase_if(node.reachable, [&](auto p) { return object.value_entries[p] == kNone; });
        if (object.other_names == nullptr) continue;
        Dfa names = *object.other_names;
        for (std::uint32_t& label : names.labels)
            if (label != 0 && object.other_entries[label - 1] == kNone) label = 0;
        names.trim();
        object.other_names = names.empty() ? nullptr : std::make_shared<const Dfa>(std::move(names));
    }
    return ends[program.start] != 0;
}

}  // namespace tinfer::grammar
