// SPDX-License-Identifier: MIT
#include "fields.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

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

/// A repeated name keeps its first position and its last value, as in json::parse(). That searches linearly for each
/// name; here they are sorted once.
void merge_repeated(json::object_t& object) {
    json::object_t::Container& entries = object;
    if (entries.size() < 2) return;
    const auto name = [&](std::uint32_t at) -> const std::string& { return entries[at].first; };
    std::vector<std::uint32_t> order(entries.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        const int which = name(a).compare(name(b));
        return which != 0 ? which < 0 : a < b;
    });
    std::vector<bool> is_again(entries.size());
    bool has_repeated = false;
    for (std::size_t first = 0, next = 1; first < order.size(); first = next++) {
        while (next < order.size() && name(order[next]) == name(order[first])) is_again[order[next++]] = true;
        if (next == first + 1) continue;
        entries[order[first]].second = std::move(entries[order[next - 1]].second);
        has_repeated = true;
    }
    if (!has_repeated) return;
    json::object_t::Container kept;
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (!is_again[i]) kept.emplace_back(entries[i].first, std::move(entries[i].second));
    entries.swap(kept);
}

/// Builds the same document as json::parse(), in almost linear time.
class DocumentBuilder final : public json::json_sax_t {
public:
    json document;
    std::string error;

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t&) override { return add(value); }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; }  // does not occur in text
    bool start_object(std::size_t) override { return open(json::value_t::object); }
    bool key(string_t& value) override {
        name_ = std::move(value);
        return true;
    }
    bool end_object() override {
        merge_repeated(open_.back()->get_ref<json::object_t&>());
        open_.pop_back();
        return true;
    }
    bool start_array(std::size_t) override { return open(json::value_t::array); }
    bool end_array() override {
        open_.pop_back();
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const json::exception& found) override {
        error = found.what();
        return false;
    }

private:
    json& place(json value) {
        if (open_.empty()) return document = std::move(value);
        if (auto* list = open_.back()->get_ptr<json::array_t*>()) return list->emplace_back(std::move(value));
        return open_.back()->get_ref<json::object_t&>().emplace_back(std::move(name_), std::move(value)).second;
    }
    bool add(json value) {
        (void)place(std::move(value));
        return true;
    }
    bool open(json::value_t type) {
        open_.push_back(&place(json(type)));
        return true;
    }

    std::vector<json*> open_;  // open lists and objects; one with an open child does not change
    std::string name_;
};

std::string shown(double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? std::to_string(static_cast<std::int64_t>(value))
                                                                : json(value).dump();
}

}  // namespace

json parse_body(std::string_view body, int depth) {
    if (body.find_first_not_of(" \t\r\n") == body.npos)
        throw bad_request("", "the body is empty; a JSON object is expected", "invalid_json");
    if (const int found = nesting(body); found > depth)
        throw bad_request("", "the body is nested " + std::to_string(found) + " deep, limit " + std::to_string(depth),
                          "invalid_json");
    DocumentBuilder builder;
    if (!json::sax_parse(body, &builder)) {
        std::string_view why = builder.error;
        if (const auto at = why.find("] "); at != why.npos) why.remove_prefix(at + 2);
        throw bad_request("", "the body is no JSON: " + std::string(why), "invalid_json");
    }
    json& document = builder.document;
    if (!document.is_object())
        throw bad_request("", "the body is a JSON " + std::string(document.type_name()) + ", an object is expected",
                          "invalid_json");
    return std::move(document);
}

Fields::Fields(const json& object, std::string path) : object_(object), path_(std::move(path)), unread_(&inner_) {
    if (!object_.is_object()) throw bad_request(path_, "an object is expected");
}

Fields::Fields(Fields& outer, const json& object, std::string path) : Fields(object, std::move(path)) {
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

const json* Fields::find(std::string_view name) {
    known_.emplace(name);
    const auto found = object_.find(std::string(name));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse(name, "true or false is expected");
    return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least, std::int64_t most) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const double real = value->is_number() ? value->get<double>() : 0.5;
    if (real != std::floor(real)) refuse(name, "a whole number is expected");
    const auto beyond = [&]() {
        refuse(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                         " is expected, not " + shown(real));
    };
    // Compared as integers, because doubles are not exact for the largest ones.
    if (value->is_number_unsigned() &&
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0)))
        beyond();
    if (value->is_number_float() && !(real >= -0x1p63 && real < 0x1p63)) beyond();
    const auto whole = value->is_number_float() ? static_cast<std::int64_t>(real) : value->get<std::int64_t>();
    if (whole < least || whole > most) beyond();
    return whole;
}

std::optional<double> Fields::number(std::string_view name, double least, double most) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) refuse(name, "a number is expected");
    const double real = value->get<double>();
    if (!(real >= least && real <= most))
        refuse(name, "a number from " + shown(least) + " to " + shown(most) + " is expected, not " + shown(real));
    return real;
}

std::optional<std::string> Fields::text(std::string_view name) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(name, "a text is expected");
    return value->get<std::string>();
}

std::optional<std::string> Fields::word(std::string_view name, std::initializer_list<std::string_view> words) {
    auto value = text(name);
    if (!value || std::find(words.begin(), words.end(), *value) != words.end()) return value;
    std::string all;
    for (const auto candidate : words) all += (all.empty() ? "'" : ", '") + std::string(candidate) + "'";
    refuse(name, "'" + value->substr(0, 64) + "' is none of " + all);
}

std::vector<std::string> Fields::texts(std::string_view name, std::size_t most) {
    const json* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    std::vector<std::string> result;
    if (!value->is_array()) refuse(name, "a text or a list of texts is expected");
    if (value->size() > most)
        refuse(name,
               "a list of at most " + std::to_string(most) + " is expected, not " + std::to_string(value->size()));
    for (const json& item : *value) {
        if (!item.is_string()) refuse(name, "a text or a list of texts is expected");
        result.push_back(item.get<std::string>());
    }
    return result;
}

const json* Fields::object(std::string_view name) {
    const json* value = find(name);
    if (value != nullptr && !value->is_object()) refuse(name, "an object is expected");
    return value;
}

const json* Fields::list(std::string_view name) {
    const json* value = find(name);
    if (value != nullptr && !value->is_array()) refuse(name, "a list is expected");
    return value;
}

void Fields::take(std::initializer_list<std::string_view> names) {
    for (const auto name : names) known_.emplace(name);
}

void Fields::note_unread(UnreadFields& to) const {
    for (const auto& [name, value] : object_.get_ref<const json::object_t&>()) {
        if (value.is_null() || known_.contains(name)) continue;
        ++to.n;
        if (to.first.size() < UnreadFields::kMostNames) to.first.push_back({path(name), is_given_on_});
    }
}

UnreadFields Fields::unread() const {
    UnreadFields all;
    note_unread(all);
    if (inner_.lacks_memory) throw std::bad_alloc();
    all.n += inner_.n;
    for (const auto& field : inner_.first)
        if (all.first.size() < UnreadFields::kMostNames) all.first.push_back(field);
    return all;
}

}  // namespace tinfer::server
