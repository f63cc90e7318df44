// SPDX-License-Identifier: MIT
// Values that can be changed. Whatever goes through one is a loop: copies, comparisons, texts and the end of a value
// need no stack for its depth, and the end needs no memory either, as the nests inside are linked to each other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/json.hpp"

namespace tinfer {

struct Json::Nest {
    explicit Nest(bool is_of_members) noexcept : is_object(is_of_members) {}
    Nest* next = nullptr;  // to be destroyed after this one
    bool is_object;
};
struct Json::Array : Nest {
    Array() noexcept : Nest(false) {}
    std::vector<Json> items;
};
struct Json::Object : Nest {
    Object() noexcept : Nest(true) {}
    std::vector<Member> members;
};

namespace {

constexpr Json kNoValue{};
constexpr std::string_view kReading = "JSON: an allocation failed";

bool is_equal(std::int64_t whole, double real) noexcept {
    return real >= -0x1p63 && real < 0x1p63 && static_cast<std::int64_t>(real) == whole && std::trunc(real) == real;
}

}  // namespace

// ---- made, copied, destroyed ----------------------------------------------------------------------------------------

Json::Json(std::string text) {
    data_.string = new std::string(std::move(text));
    tag_ = Tag::string;
}

Json Json::array(std::initializer_list<Item> items) {
    Json out;
    out.data_.nest = new Array;
    out.tag_ = Tag::array;
    out.reserve(items.size());
    for (const Item& item : items) out.push_back(std::move(item.value_));
    return out;
}

Json Json::object() {
    Json out;
    out.data_.nest = new Object;
    out.tag_ = Tag::object;
    return out;
}

Json::Json(std::initializer_list<Item> items) {
    const auto is_member = [](const Item& item) {
        return item.value_.is_array() && item.value_.size() == 2 && item.value_[0].is_string();
    };
    const bool is_list = !std::ranges::all_of(items, is_member);
    Json out = is_list ? array(items) : object();
    if (!is_list) {
        out.reserve(items.size());
        for (const Item& item : items) out.append(std::move(*item.value_[0].data_.string), std::move(item.value_[1]));
        out.merge_repeated();
    }
    swap(out);
}

Json Json::copy() const {
    Json out;
    std::vector<std::pair<const Json*, Json*>> work{{this, &out}};
    while (!work.empty()) {
        const auto [from, to] = work.back();
        work.pop_back();
        if (from->is_array()) {
            *to = array();
            auto& items = static_cast<Array*>(to->data_.nest)->items;
            items.resize(from->size());
            for (std::size_t i = 0; i < items.size(); ++i) work.emplace_back(from->begin() + i, &items[i]);
        } else if (from->is_object()) {
            *to = object();
            auto& members = static_cast<Object*>(to->data_.nest)->members;
            members.reserve(from->size());
            for (const auto& [key, value] : from->items())
                work.emplace_back(&value, &members.emplace_back(Member{key, Json()}).value);
        } else if (from->is_string()) {
            *to = Json(*from->data_.string);
        } else {
            to->tag_ = from->tag_;
            to->data_ = from->data_;
        }
    }
    return out;
}

void Json::destroy() noexcept {
    if (tag_ == Tag::string) return delete data_.string;
    Nest* first = data_.nest;
    const auto take = [&](Json& value) {
        if (value.tag_ < Tag::array) return;
        value.data_.nest->next = std::exchange(first, value.data_.nest);
        value.tag_ = Tag::null;
    };
    while (first != nullptr) {
        Nest* const nest = first;
        first = nest->next;
        if (nest->is_object) {
            for (Member& member : static_cast<Object*>(nest)->members) take(member.value);
            delete static_cast<Object*>(nest);
        } else {
            for (Json& item : static_cast<Array*>(nest)->items) take(item);
            delete static_cast<Array*>(nest);
        }
    }
}

// ---- text -----------------------------------------------------------------------------------------------------------

namespace {
/// Values of a document are made into the places that are reserved for them.
void fill(Json& root, JsonValue from, const auto& merge_repeated) {
    struct Open {
        Json* json;
        JsonValue::Iterator at, end;
    };
    std::vector<Open> open;
    const auto place = [&](Json& to, JsonValue value) {
        switch (value.kind()) {
            case JsonKind::null: break;
            case JsonKind::boolean: to = value.boolean(); break;
            case JsonKind::string: to = value.string(); break;
            case JsonKind::number:
                if (const auto whole = value.integer()) to = *whole;
                else if (const auto natural = value.unsigned_integer()) to = *natural;
                else to = value.number();
                break;
            case JsonKind::array:
            case JsonKind::object: {
                const bool is_object = value.is(JsonKind::object);
                to = is_object ? Json::object() : Json::array();
                to.reserve(value.size());
                const auto range = is_object ? value.members() : value.items();
                open.push_back({&to, range.first, range.last});
            }
        }
    };
    place(root, from);
    while (!open.empty()) {
        Open& inner = open.back();
        Json& json = *inner.json;
        if (inner.at == inner.end) {
            if (json.is_object()) merge_repeated(json);
            open.pop_back();
            continue;
        }
        const auto [key, value] = *inner.at;
        ++inner.at;
        if (json.is_object()) {
            place(json.append(std::string(key), nullptr), value);
        } else {
            json.push_back(nullptr);
            place(json.back(), value);
        }
    }
}
}  // namespace

Json Json::parse(std::string_view text, std::string_view name, const JsonOptions& options) {
    return reporting_memory(kReading, [&] {
        Json out;
        fill(out, JsonDocument::parse(text, name, options).root(), [](Json& object) { object.merge_repeated(); });
        return out;
    });
}

std::optional<Json> Json::try_parse(std::string_view text, const JsonOptions& options) {
    try {
        return parse(text, "JSON", options);
    } catch (const Error& error) {
        if (error.code() == ErrorCode::out_of_memory) throw;
        return std::nullopt;
    }
}

// ---- kinds ----------------------------------------------------------------------------------------------------------

JsonKind Json::kind() const noexcept {
    switch (tag_) {
        case Tag::null: return JsonKind::null;
        case Tag::boolean: return JsonKind::boolean;
        case Tag::string: return JsonKind::string;
        case Tag::array: return JsonKind::array;
        case Tag::object: return JsonKind::object;
        default: return JsonKind::number;
    }
}

void Json::refuse(std::string_view wanted) const {
    fail(ErrorCode::bad_parameter,
         cat("JSON: ", wanted, " is expected, not ", is_array() || is_object() ? "an " : "a ", to_string(kind())));
}

void Json::refuse_number() const {
    if (!is_number()) refuse("a number");
    fail(ErrorCode::bad_parameter, cat("JSON: the number ", dump(), " is out of range"));
}

bool Json::boolean() const {
    if (!is_boolean()) refuse("a boolean");
    return data_.boolean;
}

const std::string& Json::string() const& {
    if (!is_string()) refuse("a string");
    return *data_.string;
}

double Json::real() const {
    if (tag_ == Tag::real) return data_.real;
    if (!is_number()) refuse("a number");
    return tag_ == Tag::integer ? static_cast<double>(data_.integer) : static_cast<double>(data_.natural);
}

double Json::whole(double least, double most) const {
    const double value = std::trunc(data_.real);
    if (!(value >= least && value < most + 1)) refuse_number();  // for 64 bits most + 1 is most, 2^63 or 2^64
    return value;
}

// ---- arrays and objects ---------------------------------------------------------------------------------------------

std::size_t Json::size() const noexcept {
    if (is_array()) return static_cast<const Array*>(data_.nest)->items.size();
    return items().size();
}

Json* Json::begin() noexcept { return is_array() ? static_cast<Array*>(data_.nest)->items.data() : nullptr; }
Json* Json::end() noexcept { return is_array() ? begin() + size() : nullptr; }

Json& Json::at(std::size_t index) {
    if (!is_array()) refuse("an array");
    if (index >= size()) fail(ErrorCode::index_out_of_range, cat("JSON: element ", index, " of an array of ", size()));
    return begin()[index];
}

void Json::reserve(std::size_t n) {
    if (is_array()) static_cast<Array*>(data_.nest)->items.reserve(n);
    else if (is_object()) static_cast<Object*>(data_.nest)->members.reserve(n);
}

void Json::push_back(Json value) {
    if (is_null()) *this = array();
    if (!is_array()) refuse("an array");
    static_cast<Array*>(data_.nest)->items.push_back(std::move(value));
}

void Json::insert(std::size_t index, Json value) {
    if (index > 0) (void)at(index - 1);
    push_back(std::move(value));
    std::rotate(&at(index), end() - 1, end());
}

void Json::erase(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    (void)at(end - 1);
    auto& items = static_cast<Array*>(data_.nest)->items;
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end));
}

