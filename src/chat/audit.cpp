// SPDX-License-Identifier: MIT
// A small taint analysis of a template. Names that hold message text are followed through assignments, loops and macros
// up to a fixed point; then every place where such a value decides something is reported.
#include "tinfer/chat.hpp"

#include <algorithm>
#include <set>
#include <span>

#include "base/error.hpp"
#include "chat/ast.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

std::string_view to_string(AuditKind kind) noexcept {
    switch (kind) {
        case AuditKind::literal: return "literal";
        case AuditKind::content: return "content";
        case AuditKind::changed: return "changed";
        case AuditKind::position: return "position";
        case AuditKind::clock: return "clock";
    }
    return "unknown";
}

namespace chat {
namespace {

constexpr std::string_view kTextFields[] = {"content", "text", "reasoning_content", "thinking", "arguments", "name"};
constexpr std::string_view kOfType[] = {"defined",  "undefined", "none",   "string",  "mapping", "iterable",
                                        "sequence", "boolean",   "number", "integer", "float",   "callable"};
constexpr std::string_view kWhole[] = {"tojson", "string", "map", "join", "selectattr", "rejectattr", "groupby", "sum"};
constexpr std::string_view kChanging[] = {"replace", "format", "translate", "removeprefix", "removesuffix"};
constexpr std::string_view kCounting[] = {"index", "index0", "revindex", "revindex0", "length", "depth"};

template <class Words>
bool is_one_of(std::string_view word, const Words& words) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

const std::string* text_literal(const ExpressionPtr& expression) {
    if (!expression) return nullptr;
    const auto* literal = std::get_if<Literal>(&expression->node);
    return literal == nullptr ? nullptr : std::get_if<std::string>(&literal->value);
}

class Audit {
public:
    explicit Audit(std::string_view source) : source_(source), body_(parse(source)) {
        message_names_ = {"messages", "loop_messages"};
        for (std::size_t before = ~std::size_t{0};
             before != text_names_.size() + message_names_.size() + count_names_.size();) {
            before = text_names_.size() + message_names_.size() + count_names_.size();
            walk(body_);
        }
        reports_ = true;
        walk(body_);
        std::stable_sort(findings.begin(), findings.end(),
                         [](const AuditFinding& a, const AuditFinding& b) { return a.line < b.line; });
    }

    std::vector<AuditFinding> findings;

private:
    // ---- what an expression depends on

    struct About {
        bool text = false;      // text of messages
        bool messages = false;  // messages, or one of them
        bool count = false;     // a number of messages
        About& operator|=(const About& o) {
            text |= o.text, messages |= o.messages, count |= o.count;
            return *this;
        }
    };

