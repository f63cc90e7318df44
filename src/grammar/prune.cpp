// SPDX-License-Identifier: MIT
// Removes dead ends from a program. A node is productive if some text leads from it to the end of its rule; productive
// nodes are found by fixed-point iteration, and branches to all others are removed.
#include <algorithm>

#include "grammar/gbnf.hpp"

namespace tinfer::grammar {
namespace {

/// Whether a node is productive, given what `ends` says so far about its successors.
bool can_end(const Program& program, const Node& node, const std::vector<char>& ends) {
    const auto next_ends = [&] { return ends[node.next] != 0; };
    switch (node.kind) {
        case NodeKind::ret: return true;
        case NodeKind::bytes:
            for (std::uint32_t i = 0; i < node.count; ++i)
                if (ends[program.edges[node.first + i].next]) return true;
            return false;
        case NodeKind::split:
            for (std::uint32_t i = 0; i < node.count; ++i)
                if (ends[program.targets[node.first + i]]) return true;
            return false;
        case NodeKind::call: return ends[node.arg] != 0 && next_ends();
        case NodeKind::repeat: return (node.min == 0 || ends[node.arg] != 0) && next_ends();
        case NodeKind::lexeme: return !program.dfas[node.arg].empty() && next_ends();
        case NodeKind::object: {
            const ObjectTerminal& object = program.objects[node.arg];
            for (std::size_t i = 0; i < object.value_entries.size(); ++i)
                if (object.is_required[i] && (object.value_entries[i] == kNone || !ends[object.value_entries[i]]))
                    return false;
            if (object.is_required.size() < object.min && object.other_names == nullptr) return false;
            return next_ends();
        }
        case NodeKind::choice: {
            const auto n = std::ranges::count_if(program.choices[node.arg].first, [&](auto e) { return ends[e] != 0; });
            return n >= static_cast<std::ptrdiff_t>(node.min) && next_ends();
        }
        case NodeKind::token:
        case NodeKind::string:
        case NodeKind::key: return node.next == kNone || next_ends();
    }
    return false;
}

}  // namespace

bool prune(Program& program) {
    std::vector<char> ends(program.nodes.size());
    for (bool changes = true; changes;) {
        changes = false;
        for (std::size_t i = 0; i < program.nodes.size(); ++i)
            if (!ends[i] && can_end(program, program.nodes[i], ends)) ends[i] = 1, changes = true;
    }
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
