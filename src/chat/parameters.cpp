// SPDX-License-Identifier: MIT
#include "chat/parameters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "chat/runtime_error.hpp"

namespace tinfer::chat {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size()) {
    if (arguments.positional.size() > names_.size())
        runtime_error(
            cat(function, "() takes at most ", names_.size(), " arguments, not ", arguments.positional.size()));
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
        const auto it = std::ranges::find(names_, name);
        if (it == names_.end()) runtime_error(cat(function, "() has no argument '", escaped(name), "'"));
        const Value*& place = values_[static_cast<std::size_t>(it - names_.begin())];
        if (place != nullptr) runtime_error(cat(function, "() got two values for '", name, "'"));
        place = &value;
    }
    for (std::size_t i = 0; i < required; ++i)
        if (values_[i] == nullptr) runtime_error(cat(function, "() needs the argument '", names_[i], "'"));
}

void Parameters::wrong_type(std::size_t i, std::string_view expected) const {
    runtime_error(
        cat("the argument '", names_[i], "' of ", function_, "() is a ", type_name(*values_[i]), ", not ", expected));
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t otherwise) const {
    if (!has(i)) return otherwise;
    const auto integer = values_[i]->integer();
    if (!integer) wrong_type(i, "an integer");
    return *integer;
}

const OriginText& Parameters::text(std::size_t i) const {
    if (!values_[i]->is_string()) wrong_type(i, "a string");
    return values_[i]->text();
}

const OriginText& Parameters::text(std::size_t i, const OriginText& otherwise) const {
    return has(i) ? text(i) : otherwise;
}

}  // namespace tinfer::chat
