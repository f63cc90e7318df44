// SPDX-License-Identifier: MIT
#include "grammar/print.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace tinfer::grammar {

/// Not in the anonymous namespace: catching a type with internal linkage needs a pointer in writable memory.
struct CannotPrint {};

namespace {

constexpr std::uint32_t kMaxRepeats = 2000;  // GBNF's limit

/// A code point, escaped for a GBNF literal or set.
std::string spelled(std::uint32_t c) {
    char out[16];
    switch (c) {
        case '\n': return "\\n";
        case '\r': return "\\r";
        case '\t': return "\\t";
        case '\\': return "\\\\";
        case '"': return "\\\"";
        case '[': return "\\[";
        case ']': return "\\]";
        default: break;
    }
    if (c == '-' || c == '^') std::snprintf(out, sizeof out, "\\x%02X", c);
    else if (c >= 0x20 && c < 0x7F) return std::string(1, static_cast<char>(c));
    else if (c < 0x80) std::snprintf(out, sizeof out, "\\x%02X", c);
    else if (c < 0x10000) std::snprintf(out, sizeof out, "\\u%04X", c);
    else std::snprintf(out, sizeof out, "\\U%08X", c);
    return out;
}

std::string literal(std::string_view bytes) {
    std::string out = "\"";
    for (const char c : bytes) out += spelled(static_cast<unsigned char>(c));
    return out + "\"";
}

std::string set_of(const std::vector<CharRange>& ranges) {
    std::string out = "[";
    for (const CharRange& r : ranges) {
        out += spelled(r.lo);
        if (r.hi > r.lo) out += cat(r.hi > r.lo + 1 ? "-" : "", spelled(r.hi));
    }
    return out + "]";
}

class Printer {
public:
    Printer(const Program& program, std::size_t max_bytes) : program_(program), max_bytes_(max_bytes) {}

    std::string run(std::string_view comment) {
        count_references();
        out_ = cat(comment, "root ::= ", from(program_.start), "\n");
        while (!pending_.empty()) {
            const auto [name, body] = std::move(pending_.back());
            pending_.pop_back();
            out_ += name + " ::= " + body() + "\n";
            if (out_.size() > max_bytes_) throw CannotPrint{};
        }
        return std::move(out_);
    }

private:
    using Body = std::function<std::string()>;

    std::string rule(std::string name, Body body) {
        if (known_.insert(name).second) pending_.emplace_back(name, std::move(body));
        return name;
    }
    void count_references() {
        n_references_.assign(program_.nodes.size(), 0);
        for (const Node& node : program_.nodes) {
            if (node.next != kNone) ++n_references_[node.next];
            if (node.kind == NodeKind::bytes)
                for (std::uint32_t i = 0; i < node.count; ++i) ++n_references_[program_.edges[node.first + i].next];
            if (node.kind == NodeKind::split)
                for (std::uint32_t i = 0; i < node.count; ++i) ++n_references_[program_.targets[node.first + i]];
        }
    }
    std::string named(std::uint32_t node) {
        return rule(cat("n", node), [this, node] {
            depth_ = 0;
            return from(node);
        });
    }
    /// The rest of a rule from a node on: inline, or a rule of its own if several nodes lead here.
    std::string behind(std::uint32_t node) {
        if (program_.nodes[node].kind == NodeKind::ret) return "";
        if (n_references_[node] > 1 || program_.nodes[node].kind == NodeKind::split) return named(node);
        if (depth_ == kMaxInline) return named(node);
        ++depth_;
        std::string text = from(node);
        --depth_;
        return text;
    }
    static std::string join(const std::string& a, const std::string& b) { return b.empty() ? a : cat(a, " ", b); }

