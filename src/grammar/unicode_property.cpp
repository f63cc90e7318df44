// SPDX-License-Identifier: MIT
#include <utf8proc.h>

#include <algorithm>

#include "grammar/char_set.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer::grammar {
namespace {

struct Category {
    std::string_view brief, name;
};
/// General categories and their groups, as ECMA-262 names them (table of PropertyValueAliases.txt).
constexpr Category kCategories[] = {{"L", "Letter"},
                                    {"LC", "Cased_Letter"},
                                    {"Lu", "Uppercase_Letter"},
                                    {"Ll", "Lowercase_Letter"},
                                    {"Lt", "Titlecase_Letter"},
                                    {"Lm", "Modifier_Letter"},
                                    {"Lo", "Other_Letter"},
                                    {"M", "Mark"},
                                    {"M", "Combining_Mark"},
                                    {"Mn", "Nonspacing_Mark"},
                                    {"Mc", "Spacing_Mark"},
                                    {"Me", "Enclosing_Mark"},
                                    {"N", "Number"},
                                    {"Nd", "Decimal_Number"},
                                    {"Nd", "digit"},
                                    {"Nl", "Letter_Number"},
                                    {"No", "Other_Number"},
                                    {"P", "Punctuation"},
                                    {"P", "punct"},
                                    {"Pc", "Connector_Punctuation"},
                                    {"Pd", "Dash_Punctuation"},
                                    {"Ps", "Open_Punctuation"},
                                    {"Pe", "Close_Punctuation"},
                                    {"Pi", "Initial_Punctuation"},
                                    {"Pf", "Final_Punctuation"},
                                    {"Po", "Other_Punctuation"},
                                    {"S", "Symbol"},
                                    {"Sm", "Math_Symbol"},
                                    {"Sc", "Currency_Symbol"},
                                    {"Sk", "Modifier_Symbol"},
                                    {"So", "Other_Symbol"},
                                    {"Z", "Separator"},
                                    {"Zs", "Space_Separator"},
                                    {"Zl", "Line_Separator"},
                                    {"Zp", "Paragraph_Separator"},
                                    {"C", "Other"},
                                    {"Cc", "Control"},
                                    {"Cc", "cntrl"},
                                    {"Cf", "Format"},
                                    {"Cs", "Surrogate"},
                                    {"Co", "Private_Use"},
                                    {"Cn", "Unassigned"}};

}  // namespace

std::optional<CharSet> unicode_property(std::string_view name) {
    if (name == "Any") return CharSet{{0, kMaxCodePoint}};
    if (name == "ASCII") return CharSet{{0, 0x7F}};
    for (const std::string_view prefix : {"General_Category=", "gc="})
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    const auto row = std::ranges::find_if(kCategories, [&](auto& c) { return c.brief == name || c.name == name; });
    if (row == std::end(kCategories)) return std::nullopt;
    const auto is_member = [&](std::string_view category) {
        if (row->brief == "LC") return category == "Lu" || category == "Ll" || category == "Lt";
        return category.starts_with(row->brief);
    };
    CharSet out;
    std::uint32_t first = 0;
    bool is_in = false;
    for (std::uint32_t c = 0; c <= kMaxCodePoint + 1; ++c) {
        const bool now = c <= kMaxCodePoint && is_member(utf8proc_category_string(static_cast<utf8proc_int32_t>(c)));
        if (now && !is_in) first = c;
        if (!now && is_in) out.add(first, c - 1);
        is_in = now;
    }
    return out;
}

const CharSet* RegexShare::property(std::string_view name) {
    if (const auto known = properties.find(name); known != properties.end()) return &known->second;
    n_steps += kMaxCodePoint / 4;  // it tests every code point
    auto set = unicode_property(name);
    return set ? &properties.emplace(std::string(name), std::move(*set)).first->second : nullptr;
}

}  // namespace tinfer::grammar