std::span<Json::Member> Json::items() noexcept {
    return is_object() ? std::span(static_cast<Object*>(data_.nest)->members) : std::span<Member>();
}

std::span<const Json::Member> Json::items() const noexcept { return const_cast<Json*>(this)->items(); }

Json* Json::find(std::string_view key) noexcept {
    const auto members = items();
    const auto found = std::ranges::find(members, key, &Member::key);
    return found == members.end() ? nullptr : &found->value;
}

Json& Json::operator[](std::string_view key) {
    if (Json* const found = find(key)) return *found;
    return append(std::string(key), nullptr);
}

const Json& Json::operator[](std::string_view key) const noexcept {
    const Json* const found = find(key);
    return found != nullptr ? *found : kNoValue;
}

Json& Json::at(std::string_view key) {
    if (!is_object()) refuse("an object");
    if (Json* const found = find(key)) return *found;
    fail(ErrorCode::missing_key, cat("JSON: there is no member '", escaped(key), "'"));
}

std::string_view Json::text(std::string_view key) const noexcept {
    const Json& value = (*this)[key];
    return value.is_string() ? std::string_view(*value.data_.string) : std::string_view();
}

Json& Json::append(std::string key, Json value) {
    if (is_null()) *this = object();
    if (!is_object()) refuse("an object");
    return static_cast<Object*>(data_.nest)->members.emplace_back(Member{std::move(key), std::move(value)}).value;
}