    std::string from(std::uint32_t number) {
        const Node& node = program_.nodes[number];
        switch (node.kind) {
            case NodeKind::ret: return "\"\"";
            case NodeKind::bytes: return bytes(number);
            case NodeKind::split: {
                std::string out;
                for (std::uint32_t i = 0; i < node.count; ++i) {
                    const std::string part = behind(program_.targets[node.first + i]);
                    out += cat(i > 0 ? " | " : "", part.empty() ? "\"\"" : part);
                }
                return node.count == 0 ? throw CannotPrint{} : out;
            }
            case NodeKind::call: return join(named(node.arg), behind(node.next));
            case NodeKind::repeat: return join(named(node.arg) + counts(node.min, node.max), behind(node.next));
            case NodeKind::lexeme: return join(lexeme(node.arg), behind(node.next));
            case NodeKind::string: return join(string(node.arg), behind(node.next));
            case NodeKind::object: return join(members(node.arg, 0, 0), behind(node.next));
            case NodeKind::key: return "";  // members() prints keys
            default: throw CannotPrint{};   // tokens and choices have no GBNF text
        }
    }
    /// Consecutive single bytes become one literal.
    std::string bytes(std::uint32_t number) {
        std::string text;
        while (program_.nodes[number].kind == NodeKind::bytes && program_.nodes[number].count == 1) {
            const ByteEdge& edge = program_.edges[program_.nodes[number].first];
            if (edge.lo != edge.hi || edge.lo >= 0x80) break;
            text += static_cast<char>(edge.lo);
            number = edge.next;
            if (n_references_[number] > 1) break;
        }
        if (!text.empty()) return join(literal(text), behind(number));
        const Node& node = program_.nodes[number];
        std::string out;
        for (std::uint32_t i = 0; i < node.count; ++i) {
            const ByteEdge& edge = program_.edges[node.first + i];
            if (edge.hi >= 0x80) throw CannotPrint{};
            out += cat(i > 0 ? " | " : "", join(set_of({{edge.lo, edge.hi}}), behind(edge.next)));
        }
        return out.empty() ? throw CannotPrint{} : out;
    }
    static std::string counts(std::uint32_t min, std::uint32_t max) {
        if ((max != kNone && max > kMaxRepeats) || min > kMaxRepeats) throw CannotPrint{};
        if (max == kNone) return min == 0 ? "*" : min == 1 ? "+" : cat("{", min, ",}");
        if (min == 0 && max == 1) return "?";
        return min == max ? cat("{", min, "}") : cat("{", min, ",", max, "}");
    }

    // ---- automata ---------------------------------------------------------------------------------------------------

    /// Target state → the code points that lead there.
    static std::map<std::uint32_t, std::vector<CharRange>> edges_of(const Dfa& dfa, std::uint32_t state) {
        std::map<std::uint32_t, std::vector<CharRange>> out;
        for (std::size_t c = 0; c < dfa.n_classes(); ++c) {
            const std::uint32_t to = dfa.next[state * dfa.n_classes() + c];
            if (to == Dfa::kDead) continue;
            const std::uint32_t last = c + 1 < dfa.n_classes() ? dfa.starts[c + 1] - 1 : kMaxCodePoint;
            auto& ranges = out[to];
            if (!ranges.empty() && ranges.back().hi + 1 == dfa.starts[c]) ranges.back().hi = last;
            else ranges.push_back({dfa.starts[c], last});
        }
        return out;
    }
    /// For white space: repetitions of one set, up to a maximum.
    static std::string counted_set(const Dfa& dfa) {
        std::string set;
        for (std::uint32_t s = 0; s < dfa.n_states(); ++s) {
            const auto edges = edges_of(dfa, s);
            if (dfa.labels[s] == 0) return "";
            if (s + 1 == dfa.n_states()) return edges.empty() && !set.empty() ? set + counts(0, s) : "";
            if (edges.size() != 1 || edges.begin()->first != s + 1) return "";
            if (const std::string here = set_of(edges.begin()->second); set.empty()) set = here;
            else if (here != set) return "";
        }
        return "";
    }
    std::string lexeme(std::uint32_t arg) {
        const Dfa& dfa = program_.dfas[arg];
        if (dfa.n_states() <= kMaxRepeats)
            if (std::string set = counted_set(dfa); !set.empty()) return rule(cat("space", arg), [set] { return set; });
        return state(cat("d", arg), dfa, 0, "\"\"", [](const auto& ranges) { return set_of(ranges); });
    }
    using Spell = std::function<std::string(const std::vector<CharRange>&)>;
    std::string state(const std::string& name, const Dfa& dfa, std::uint32_t at, const std::string& end,
                      const Spell& spell) {
        return rule(cat(name, "-", at), [this, name, &dfa, at, end, spell] {
            std::string out;
            for (const auto& [to, ranges] : edges_of(dfa, at)) {
                const std::string set = spell(ranges);
                if (!set.empty()) out += cat(out.empty() ? "" : " | ", set, " ", state(name, dfa, to, end, spell));
            }
            if (dfa.labels[at] != 0) out += cat(out.empty() ? "" : " | ", end);
            return out.empty() ? throw CannotPrint{} : out;
        });
    }

    // ---- strings ----------------------------------------------------------------------------------------------------

