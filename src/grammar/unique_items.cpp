// SPDX-License-Identifier: MIT
// Arrays whose elements differ: `uniqueItems` out of few values.
#include <bit>

#include "base/error.hpp"
#include "grammar/emit.hpp"

namespace tinfer::grammar {
namespace {

constexpr int kMaxIntegers = 4096;       // widest range of integers that is enumerated
constexpr std::size_t kMaxUnrolled = 8;  // values of uniqueItems up to which GBNF can express it

/// All values of the shapes, without duplicates; nullopt if there are too many to enumerate.
std::optional<Shapes> enumerate_values(const Shapes& shapes) {
    Shapes values;
    for (const Shape& shape : shapes) {
        Shape one = shape;
        if (shape.kind == JsonKind::null) values.push_back(one);
        else if (shape.kind == JsonKind::boolean) {
            one.can_be_false = false;
            if (shape.can_be_true) values.push_back(one);
            one.can_be_false = true, one.can_be_true = false;
            if (shape.can_be_false) values.push_back(one);
        } else if (shape.kind == JsonKind::string && shape.string.texts) {
            for (const std::string& text : *shape.string.texts)
                if (has_form(shape.string, text)) one.string = {.texts = std::vector{text}}, values.push_back(one);
        } else if (shape.kind == JsonKind::number && shape.number.min && shape.number.max) {
            const auto& n = shape.number;
            if (*n.min == *n.max) {
                values.push_back(one);
            } else if (n.is_integer && n.min->whole.size() < 10 && n.max->whole.size() < 10) {
                const int lo = std::stoi(n.min->whole) * (n.min->is_negative ? -1 : 1) - 1;
                const int hi = std::stoi(n.max->whole) * (n.max->is_negative ? -1 : 1) + 1;
                if (hi - lo > kMaxIntegers) return std::nullopt;
                for (int v = lo; v <= hi; ++v) {
                    const Decimal decimal = *Decimal::parse(std::to_string(v));
                    if (!contains(n, std::to_string(v))) continue;
                    one.number = {.min = decimal, .max = decimal, .is_integer = true, .is_plain = n.is_plain};
                    values.push_back(one);
                    if (values.size() > ChoiceTerminal::kMax) return std::nullopt;
                }
            } else {
                return std::nullopt;
            }
        } else {
            return std::nullopt;
        }
        if (values.size() > ChoiceTerminal::kMax) return std::nullopt;
    }
    const auto is_same = [](const Shape& a, const Shape& b) {
        if (a.kind != b.kind) return false;
        if (a.kind == JsonKind::boolean) return a.can_be_true == b.can_be_true;
        if (a.kind == JsonKind::string) return *a.string.texts == *b.string.texts;
        return a.kind == JsonKind::null || compare(*a.number.min, *b.number.min) == 0;
    };
    for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t k = i + 1; k < values.size();)
            if (is_same(values[i], values[k])) values.erase(values.begin() + static_cast<std::ptrdiff_t>(k));
            else ++k;
    return values;
}

}  // namespace

/// `uniqueItems` with few possible values: the values used so far are a state or, if there are more, bits of a frame.
std::uint32_t Emitter::unique_array(const ArraySpec& spec, const Conjunction& from) {
    const auto refuse = [&](std::string_view reason = {}) {
        normalizer_.refuse(where(from), "uniqueItems",
                           reason.empty()
                               ? cat("is supported for elements out of at most ", ChoiceTerminal::kMax, " values")
                               : std::string(reason));
        ArraySpec without = spec;
        without.is_unique = false;
        return without.contains.empty() ? array(without, from) : counted_array(without, from);
    };
    for (const auto& layer : spec.layers)
        if (!layer.prefix.empty()) return refuse("is not supported beside elements that have schemas by their place");
    if (!spec.contains.empty()) return refuse("is not supported beside contains");
    const auto enumerated = enumerate_values(normalizer_.shapes(element_terms(spec, 0)));
    if (!enumerated) return refuse();
    const Shapes& values = *enumerated;
    const std::uint32_t close = program_->add_text("]", ret_);
    std::vector<std::uint32_t> entries;
    for (const Shape& value : values) entries.push_back(shape(value, from));
    if (values.size() > kMaxUnrolled) {
        std::erase(entries, kNone);
        if (entries.size() < spec.min) return kNone;
        ChoiceTerminal choice;
        for (const std::uint32_t entry : entries) {
            choice.first.push_back(program_->add_call(entry, space(ret_)));
            choice.rest.push_back(program_->add_text(",", gap(choice.first.back())));
        }
        Node node{NodeKind::choice, close};
        node.arg = static_cast<std::uint32_t>(program_->choices.size());
        node.min = spec.min;
        node.max = spec.max;
        program_->choices.push_back(std::move(choice));
        return program_->add_text("[", space(program_->add(node)));
    }
    std::vector<std::uint32_t> nodes(std::size_t{1} << values.size());
    for (auto& node : nodes) node = placeholder();
    for (std::uint32_t given = 0; given < nodes.size(); ++given) {
        std::vector<std::uint32_t> to;
        const auto n = static_cast<std::uint32_t>(std::popcount(given));
        if (n >= spec.min) to.push_back(close);
        for (std::uint32_t i = 0; i < values.size() && n < spec.max; ++i) {
            if ((given >> i & 1) != 0 || entries[i] == kNone) continue;
            const std::uint32_t entry = program_->add_call(entries[i], space(nodes[given | 1u << i]));
            to.push_back(n == 0 ? entry : program_->add_text(",", gap(entry)));
        }
        program_->set_split(nodes[given], to);
    }
    return program_->add_text("[", space(nodes[0]));
}

}  // namespace tinfer::grammar