    About about(const ExpressionPtr& e) const { return e ? about(*e) : About{}; }
    About about(const Expression& e) const {
        return std::visit([&](const auto& node) { return about_node(node); }, e.node);
    }
    About about_node(const Literal&) const { return {}; }
    About about_node(const Variable& v) const {
        return {text_names_.contains(v.name), message_names_.contains(v.name), count_names_.contains(v.name)};
    }
    template <class List>
    About about_all(const List& list) const {
        About out;
        for (const auto& item : list) out |= about(item);
        return out;
    }
    About about_node(const ListLiteral& n) const { return about_all(n.items); }
    About about_node(const MapLiteral& n) const {
        About out;
        for (const auto& [key, value] : n.entries) (out |= about(key)) |= about(value);
        return out;
    }
    template <class Chain>
    About about_chain(const Chain& n) const {
        About out = about(n.first);
        for (const Link& link : n.links) out |= about(link.operand);
        return out;
    }
    About about_node(const Arithmetic& n) const { return about_chain(n); }
    About about_node(const Comparison& n) const { return about_chain(n); }
    About about_node(const Concatenation& n) const { return about_all(n.parts); }
    About about_node(const Unary& n) const { return about(n.operand); }
    About about_node(const Logical& n) const { return about_all(n.parts); }
    About about_node(const Conditional& n) const {
        About out = about(n.value);
        return (out |= about(n.condition)) |= about(n.otherwise);
    }
    About about_arguments(const CallArguments& a) const {
        About out = about_all(a.positional);
        for (const auto& [name, value] : a.named) out |= about(value);
        return (out |= about(a.more_positional)) |= about(a.more_named);
    }
    About about_node(const Postfix& n) const {
        About out = about(n.subject);
        const auto* variable = std::get_if<Variable>(&n.subject->node);
        for (const Suffix& s : n.suffixes) {
            const std::string* key = s.kind == Suffix::Kind::item ? text_literal(s.begin) : nullptr;
            const std::string_view name = key != nullptr ? std::string_view(*key) : std::string_view(s.name);
            switch (s.kind) {
                case Suffix::Kind::attribute:
                case Suffix::Kind::item:
                    if (variable != nullptr && variable->name == "loop") out.count |= is_one_of(name, kCounting);
                    if (out.messages && is_one_of(name, kTextFields)) out.text = true;
                    if (text_names_.contains(name) && variable != nullptr && !out.messages)
                        out.text = true;  // of a namespace
                    if (count_names_.contains(name) && variable != nullptr) out.count = true;
                    if (key == nullptr && s.begin) out |= about(s.begin);
                    break;
                case Suffix::Kind::call:
                case Suffix::Kind::filter:
                    out |= about_arguments(s.arguments);
                    if (s.kind == Suffix::Kind::filter) {
                        if (out.messages && is_one_of(name, kWhole)) out.text = true;
                        if (name == "length" || name == "count") {
                            out.count |= out.messages && !out.text;
                        }
                    } else if (out.messages && !s.arguments.positional.empty()) {
                        const auto* argument = text_literal(s.arguments.positional[0]);
                        if (argument != nullptr && is_one_of(*argument, kTextFields))
                            out.text = true;  // get('content')
                    }
                    break;
                case Suffix::Kind::test:
                case Suffix::Kind::not_test:
                    if (is_one_of(name, kOfType)) return {};  // type tests do not reveal the text
                    out |= about_arguments(s.arguments);
                    break;
                case Suffix::Kind::slice: break;
            }
        }
        return out;
    }

    // ---- traversal

    void report(AuditKind kind, Place place, std::string_view text = {}) {
        if (!reports_) return;
        AuditFinding finding{kind, place.line, std::string(text)};
        if (text.empty()) {
            std::string_view rest = source_;
            for (std::uint32_t i = 1; i < place.line; ++i)
                rest.remove_prefix(std::min(rest.find('\n') + 1, rest.size()));
            rest = rest.substr(0, rest.find('\n'));
            const auto begin = rest.find_first_not_of(" \t");
            finding.text = begin == rest.npos ? "" : rest.substr(begin);
        }
        for (const auto& before : findings)
            if (before.kind == kind && before.line == finding.line && before.text == finding.text) return;
        findings.push_back(std::move(finding));
    }

    /// A condition: its value decides what is written.
    void decides(const ExpressionPtr& condition) {
        if (!condition) return;
        visit(*condition, false);
        decide(*condition);
    }
    void decide(const Expression& e) {
        if (const auto* logical = std::get_if<Logical>(&e.node)) {
            for (const auto& part : logical->parts) decide(*part);
            return;
        }
        if (const auto* unary = std::get_if<Unary>(&e.node)) return decide(*unary->operand);
        const About what = about(e);
        // Testing whether there is a text at all is common and harmless.
        if (what.text && !is_plain_value(e)) report(AuditKind::content, e.place);
        if (what.count) report(AuditKind::position, e.place);
    }
    /// m.content, content, m['content'] and trimmed ones: as conditions they test only whether there is a text.
    static bool is_plain_value(const Expression& e) {
        if (std::holds_alternative<Variable>(e.node)) return true;
        const auto* postfix = std::get_if<Postfix>(&e.node);
        if (postfix == nullptr) return false;
        return std::all_of(postfix->suffixes.begin(), postfix->suffixes.end(), [](const Suffix& s) {
            if (s.kind == Suffix::Kind::attribute) return true;
            if (s.kind == Suffix::Kind::item) return text_literal(s.begin) != nullptr;
            if (s.kind == Suffix::Kind::filter) return s.name == "trim" || s.name == "length" || s.name == "string";
            return s.kind == Suffix::Kind::call && s.arguments.positional.empty() && s.arguments.named.empty();
        });
    }