    /// Characters of a JSON string, escaped where they have to be.
    static std::string json_set(const std::vector<CharRange>& ranges) {
        CharSet all;
        for (const CharRange& r : ranges) all.add(r.lo, r.hi);
        std::vector<CharRange> plain;
        std::string escapes;
        const CharSet values = all.scalar_values();
        for (const CharRange& r : values.ranges()) {
            std::uint32_t lo = r.lo;
            const auto take = [&](std::uint32_t first, std::uint32_t last) {  // unescaped ranges
                if (std::max(lo, first) <= std::min(r.hi, last))
                    plain.push_back({std::max(lo, first), std::min(r.hi, last)});
            };
            take(0x20, '"' - 1);
            take('"' + 1, '\\' - 1);
            take('\\' + 1, kMaxCodePoint);
            for (std::uint32_t c = lo; c <= std::min<std::uint32_t>(r.hi, '\\'); ++c) {
                if (c >= 0x20 && c != '"' && c != '\\') continue;
                char text[8];
                constexpr std::string_view kBrief = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
                if (const auto i = kBrief.find(static_cast<char>(c)); c != 0 && i != kBrief.npos)
                    std::snprintf(text, sizeof text, "\\%c", kLetters[i]);
                else std::snprintf(text, sizeof text, "\\u%04x", c);
                escapes += cat(escapes.empty() ? "" : " | ", literal(text));
            }
        }
        if (escapes.empty()) return plain.empty() ? "" : set_of(plain);
        return cat("(", plain.empty() ? "" : set_of(plain), plain.empty() ? "" : " | ", escapes, ")");
    }
    std::string string(std::uint32_t arg) {
        const StringTerminal& terminal = program_.strings[arg];
        const bool is_counted = terminal.min > 0 || terminal.max != StringTerminal::kNoLimit;
        if (terminal.dfa == nullptr) {
            const std::string character = rule("character", [] { return json_set({{0, kMaxCodePoint}}); });
            const std::uint32_t max = terminal.max == StringTerminal::kNoLimit ? kNone : terminal.max;
            return max == 0 ? literal("\"") : character + counts(terminal.min, max) + " " + literal("\"");
        }
        std::shared_ptr<const Dfa> dfa = terminal.dfa;
        if (is_counted &&
            (terminal.distances.shortest[0] < terminal.min || terminal.distances.longest[0] > terminal.max))
            try {
                const auto max = terminal.max == StringTerminal::kNoLimit ? DfaDistances::kEndless : terminal.max;
                dfa = std::make_shared<const Dfa>(intersect(*dfa, dfa_of_length(terminal.min, max)));
            } catch (const Error&) {
                throw CannotPrint{};
            }
        kept_.push_back(dfa);
        return state(cat("s", arg), *dfa, 0, literal("\""), &json_set);
    }

    // ---- objects ----------------------------------------------------------------------------------------------------

