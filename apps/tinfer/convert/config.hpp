// SPDX-License-Identifier: MIT
// config.json of a checkpoint: typed keys under their several names, each refused by name where it is wrong. What was
// asked for is remembered, so that keys which would change the computation and were not are found.
#pragma once

#include <tinfer/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tinfer::convert {

class Config {
public:
    using Names = std::initializer_list<std::string_view>;

    /// `text_config`, the language model of a multimodal one, is merged over the other keys. `file` is for messages.
    Config(Json json, std::string file);

    /// The value of the first of these names that is there and not null; null where none is.
    [[nodiscard]] const Json* find(Names names);
    /// Whole numbers from `least` to 2^31 - 1. Throw wrong_type, bad_key; the first also missing_key.
    [[nodiscard]] std::uint32_t count(Names names, std::uint32_t least = 1);
    [[nodiscard]] std::uint32_t count_or(Names names, std::uint32_t otherwise, std::uint32_t least = 1);
    [[nodiscard]] std::optional<std::uint32_t> find_count(Names names, std::uint32_t least = 1);
    /// Finite. Throw wrong_type, bad_key.
    [[nodiscard]] double number_or(Names names, double otherwise);
    [[nodiscard]] std::optional<double> find_number(Names names);
    [[nodiscard]] bool flag_or(std::string_view name, bool otherwise);
    [[nodiscard]] std::string text_or(Names names, std::string_view otherwise);

    /// Whether the key is there and null, which for some keys is not the same as absent.
    [[nodiscard]] bool is_null(std::string_view name) const;

    /// Refuse a model that is not computed as GGUF files of its kind are, naming the key: unsupported_arch.
    void must_be(std::string_view name, bool wanted, bool when_absent);
    void must_be_number(std::string_view name, std::uint32_t wanted, std::uint32_t when_absent);
    void must_be_one_of(Names names, Names wanted, std::string_view when_absent);
    void must_be_absent(std::string_view name);
    /// Refuses keys that nobody asked for and whose names say that they change the computation, unless they are null,
    /// false or neutral.
    void refuse_unknown() const;

    template <class... Parts>
    [[noreturn]] void refuse(ErrorCode code, std::string_view key, const Parts&... parts) const;
    [[nodiscard]] const Json& json() const noexcept { return json_; }  ///< all of it
    /// "config.json: 'hidden_size': "
    [[nodiscard]] std::string label(std::string_view key) const;

private:
    struct Found {
        std::string_view name;
        const Json* value;
    };
    [[nodiscard]] Found look_up(Names names);
    [[nodiscard]] std::uint32_t to_count(const Found& found, std::uint32_t least) const;
    [[nodiscard]] double to_number(const Found& found) const;

    Json json_;
    std::string file_;
    std::set<std::string, std::less<>> known_;
};

/// A value as it stands in a message: at most 60 bytes of its text.
[[nodiscard]] std::string value_text(const Json& value);

}  // namespace tinfer::convert

#include "convert/text.hpp"

template <class... Parts>
void tinfer::convert::Config::refuse(ErrorCode code, std::string_view key, const Parts&... parts) const {
    fail(code, label(key), parts...);
}