    /// Visits an expression; `written`: its value becomes text of the prompt.
    void visit(const ExpressionPtr& e, bool written) {
        if (e) visit(*e, written);
    }
    void visit(const Expression& e, bool written) {
        if (const auto* n = std::get_if<Literal>(&e.node)) {
            const auto* text = std::get_if<std::string>(&n->value);
            if (written && text != nullptr) literal(*text, e.place);
        } else if (const auto* list = std::get_if<ListLiteral>(&e.node)) {
            for (const auto& item : list->items) visit(item, written);
        } else if (const auto* map = std::get_if<MapLiteral>(&e.node)) {
            for (const auto& [key, value] : map->entries) visit(key, false), visit(value, written);
        } else if (const auto* postfix = std::get_if<Postfix>(&e.node)) {
            visit_postfix(*postfix, written);
        } else if (const auto* sum = std::get_if<Arithmetic>(&e.node)) {
            visit(sum->first, written);
            for (const Link& link : sum->links) visit(link.operand, written);
        } else if (const auto* comparison = std::get_if<Comparison>(&e.node)) {
            visit(comparison->first, false);
            for (const Link& link : comparison->links) visit(link.operand, false);
        } else if (const auto* joined = std::get_if<Concatenation>(&e.node)) {
            for (const auto& part : joined->parts) visit(part, written);
        } else if (const auto* unary = std::get_if<Unary>(&e.node)) {
            visit(unary->operand, false);
        } else if (const auto* logical = std::get_if<Logical>(&e.node)) {
            // `a or b` as a value: all operands but the last are conditions
            for (std::size_t i = 0; i < logical->parts.size(); ++i) {
                visit(logical->parts[i], written);
                if (written && i + 1 < logical->parts.size()) decide(*logical->parts[i]);
            }
        } else if (const auto* choice = std::get_if<Conditional>(&e.node)) {
            decides(choice->condition);
            visit(choice->value, written);
            visit(choice->otherwise, written);
        }
    }

    void visit_postfix(const Postfix& n, bool written) {
        visit(n.subject, written);
        const auto* variable = std::get_if<Variable>(&n.subject->node);
        const bool has_text = about_node(n).text;
        for (std::size_t i = 0; i < n.suffixes.size(); ++i) {
            const Suffix& s = n.suffixes[i];
            if (s.kind == Suffix::Kind::call && i == 0 && variable != nullptr) {
                if (variable->name == "strftime_now") report(AuditKind::clock, s.place);
                call(variable->name, s.arguments);
            }
            if (s.kind == Suffix::Kind::item && s.begin) {
                if (about(s.begin).text) report(AuditKind::content, s.place);
                const bool names_message = variable != nullptr && message_names_.contains(variable->name);
                const auto* index = std::get_if<Literal>(&s.begin->node);
                const auto* number = index == nullptr ? nullptr : std::get_if<std::int64_t>(&index->value);
                if (i == 0 && names_message && number != nullptr && *number > 1) report(AuditKind::position, s.place);
            }
            const bool is_method = s.kind == Suffix::Kind::attribute && i + 1 < n.suffixes.size() &&
                                   n.suffixes[i + 1].kind == Suffix::Kind::call;
            if ((is_method || s.kind == Suffix::Kind::filter) && has_text && is_one_of(s.name, kChanging))
                report(AuditKind::changed, s.place);
            if (is_method && s.name == "get" && !n.suffixes[i + 1].arguments.positional.empty() &&
                about(n.suffixes[i + 1].arguments.positional[0]).text)
                report(AuditKind::content, s.place);
            if (s.kind == Suffix::Kind::filter && has_text &&
                is_one_of(s.name,
                          std::initializer_list<std::string_view>{"selectattr", "rejectattr", "select", "reject"}) &&
                s.arguments.positional.size() > 1) {
                const auto* key = text_literal(s.arguments.positional[0]);
                const auto* test = text_literal(s.arguments.positional[1]);
                if (key != nullptr && is_one_of(*key, kTextFields) && (test == nullptr || !is_one_of(*test, kOfType)))
                    report(AuditKind::content, s.place);
            }
            const bool is_write = s.kind == Suffix::Kind::filter || s.kind == Suffix::Kind::call;
            for (const auto& argument : s.arguments.positional) visit(argument, is_write && written);
            for (const auto& [name, argument] : s.arguments.named) visit(argument, is_write && written);
            visit(s.begin, false);
        }
    }

