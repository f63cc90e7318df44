// SPDX-License-Identifier: MIT
// Binds the arguments of a filter, test, method or function to its parameters, as Python does.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "chat/interpreter.hpp"

namespace tinfer::chat {

class Parameters {
public:
    /// The first `required` parameters must be given. Throws RuntimeError for too many or too few arguments and unknown
    /// names.
    Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
               std::size_t required = 0);

    /// Null if the argument is absent.
    [[nodiscard]] const Value* operator[](std::size_t i) const noexcept { return values_[i]; }
    [[nodiscard]] bool has(std::size_t i) const noexcept { return values_[i] != nullptr; }
    [[nodiscard]] Value value(std::size_t i, Value otherwise = {}) const {
        return has(i) ? *values_[i] : std::move(otherwise);
    }
    [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
    [[nodiscard]] bool boolean(std::size_t i, bool otherwise) const { return has(i) ? truth(*values_[i]) : otherwise; }
    /// A string argument; RuntimeError for other types. `otherwise` if it is absent.
    [[nodiscard]] const OriginText& text(std::size_t i, const OriginText& otherwise) const;
    [[nodiscard]] const OriginText& text(std::size_t i) const;

private:
    [[noreturn]] void wrong_type(std::size_t i, std::string_view expected) const;
    std::string_view function_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
};

}  // namespace tinfer::chat
