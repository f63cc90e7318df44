// SPDX-License-Identifier: MIT
#include "chat/filters.hpp"

#include <algorithm>
#include <array>

namespace tinfer::chat {
namespace {

struct FilterRow {
    std::string_view name;
    Filter filter;
};

constexpr std::array kFilters = std::to_array<FilterRow>({
    {"abs", filters::abs},
    {"attr", filters::attr},
    {"batch", filters::batch},
    {"capitalize", filters::capitalize},
    {"center", filters::center},
    {"count", filters::length},
    {"d", filters::default_value},
    {"default", filters::default_value},
    {"dictsort", filters::dictsort},
    {"e", filters::escape},
    {"escape", filters::escape},
    {"filesizeformat", filters::filesizeformat},
    {"first", filters::first},
    {"float", filters::to_float},
    {"forceescape", filters::forceescape},
    {"format", filters::format},
    {"from_json", filters::from_json},
    {"fromjson", filters::from_json},
    {"groupby", filters::groupby},
    {"indent", filters::indent},
    {"int", filters::to_int},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", filters::length},
    {"list", filters::list},
    {"lower", filters::lower},
    {"map", filters::map},
    {"max", filters::max},
    {"min", filters::min},
    {"pprint", filters::pprint},
    {"reject", filters::reject},
    {"rejectattr", filters::rejectattr},
    {"replace", filters::replace},
    {"reverse", filters::reverse},
    {"round", filters::round},
    {"safe", filters::safe},
    {"select", filters::select},
    {"selectattr", filters::selectattr},
    {"slice", filters::slice},
    {"sort", filters::sort},
    {"string", filters::string},
    {"striptags", filters::striptags},
    {"sum", filters::sum},
    {"title", filters::title},
    {"tojson", filters::tojson},
    {"trim", filters::trim},
    {"truncate", filters::truncate},
    {"unique", filters::unique},
    {"upper", filters::upper},
    {"urlencode", filters::urlencode},
    {"wordcount", filters::wordcount},
    {"wordwrap", filters::wordwrap},
    {"xmlattr", filters::xmlattr},
});
static_assert(std::ranges::is_sorted(kFilters, {}, &FilterRow::name));

}  // namespace

Filter find_filter(std::string_view name) noexcept {
    const auto it = std::ranges::lower_bound(kFilters, name, {}, &FilterRow::name);
    return it != kFilters.end() && it->name == name ? it->filter : nullptr;
}

std::vector<std::string_view> filter_names() {
    std::vector<std::string_view> out;
    for (const FilterRow& row : kFilters) out.push_back(row.name);
    return out;
}

}  // namespace tinfer::chat