    void literal(std::string_view text, Place place) {
        const auto begin = text.find_first_not_of(" \t\r\n");
        if (begin != text.npos) report(AuditKind::literal, place, text);
    }

    /// Parameters of a macro depend on whatever its arguments depend on.
    void call(const std::string& name, const CallArguments& arguments) {
        const auto found =
            std::find_if(macros_.begin(), macros_.end(), [&](const Macro* m) { return m->name == name; });
        if (found == macros_.end()) return;
        for (std::size_t i = 0; i < std::min(arguments.positional.size(), (*found)->parameters.size()); ++i)
            learn((*found)->parameters[i].name, about(arguments.positional[i]));
        for (const auto& [parameter, value] : arguments.named) learn(parameter, about(value));
    }

    void learn(const std::string& name, const About& what) {
        if (name.empty()) return;
        if (what.text) text_names_.insert(name);
        if (what.messages && !what.text) message_names_.insert(name);
        if (what.count) count_names_.insert(name);
    }
    void learn(const Target& target, const About& what) {
        learn(target.attribute.empty() ? target.name : target.attribute, what);
        for (const Target& item : target.items) learn(item, what);
    }

    void walk(const Body& body) {
        for (const auto& statement : body)
            std::visit([&](const auto& node) { walk_node(node, statement->place); }, statement->node);
    }
    void walk_node(const Data& n, Place place) { literal(n.text, place); }
    void walk_node(const Output& n, Place) { visit(n.value, true); }
    void walk_node(const If& n, Place) {
        for (const auto& branch : n.branches) {
            decides(branch.condition);
            walk(branch.body);
        }
        walk(n.otherwise);
    }
    void walk_node(const For& n, Place) {
        visit(n.values, false);
        const About what = about(n.values);
        learn(n.target, {what.text && !what.messages, what.messages, false});
        decides(n.condition);
        walk(n.body);
        walk(n.otherwise);
    }
    void walk_node(const Set& n, Place) {
        visit(n.value, true);
        const About what = about(n.value);
        learn(n.target, {what.text, what.messages && !what.text, what.count && !what.text});
    }
    void walk_node(const SetBlock& n, Place) {
        filters(n.filters);
        walk(n.body);
    }
    void walk_node(const Macro& n, Place) {
        if (std::find(macros_.begin(), macros_.end(), &n) == macros_.end()) macros_.push_back(&n);
        for (const auto& parameter : n.parameters) visit(parameter.otherwise, true);
        walk(n.body);
    }
    void walk_node(const CallBlock& n, Place place) {
        visit(n.call, true);
        walk_node(n.caller, place);
    }
    void walk_node(const FilterBlock& n, Place) {
        filters(n.filters);
        walk(n.body);
    }
    void walk_node(const With& n, Place) {
        for (const auto& [target, value] : n.bindings) {
            visit(value, true);
            learn(target, about(value));
        }
        walk(n.body);
    }
    void walk_node(const Block& n, Place) { walk(n.body); }
    void walk_node(const Break&, Place) {}
    void walk_node(const Continue&, Place) {}

    void filters(const std::vector<FilterUse>& uses) {
        for (const FilterUse& use : uses) {
            if (is_one_of(use.name, kChanging)) report(AuditKind::changed, use.place);
            for (const auto& argument : use.arguments.positional) visit(argument, true);
        }
    }

    std::string_view source_;
    Body body_;
    std::set<std::string, std::less<>> text_names_, message_names_, count_names_;
    std::vector<const Macro*> macros_;
    bool reports_ = false;
};

}  // namespace
}  // namespace chat

TemplateAudit audit(const ChatTemplate& chat_template, const ChatTemplate* expected) {
    return reporting_memory("template: an allocation failed", [&] {
        const std::string_view source = chat_template.source();
        TemplateAudit out{to_hex(sha256(std::as_bytes(std::span(source)))), chat::Audit(source).findings, {}};
        if (expected == nullptr) return out;
        const auto known = chat::Audit(expected->source()).findings;
        for (const AuditFinding& finding : out.findings) {
            const bool is_known = std::any_of(known.begin(), known.end(), [&](const AuditFinding& k) {
                return k.kind == finding.kind && k.text == finding.text;
            });
            if (!is_known) out.unexpected.push_back(finding);
        }
        return out;
    });
}

}  // namespace tinfer
