// SPDX-License-Identifier: MIT
#include "serving/prefix_tree.hpp"

#include <algorithm>

namespace tinfer::serving {

namespace {

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) noexcept {
    const std::size_t n = std::min(a.size(), b.size());
    return static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

}  // namespace

PrefixTree::PrefixTree(std::size_t n_seq_max) : sequences_(n_seq_max) {}

// From the leaves up: a node that let go of its child, and that of its own, would take stack for every page.
PrefixTree::~PrefixTree() {
    for (Node* at = &root_; at != nullptr;) {
        if (at->children.empty()) {
            at = at->parent;
            if (at != nullptr) at->children.pop_back();
        } else {
            at = at->children.back().get();
        }
    }
}

PrefixTree::Node* PrefixTree::child(const Node& node, std::span<const Token> page,
                                    const AdapterSet& adapters) noexcept {
    for (const auto& next : node.children)
        if ((node.parent != nullptr || next->adapters == adapters) && std::ranges::equal(next->page, page))
            return next.get();
    return nullptr;
}

// Every node is on the path of a sequence, so some sequence ends at or below it.
const PrefixTree::Node& PrefixTree::some_end(const Node& node) noexcept {
    const Node* at = &node;
    while (at->ends.empty()) at = at->children.front().get();
    return *at;
}

// Removes the sequence from its node, and nodes that no sequence needs any more from the tree.
void PrefixTree::leave(SeqId seq) noexcept {
    Node* node = sequences_[index(seq)].last;
    if (node == nullptr) return;
    sequences_[index(seq)].last = nullptr;
    std::erase(node->ends, seq);
    while (node->parent != nullptr && node->ends.empty() && node->children.empty()) {
        Node* parent = node->parent;
        std::erase_if(parent->children, [&](const auto& next) { return next.get() == node; });
        node = parent;
    }
}

// Adds the sequence to the node of its last full page, creating missing nodes. If memory runs out, only this sequence
// is not found any more.
void PrefixTree::enter(SeqId seq) {
    Sequence& s = sequences_[index(seq)];
    if (s.tokens.empty()) return;
    Node* at = &root_;
    const auto prune = [&] {
        while (at->parent != nullptr && at->ends.empty() && at->children.empty()) {
            Node* gone = at;
            at = at->parent;
            std::erase_if(at->children, [&](const auto& next) { return next.get() == gone; });
        }
    };
    try {
        for (std::size_t i = 0; i + kPage <= s.tokens.size(); i += kPage) {
            const auto page = std::span(s.tokens).subspan(i, kPage);
            Node* next = child(*at, page, s.adapters);
            if (next == nullptr) {
                auto made = std::make_unique<Node>();
                if (at == &root_) made->adapters = s.adapters;
                std::ranges::copy(page, made->page.begin());
                made->parent = at;
                next = made.get();
                at->children.push_back(std::move(made));
            }
            at = next;
        }
        at->ends.push_back(seq);
    } catch (...) {
        prune();
        throw;
    }
    s.last = at;
}

void PrefixTree::append(SeqId seq, std::span<const Token> tokens) {
    Sequence& s = sequences_[index(seq)];
    if (tokens.empty()) return;
    const std::size_t before = s.tokens.size();
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    if (s.last != nullptr && before / kPage == s.tokens.size() / kPage) return;
    leave(seq);
    enter(seq);
}

void PrefixTree::truncate(SeqId seq, std::size_t n) noexcept {
    Sequence& s = sequences_[index(seq)];
    if (n >= s.tokens.size()) return;
    Node* at = s.last;
    std::size_t pages = s.tokens.size() / kPage;
    s.tokens.resize(n);
    if (at == nullptr || (n > 0 && n / kPage == pages)) return;
    Node* target = at;
    for (; pages > n / kPage; --pages) target = target->parent;
    if (n > 0) {
        // This rarely allocates; if it fails, the sequence is not found any more.
        try {
            target->ends.push_back(seq);
        } catch (...) {
            target = nullptr;
        }
    } else {
        target = nullptr;
    }
    leave(seq);
    s.last = target;
}

void PrefixTree::copy(SeqId from, SeqId to, std::size_t n) {
    truncate(to, 0);
    set_adapters(to, adapters(from));
    append(to, tokens(from).first(n));
}

std::optional<PrefixTree::Match> PrefixTree::find(std::span<const Token> tokens,
                                                  const AdapterSet& adapters) const noexcept {
    const Node* at = &root_;
    std::size_t n = 0;
    while (tokens.size() - n >= kPage) {
        const Node* next = child(*at, tokens.subspan(n, kPage), adapters);
        if (next == nullptr) break;
        at = next;
        n += kPage;
    }
    const Node* best = nullptr;  // a page that matches partly, or a sequence that ends within the page
    std::optional<SeqId> best_end;
    std::size_t most = 0;
    const auto rest = tokens.subspan(n);
    for (const SeqId seq : at->ends) {
        if (sequences_[index(seq)].adapters != adapters) continue;
        const std::size_t same = common_prefix(std::span(sequences_[index(seq)].tokens).subspan(n), rest);
        if (!best_end || same > most) {
            best_end = seq;
            most = same;
        }
    }
    for (const auto& next : at->children) {
        if (at == &root_ && next->adapters != adapters) continue;
        const std::size_t same = common_prefix(next->page, rest);
        if ((!best_end && best == nullptr) || same > most) {
            best = next.get();
            most = same;
        }
    }
    if (n + most == 0) return std::nullopt;
    return Match{best != nullptr ? some_end(*best).ends.front() : *best_end, n + most};
}

std::optional<PrefixTree::Match> PrefixTree::find_whole(std::span<const Token> tokens, const AdapterSet& adapters,
                                                        std::optional<SeqId> except) const noexcept {
    std::optional<Match> found;
    const auto look = [&](const Node& node, std::size_t n) {
        for (const SeqId seq : node.ends) {
            const auto& own = sequences_[index(seq)].tokens;
            if (seq == except || sequences_[index(seq)].adapters != adapters || own.size() > tokens.size() ||
                (found && own.size() <= found->n_tokens))
                continue;
            if (std::ranges::equal(std::span(own).subspan(n), tokens.subspan(n, own.size() - n)))
                found = Match{seq, own.size()};
        }
    };
    const Node* at = &root_;
    std::size_t n = 0;
    look(root_, 0);
    while (tokens.size() - n >= kPage) {
        at = child(*at, tokens.subspan(n, kPage), adapters);
        if (at == nullptr) break;
        n += kPage;
        look(*at, n);
    }
    return found;
}

}  // namespace tinfer::serving
