// SPDX-License-Identifier: MIT
#include "grammar/program.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::grammar {

void Program::refuse_nodes() const {
    fail(ErrorCode::limit_exceeded, cat("grammar: more than ", max_nodes, " nodes (max_nodes)"));
}

void Program::shrink() {
    nodes.shrink_to_fit();
    edges.shrink_to_fit();
    targets.shrink_to_fit();
    dfas.shrink_to_fit();
    strings.shrink_to_fit();
    objects.shrink_to_fit();
    rule_ends.shrink_to_fit();
}

std::size_t Program::memory() const noexcept {
    constexpr std::size_t kOfEdge = 48;  // of the map in a node of a trie
    std::size_t n = sizeof(Program) + nodes.capacity() * sizeof(Node) + edges.capacity() * sizeof(ByteEdge) +
                    targets.capacity() * sizeof(std::uint32_t) + text.capacity();
    for (const Dfa& dfa : dfas) n += dfa.memory();
    for (const StringTerminal& string : strings) {
        n += sizeof string + string.takes_all.capacity();
        n += (string.distances.shortest.capacity() + string.distances.longest.capacity()) * sizeof(std::uint32_t);
        if (string.dfa != nullptr) n += string.dfa->memory();
    }
    for (const ObjectTerminal& object : objects) {
        n += sizeof object + object.is_required.capacity() + (object.other_names ? object.other_names->memory() : 0);
        n += (4 * object.value_entries.capacity() + object.other_entries.capacity()) * sizeof(std::uint32_t);
        for (const auto& node : object.trie)
            n += sizeof node + kOfEdge + node.reachable.capacity() * sizeof(std::uint32_t);
    }
    for (const ChoiceTerminal& choice : choices)
        n += sizeof choice + 2 * choice.first.capacity() * sizeof(std::uint32_t);
    for (const auto& [end, name] : rule_ends) n += sizeof end + sizeof name + name.capacity();
    for (const std::string& warning : warnings) n += sizeof warning + warning.capacity();
    return n;
}

std::string_view Program::rule_of(std::uint32_t node) const noexcept {
    const auto rule = std::ranges::upper_bound(rule_ends, node, {}, [](const auto& end) { return end.first; });
    return rule == rule_ends.end() ? std::string_view() : std::string_view(rule->second);
}

std::uint32_t Program::add_text(std::string_view bytes, std::uint32_t next) {
    for (std::size_t i = bytes.size(); i-- > 0;) {
        Node node{NodeKind::bytes};
        node.first = static_cast<std::uint32_t>(edges.size());
        node.count = 1;
        const auto byte = static_cast<std::uint8_t>(bytes[i]);
        edges.push_back({byte, byte, next});
        next = add(node);
    }
    return next;
}

std::uint32_t Program::add_set(const CharSet& set, std::uint32_t next) {
    // A trie of the byte ranges: sequences of utf8_ranges() with a common prefix share nodes.
    struct Draft {
        std::vector<std::pair<ByteEdge, std::uint32_t>> edges;  // with the following draft, kNone: `next`
    };
    std::vector<Draft> drafts(1);
    for (const Utf8Range& range : utf8_ranges(set.scalar_values())) {
        std::uint32_t at = 0;
        for (int i = 0; i < range.n_bytes; ++i) {
            const bool is_last = i + 1 == range.n_bytes;
            std::uint32_t to = kNone;
            if (!is_last)
                for (const auto& [edge, draft] : drafts[at].edges)
                    if (edge.lo == range.lo[i] && edge.hi == range.hi[i] && draft != kNone) to = draft;
            if (to == kNone) {
                if (!is_last) {
                    to = static_cast<std::uint32_t>(drafts.size());
                    drafts.emplace_back();
                }
                drafts[at].edges.push_back({{range.lo[i], range.hi[i], 0}, to});
            }
            at = to;
        }
    }
    std::vector<std::uint32_t> placed(drafts.size(), kNone);
    for (std::size_t d = drafts.size(); d-- > 0;) {
        Node node{NodeKind::bytes};
        node.first = static_cast<std::uint32_t>(edges.size());
        node.count = static_cast<std::uint32_t>(drafts[d].edges.size());
        for (const auto& [edge, to] : drafts[d].edges)
            edges.push_back({edge.lo, edge.hi, to == kNone ? next : placed[to]});
        placed[d] = add(node);
    }
    return placed[0];
}

}  // namespace tinfer::grammar
