// SPDX-License-Identifier: MIT
#include "convert/config.hpp"

#include <algorithm>
#include <cmath>

#include "convert/checkpoint_json.hpp"

namespace tinfer::convert {

namespace {

std::string names_text(Config::Names names) {
    std::string text;
    for (const std::string_view name : names) text += cat(text.empty() ? "'" : ", '", name, "'");
    return text;
}

/// Factors and divisors, whose neutral value is 1, and what has none.
constexpr std::string_view kFactorEndings[] = {"_multiplier", "_scale", "_scaling", "_scaling_factor", "_scalar"};
constexpr std::string_view kRefusedParts[] = {"softcap", "clip_qkv", "attention_chunk_size", "qkv_clip"};

bool is_neutral(std::string_view key, const Json& value) {
    if (value.is_null() || (value.is_boolean() && !value.boolean())) return true;
    const auto ends = [&](std::string_view ending) { return key.ends_with(ending); };
    if (std::ranges::any_of(kFactorEndings, ends)) return value.is_number() && value.get<double>() == 1.0;
    if (key == "partial_rotary_factor") return value.is_number() && value.get<double>() == 1.0;
    if (key == "is_causal") return value.is_boolean();  // false was refused where it is asked for
    const auto holds = [&](std::string_view part) { return key.find(part) != key.npos; };
    return std::ranges::none_of(kRefusedParts, holds);
}

}  // namespace

std::string value_text(const Json& value) {
    const std::string text = value.dump();
    return text.size() > 60 ? shown(text.substr(0, 60)) + "…" : shown(text);
}

Config::Config(Json json, std::string file) : json_(std::move(json)), file_(std::move(file)) {
    if (const Json* inner = json_.find("text_config"); inner != nullptr && inner->is_object()) {
        Json merged = *inner;
        if (const Json* own = merged.find("architectures"); own != nullptr) merged.erase("architectures");
        json_.erase("text_config");
        for (auto& [key, value] : merged.items())
            if (!value.is_null() || !json_.contains(key)) json_[key] = std::move(value);
    }
}

std::string Config::label(std::string_view key) const { return cat(file_, ": '", key, "': "); }

Config::Found Config::look_up(Names names) {
    Found found{*names.begin(), nullptr};
    for (const std::string_view name : names) {
        known_.emplace(name);
        const Json* value = json_.find(name);
        if (found.value == nullptr && value != nullptr && !value->is_null()) found = {name, value};
    }
    return found;
}

const Json* Config::find(Names names) { return look_up(names).value; }

bool Config::is_null(std::string_view name) const {
    const Json* value = json_.find(name);
    return value != nullptr && value->is_null();
}

std::uint32_t Config::to_count(const Found& found, std::uint32_t least) const {
    const auto number = whole_number(*found.value);
    if (!number)
        refuse(ErrorCode::wrong_type, found.name, "is ", value_text(*found.value), ", a whole number is expected");
    if (*number < least || *number > 0x7FFFFFFF)
        refuse(ErrorCode::bad_key, found.name, "is ", *number, ", ", least, " to 2147483647 are expected");
    return static_cast<std::uint32_t>(*number);
}

double Config::to_number(const Found& found) const {
    if (!found.value->is_number())
        refuse(ErrorCode::wrong_type, found.name, "is ", value_text(*found.value), ", a number is expected");
    const double number = found.value->get<double>();
    if (!std::isfinite(static_cast<float>(number)))
        refuse(ErrorCode::bad_key, found.name, "is ", value_text(*found.value), ", beyond 32-bit floats");
    return number;
}

std::uint32_t Config::count(Names names, std::uint32_t least) {
    const Found found = look_up(names);
    if (found.value == nullptr) fail(ErrorCode::missing_key, file_, ": ", names_text(names), " is missing");
    return to_count(found, least);
}

std::optional<std::uint32_t> Config::find_count(Names names, std::uint32_t least) {
    const Found found = look_up(names);
    return found.value == nullptr ? std::nullopt : std::optional(to_count(found, least));
}

std::uint32_t Config::count_or(Names names, std::uint32_t otherwise, std::uint32_t least) {
    return find_count(names, least).value_or(otherwise);
}

std::optional<double> Config::find_number(Names names) {
    const Found found = look_up(names);
    return found.value == nullptr ? std::nullopt : std::optional(to_number(found));
}

double Config::number_or(Names names, double otherwise) { return find_number(names).value_or(otherwise); }

bool Config::flag_or(std::string_view name, bool otherwise) {
    const Json* value = find({name});
    if (value == nullptr) return otherwise;
    if (!value->is_boolean())
        refuse(ErrorCode::wrong_type, name, "is ", value_text(*value), ", true or false is expected");
    return value->boolean();
}

std::string Config::text_or(Names names, std::string_view otherwise) {
    const Found found = look_up(names);
    if (found.value == nullptr) return std::string(otherwise);
    if (!found.value->is_string())
        refuse(ErrorCode::wrong_type, found.name, "is ", value_text(*found.value), ", a text is expected");
    return found.value->string();
}

void Config::must_be(std::string_view name, bool wanted, bool when_absent) {
    if (flag_or(name, when_absent) != wanted)
        refuse(ErrorCode::unsupported_arch, name, "must be ", wanted ? "true" : "false", " to be converted");
}

void Config::must_be_number(std::string_view name, std::uint32_t wanted, std::uint32_t when_absent) {
    const std::uint32_t number = find_count({name}, 0).value_or(when_absent);
    if (number != wanted)
        refuse(ErrorCode::unsupported_arch, name, "is ", number, ", must be ", wanted, " to be converted");
}

void Config::must_be_one_of(Names names, Names wanted, std::string_view when_absent) {
    const std::string text = text_or(names, when_absent);
    if (std::ranges::find(wanted, text) != wanted.end()) return;
    refuse(ErrorCode::unsupported_arch, look_up(names).name, "is '", shown(text), "', must be one of ",
           names_text(wanted), " to be converted");
}

void Config::must_be_absent(std::string_view name) {
    const Json* value = find({name});
    if (value == nullptr || (value->is_boolean() && !value->boolean())) return;
    refuse(ErrorCode::unsupported_arch, name, "is ", value_text(*value), ", must be null to be converted");
}

void Config::refuse_unknown() const {
    for (const auto& [key, value] : json_.items())
        if (!known_.contains(key) && !is_neutral(key, value))
            refuse(ErrorCode::unsupported_arch, key, "is ", value_text(value),
                   ", which would change the computation and is not known in models of this class");
}

}  // namespace tinfer::convert