    /// The declared names, by property.
    static void add_names(const ObjectTerminal& object, std::vector<std::string>& out) {
        using Edge = std::map<std::uint32_t, std::uint32_t>::const_iterator;
        struct Open {
            std::uint32_t node;
            Edge at;
            std::size_t n_bytes;  // of the name up to the node
        };
        std::string name;
        std::vector<Open> path{{0, object.trie[0].next.begin(), 0}};
        if (object.trie[0].property != kNone) out[object.trie[0].property] = name;
        while (!path.empty()) {
            Open& top = path.back();
            if (top.at == object.trie[top.node].next.end()) {
                path.pop_back();
                continue;
            }
            const auto [c, to] = *top.at++;
            name.resize(top.n_bytes);
            append_code_point(name, c);
            if (object.trie[to].property != kNone) out[object.trie[to].property] = name;
            path.push_back({to, object.trie[to].next.begin(), name.size()});
        }
    }
    const std::vector<std::string>& names_of(std::uint32_t arg) {
        auto& names = names_[arg];
        if (names.empty()) {
            names.resize(program_.objects[arg].is_required.size());
            add_names(program_.objects[arg], names);
        }
        return names;
    }
    std::string key(std::string_view name) {
        std::string out;
        for (const char32_t c : code_points(name)) {
            const std::string one = json_set({{c, c}});
            out += cat(out.empty() ? "" : " ", one);
        }
        return join(out.empty() ? "" : out, literal("\""));
    }
    static std::vector<char32_t> code_points(std::string_view text) {
        std::vector<char32_t> out;
        for (std::size_t i = 0; i < text.size();) {
            const auto lead = static_cast<unsigned char>(text[i++]);
            const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
            char32_t c = more == 0 ? lead : lead & (0x3F >> more);
            for (int k = 0; k < more && i < text.size(); ++k)
                c = c << 6 | (static_cast<unsigned char>(text[i++]) & 0x3F);
            out.push_back(c);
        }
        return out;
    }
    /// The members from property `next` on, after `count` others.
    std::string members(std::uint32_t arg, std::uint32_t next, std::uint32_t count) {
        const ObjectTerminal& object = program_.objects[arg];
        const std::uint32_t enough = object.max == kNone ? std::max(object.min, 1u) : object.max;
        count = std::min(count, enough);
        const std::string name = cat("o", arg, "-", next, "-", count);
        return rule(name, [this, arg, next, count, &object] {
            const auto n = static_cast<std::uint32_t>(object.is_required.size());
            const bool is_open = object.max == kNone || count < object.max;
            std::vector<std::string> parts;
            const std::string before = from(count == 0 ? object.first_entry : object.rest_entry);
            const auto add = [&](const std::string& text, std::uint32_t entry, std::uint32_t then) {
                parts.push_back(join(before, text) + " " + named(entry) + " " + members(arg, then, count + 1));
            };
            for (std::uint32_t p = next; is_open && p < n; ++p) {
                if (object.value_entries[p] != kNone) add(key(names_of(arg)[p]), object.value_entries[p], p + 1);
                if (object.is_required[p]) break;
            }
            const bool has_required = object.next_required[next] < n;
            if (is_open && !has_required && object.other_names != nullptr)
                for (const auto& [label, dfa] : others_of(arg))
                    add(state(cat("k", arg, "-", label), *dfa, 0, literal("\""), &json_set),
                        object.other_entries[label - 1], n);
            if (!has_required && count >= object.min) parts.emplace_back("\"\"");
            std::string out;
            for (const std::string& part : parts) out += cat(out.empty() ? "" : " | ", part);
            return out.empty() ? throw CannotPrint{} : out;
        });
    }
    /// Label → the undeclared names with that label.
    const std::map<std::uint32_t, std::shared_ptr<const Dfa>>& others_of(std::uint32_t arg) {
        const auto [at, is_new] = others_.try_emplace(arg);
        if (is_new) {
            const ObjectTerminal& object = program_.objects[arg];
            const auto& names = names_of(arg);
            const Dfa undeclared = complement(dfa_of_texts(std::vector<std::string_view>(names.begin(), names.end())));
            const std::set<std::uint32_t> labels(object.other_names->labels.begin(), object.other_names->labels.end());
            for (const std::uint32_t label : labels) {
                if (label == 0 || object.other_entries[label - 1] == kNone) continue;
                const Dfa* const both[] = {object.other_names.get(), &undeclared};
                Dfa dfa = combine(both, [label](auto of) { return of[0] == label && of[1] != 0 ? 1u : 0u; });
                if (!dfa.empty()) at->second.emplace(label, std::make_shared<const Dfa>(std::move(dfa)));
            }
        }
        return at->second;
    }

    static constexpr int kMaxInline = 64;  // nodes behind each other in one rule: each takes stack

    const Program& program_;
    std::size_t max_bytes_;
    int depth_ = 0;  // of behind()
    std::string out_;
    std::set<std::string> known_;
    std::vector<std::pair<std::string, Body>> pending_;
    std::vector<std::uint32_t> n_references_;
    std::vector<std::shared_ptr<const Dfa>> kept_;
    std::map<std::uint32_t, std::vector<std::string>> names_;
    std::map<std::uint32_t, std::map<std::uint32_t, std::shared_ptr<const Dfa>>> others_;
};

}  // namespace

namespace {

std::string print_with(std::string_view comment, const Program& program, std::size_t max_bytes) {
    try {
        return Printer(program, max_bytes).run(comment);
    } catch (const CannotPrint&) {
        return {};
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return {};
    }
}

}  // namespace

std::string print_gbnf(const Program& program, std::size_t max_bytes) {
    return print_with(
        "# The order of members is that of the schema. Strings are spelled without escapes where none are needed.\n"
        "# A name that is not declared may come twice.\n",
        program, max_bytes);
}

std::string print_gbnf(Dfa dfa, std::size_t max_bytes) {
    Program program;
    program.dfas.push_back(std::move(dfa));
    program.start = program.add({NodeKind::lexeme, program.add({NodeKind::ret})});
    return print_with("", program, max_bytes);
}

}  // namespace tinfer::grammar