void Json::update(Json members) {
    if (!members.is_object()) members.refuse("an object");
    for (auto& [key, value] : members.items()) (*this)[key] = std::move(value);
}

void Json::erase(std::string_view key) {
    if (is_object()) std::erase_if(static_cast<Object*>(data_.nest)->members, [&](auto& m) { return m.key == key; });
}

/// Sorted once, as there may be many members.
void Json::merge_repeated() {
    auto& members = static_cast<Object*>(data_.nest)->members;
    if (members.size() < 2) return;
    std::vector<std::uint32_t> order(members.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        const int which = members[a].key.compare(members[b].key);
        return which != 0 ? which < 0 : a < b;
    });
    std::vector<bool> is_again(members.size());
    bool any = false;
    for (std::size_t first = 0, next = 1; first < order.size(); first = next++) {
        while (next < order.size() && members[order[next]].key == members[order[first]].key)
            any = is_again[order[next++]] = true;
        if (next > first + 1) members[order[first]].value = std::move(members[order[next - 1]].value);
    }
    if (any) std::erase_if(members, [&](const Member& m) { return is_again[std::size_t(&m - members.data())]; });
}

bool Json::operator==(const Json& other) const {
    std::vector<std::pair<const Json*, const Json*>> work{{this, &other}};
    while (!work.empty()) {
        const auto [a, b] = work.back();
        work.pop_back();
        if (a->tag_ == Tag::real && b->tag_ == Tag::integer) {
            if (!tinfer::is_equal(b->data_.integer, a->data_.real)) return false;
        } else if (a->tag_ == Tag::integer && b->tag_ == Tag::real) {
            if (!tinfer::is_equal(a->data_.integer, b->data_.real)) return false;
        } else if (a->tag_ != b->tag_ || a->size() != b->size()) {
            return false;
        } else if (a->is_array()) {
            for (std::size_t i = 0; i < a->size(); ++i) work.emplace_back(a->begin() + i, b->begin() + i);
        } else if (a->is_object()) {
            const auto theirs = b->items();
            for (std::size_t i = 0; i < a->size(); ++i) {
                const auto& [key, value] = a->items()[i];
                const Json* const same = theirs[i].key == key ? &theirs[i].value : b->find(key);
                if (same == nullptr) return false;
                work.emplace_back(&value, same);
            }
        } else if (a->is_string()            ? *a->data_.string != *b->data_.string
                   : a->tag_ == Tag::real    ? a->data_.real != b->data_.real
                   : a->tag_ == Tag::boolean ? a->data_.boolean != b->data_.boolean
                                             : !a->is_null() && a->data_.integer != b->data_.integer) {
            return false;
        }
    }
    return true;
}

}  // namespace tinfer
