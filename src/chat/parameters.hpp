// SPDX-License-Identifier: MIT
// The arguments of a filter, test, method or function by its parameters' names, as Python binds them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "chat/interpreter.hpp"

namespace tinfer::chat {

class Parameters {
public:
    /// `required`: how many of the names must be given. Throws RuntimeError for too many, too few, and unknown names.
    Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
               std::size_t required = 0);

    /// Null where the argument is left out.
    [[nodiscard]] const Value* operator[](std::size_t i) const noexcept { return values_[i]; }
    [[nodiscard]] bool has(std::size_t i) const noexcept { return values_[i] != nullptr; }
    [[nodiscard]] Value value(std::size_t i, Value otherwise = {}) const {
        return has(i) ? *values_[i] : std::move(otherwise);
    }
    [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
    [[nodiscard]] bool boolean(std::size_t i, bool otherwise) const { return has(i) ? truth(*values_[i]) : otherwise; }
    /// Of a string; RuntimeError for anything else. `otherwise` where it is left out.
    [[nodiscard]] const OriginText& text(std::size_t i, const OriginText& otherwise) const;
    [[nodiscard]] const OriginText& text(std::size_t i) const;

private:
    [[noreturn]] void wrong_type(std::size_t i, std::string_view expected) const;
    std::string_view function_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
};

}  // namespace tinfer::chat
