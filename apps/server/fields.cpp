// SPDX-License-Identifier: MIT
#include "fields.hpp"

#include <algorithm>
#include <cmath>
#include <new>

namespace tinfer::server {

namespace {

/// The nesting depth of lists and objects, without parsing the document.
int nesting(std::string_view text) {
    int depth = 0, deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return deepest;
}

std::string shown(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<std::int64_t>(value))
                                                                : Json(value).dump();
}

}  // namespace

Json parse_body(std::string_view body, int depth) {
    if (body.find_first_not_of(" \t\r\n") == body.npos)
        throw bad_request("", "the body is empty; a JSON object is expected", "invalid_json");
    if (const int found = nesting(body); found > depth)
        throw bad_request("", "the body is nested " + std::to_string(found) + " deep, limit " + std::to_string(depth),
                          "invalid_json");
    if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);    // RFC 8259 §8.1: may be ignored
    constexpr auto kAny = std::numeric_limits<std::size_t>::max();  // of what a body may be as a whole
    Json document;
    try {
        document = Json::parse(body, "the body is no JSON",
                               {.max_depth = static_cast<std::size_t>(depth), .max_bytes = kAny, .max_values = kAny});
    } catch (const tinfer::Error& error) {
        if (error.code() == tinfer::ErrorCode::out_of_memory) throw;
        throw bad_request("", error.what(), "invalid_json");
    }
    if (!document.is_object())
        throw bad_request("",
                          "the body is a JSON " + std::string(to_string(document.kind())) + ", an object is expected",
                          "invalid_json");
    return document;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)), unread_(&inner_) {
    if (!object_.is_object()) throw bad_request(path_, "an object is expected");
}

Fields::Fields(Fields& outer, const Json& object, std::string path) : Fields(object, std::move(path)) {
    unread_ = outer.unread_;
}

Fields::~Fields() {
    if (unread_ == &inner_) return;
    try {
        note_unread(*unread_);
    } catch (const std::bad_alloc&) {
        unread_->lacks_memory = true;
    }
}

std::string Fields::path(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void Fields::refuse(std::string_view name, const std::string& message) const { throw bad_request(path(name), message); }

const Json* Fields::find(std::string_view name) {
    known_.emplace(name);
    const Json* const found = object_.find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse(name, "true or false is expected");
    return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least, std::int64_t most) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const double real = value->is_number() ? value->get<double>() : 0.5;
    if (real != std::floor(real)) refuse(name, "a whole number is expected");
    const auto beyond = [&]() {
        refuse(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                         " is expected, not " + shown(real));
    };
    // Compared as integers, because doubles are not exact for the largest ones.
    if (value->is_natural() &&
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0)))
        beyond();
    if (!value->is_integer() && !(real >= -0x1p63 && real < 0x1p63)) beyond();
    const auto whole = value->get<std::int64_t>();
    if (whole < least || whole > most) beyond();
    return whole;
}

std::optional<double> Fields::number(std::string_view name, double least, double most) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(name, "a number is expected");
    const double real = value->get<double>();
    if (!(real >= least && real <= most))
        refuse(name, "a number from " + shown(least) + " to " + shown(most) + " is expected, not " + shown(real));
    return real;
}

std::optional<std::string> Fields::text(std::string_view name) {
    const Json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(name, "a text is expected");
    return value->get<std::string>();
}

std::optional<std::string> Fields::word(std::string_view name, std::span<const std::string_view> words) {
    auto value = text(name);
    if (!value || std::find(words.begin(), words.end(), *value) != words.end()) return value;
    std::string all;
    for (const auto candidate : words) all += (all.empty() ? "'" : ", '") + std::string(candidate) + "'";
    refuse(name, "'" + value->substr(0, 64) + "' is none of " + all);
}

std::vector<std::string> Fields::texts(std::string_view name, std::size_t most) {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    std::vector<std::string> result;
    if (!value->is_array()) refuse(name, "a text or a list of texts is expected");
    if (value->size() > most)
        refuse(name,
               "a list of at most " + std::to_string(most) + " is expected, not " + std::to_string(value->size()));
    for (const Json& item : *value) {
        if (!item.is_string()) refuse(name, "a text or a list of texts is expected");
        result.push_back(item.get<std::string>());
    }
    return result;
}

const Json* Fields::object(std::string_view name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_object()) refuse(name, "an object is expected");
    return value;
}

const Json* Fields::list(std::string_view name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_array()) refuse(name, "a list is expected");
    return value;
}

void Fields::take(std::span<const std::string_view> names) {
    for (const auto name : names) known_.emplace(name);
}

void Fields::note_unread(UnreadFields& to) const {
    for (const auto& [name, value] : object_.items()) {
        if (value.is_null() || known_.contains(name)) continue;
        ++to.n;
        if (to.first.size() < UnreadFields::kMaxNames) to.first.push_back({path(name), is_given_on_});
    }
}

UnreadFields Fields::unread() const {
    UnreadFields all;
    note_unread(all);
    if (inner_.lacks_memory) throw std::bad_alloc();
    all.n += inner_.n;
    for (const auto& field : inner_.first)
        if (all.first.size() < UnreadFields::kMaxNames) all.first.push_back(field);
    return all;
}

}  // namespace tinfer::server
