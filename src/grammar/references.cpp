// SPDX-License-Identifier: MIT
#include "grammar/references.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "grammar/uri.hpp"

namespace tinfer::grammar {
namespace {

constexpr std::size_t kMaxDocuments = 64;
constexpr std::size_t kMaxUri = 4096;
constexpr std::size_t kMaxLoadedBytes = 16u << 20;
/// Objects with fewer members are searched linearly.
constexpr std::size_t kIndexed = 64;

std::string escape_pointer(std::string_view name) {
    std::string out;
    for (const char c : name) {
        if (c == '~') out += "~0";
        else if (c == '/') out += "~1";
        else out += c;
    }
    return out;
}

int draft_of(JsonValue schema, int inherited) {
    const auto uri = schema.find("$schema");
    if (!uri || !uri->is(JsonKind::string)) return inherited;
    constexpr std::pair<std::string_view, int> kDrafts[] = {{"draft-03", 3}, {"draft-04", 4}, {"draft-06", 6},
                                                            {"draft-07", 7}, {"2019-09", 9},  {"2020-12", 10}};
    for (const auto& [name, draft] : kDrafts)
        if (uri->string().find(name) != std::string_view::npos) return draft;
    return inherited;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
}

std::optional<JsonValue> string_member(JsonValue object, std::string_view key) {
    const auto value = object.find(key);
    return value && value->is(JsonKind::string) ? value : std::nullopt;
}

}  // namespace

std::string SchemaPlace::pointer() const {
    constexpr std::size_t kLongest = 1024;
    std::vector<const SchemaPlace*> path;
    for (const SchemaPlace* at = this; at != nullptr; at = at->parent) path.push_back(at);
    std::string out(path.back()->name.substr(0, kLongest));
    for (std::size_t i = path.size() - 1; i-- > 0 && out.size() < kLongest;) {
        const bool is_item = path[i + 1]->value.is(JsonKind::array);
        out += "/" + (is_item ? std::to_string(path[i]->index) : escape_pointer(path[i]->name.substr(0, kLongest)));
    }
    return out;
}

References::References(JsonValue root, SchemaLoader load) : load_(std::move(load)) { add_document(root, "", ""); }

void References::add_document(JsonValue root, const std::string& uri, std::string pointer) {
    const std::uint32_t document = next_document_;
    const auto number = document + static_cast<std::uint32_t>(root.offset());
    resources_.push_back({uri, number, number});
    const auto resource = static_cast<std::uint32_t>(resources_.size() - 1);
    by_uri_.try_emplace(uri, resource);
    bases_.push_back(std::move(pointer));
    SchemaPlace place{.value = root, .name = bases_.back()};
    place.document = document;
    place.resource = resource;
    place.draft = places_.empty() ? 0 : places_.front().draft;  // without $schema that of the first document
    index(place);
}

const SchemaPlace& References::place(std::uint32_t number) const {
    const auto found = std::ranges::lower_bound(places_, number, {}, &SchemaPlace::number);
    TINFER_ASSERT(found != places_.end() && found->number == number);
    return *found;
}

/// Registers $id and anchors of a schema object.
void References::identify(JsonValue value, SchemaPlace& place, std::uint32_t number) {
    const bool is_old = place.draft != 0 && place.draft <= 7;
    auto id = string_member(value, "$id");
    if (!id && (place.draft == 0 || place.draft <= 4)) id = string_member(value, "id");
    if (is_old && value.find("$ref")) id.reset();  // old drafts ignore keywords beside $ref
    if (id && id->string().starts_with('#')) {
        if (id->string().size() > 1)
            resources_[place.resource].anchors.try_emplace(std::string(id->string().substr(1)), number);
    } else if (id && !id->string().empty()) {
        const std::string uri = resolve_uri(resources_[place.resource].uri, id->string());
        if (uri.size() > kMaxUri)  // every reference below is resolved against it
            fail(ErrorCode::limit_exceeded, cat("schema: ", escaped(place.pointer(), 160), "/$id: a URI of ",
                                                uri.size(), " bytes, limit ", kMaxUri));
        if (number == resources_[place.resource].root) {  // the root of the document
            resources_[place.resource].uri = uri;
        } else {
            resources_.push_back({uri, number, resources_[place.resource].document_root});
            place.resource = static_cast<std::uint32_t>(resources_.size() - 1);
        }
        by_uri_.try_emplace(uri, place.resource);
    }
    Resource& resource = resources_[place.resource];
    if (const auto anchor = string_member(value, "$anchor"))
        resource.anchors.try_emplace(std::string(anchor->string()), number);
    if (const auto anchor = string_member(value, "$dynamicAnchor")) {
        resource.anchors.try_emplace(std::string(anchor->string()), number);
        if (resource.dynamic_anchors.try_emplace(std::string(anchor->string()), number).second)
            ++n_dynamic_[std::string(anchor->string())];
    }
    if (const auto is_recursive = value.find("$recursiveAnchor");
        is_recursive && is_recursive->is(JsonKind::boolean) && is_recursive->boolean() && number == resource.root) {
        if (!resource.is_recursive) ++n_recursive_;
        resource.is_recursive = true;
    }
}

/// Numbers a value, whose context is that of the value around it.
const SchemaPlace& References::add(SchemaPlace place, Role role) {
    place.number = place.document + static_cast<std::uint32_t>(place.value.offset());
    next_document_ = std::max(next_document_, place.number + 1);
    if (role == Role::schema && place.value.is(JsonKind::object)) {
        place.draft = draft_of(place.value, place.draft);
        identify(place.value, place, place.number);
    }
    places_.push_back(place);
    return places_.back();
}

/// Numbers all values of a document in the order of the text, without recursion.
void References::index(const SchemaPlace& root) {
    struct Open {
        const SchemaPlace* place;
        Role role;
        JsonValue::Iterator at, end;
        std::uint32_t n_done = 0;
    };
    std::vector<Open> open;
    const auto enter = [&](const SchemaPlace& place, Role role) {
        const bool is_object = place.value.is(JsonKind::object);
        if (!is_object && !place.value.is(JsonKind::array)) return;
        const JsonValue::Range inside = is_object ? place.value.members() : place.value.items();
        open.push_back({&place, role, inside.begin(), inside.end()});
    };
    enter(add(root, Role::schema), Role::schema);
    while (!open.empty()) {
        Open& around = open.back();
        if (around.at == around.end) {
            open.pop_back();
            continue;
        }
        const auto member = *around.at;
        ++around.at;
        Role inner = around.role;
        if (around.place->value.is(JsonKind::object)) inner = role_of(member.key, around.role);
        SchemaPlace place = *around.place;
        place.value = member.value;
        place.parent = around.place;
        place.name = member.key;
        place.index = around.n_done++;
        enter(add(place, inner), inner);
    }
}

/// What a member of an object is.
References::Role References::role_of(std::string_view key, Role around) noexcept {
    if (around == Role::schemas) return Role::schema;
    if (around == Role::data) return Role::data;
    if (is_one_of(key, {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}))
        return Role::schemas;
    if (is_one_of(key, {"items", "additionalItems", "prefixItems", "contains", "additionalProperties", "propertyNames",
                        "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "unevaluatedItems",
                        "unevaluatedProperties", "extends", "disallow"}))
        return Role::schema;
    return Role::data;
}

bool References::has_keyword(std::string_view keyword) const {
    return std::ranges::any_of(places_,
                               [&](const SchemaPlace& place) { return place.value.find(keyword).has_value(); });
}

std::optional<JsonValue> References::find_indexed(std::uint32_t document, JsonValue object,
                                                  std::string_view name) const {
    const auto [at, is_new] = members_.try_emplace(document + static_cast<std::uint32_t>(object.offset()));
    if (is_new)
        for (const auto& [key, value] : object.members()) at->second.insert_or_assign(key, value);
    const auto found = at->second.find(name);
    return found == at->second.end() ? std::nullopt : std::optional(found->second);
}

JsonValue References::item_of(std::uint32_t document, JsonValue array, std::size_t wanted) const {
    const auto [at, is_new] = items_.try_emplace(document + static_cast<std::uint32_t>(array.offset()));
    if (is_new)
        for (const auto& [key, item] : array.items()) at->second.push_back(item);
    return at->second[wanted];
}

std::optional<std::uint32_t> References::pointed(std::uint32_t root, std::string_view pointer) const {
    const SchemaPlace& from = place(root);
    JsonValue at = from.value;
    while (!pointer.empty()) {
        if (pointer[0] != '/') return std::nullopt;
        pointer.remove_prefix(1);
        const std::size_t end = std::min(pointer.find('/'), pointer.size());
        std::string name;
        for (std::size_t i = 0; i < end; ++i) {
            if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1'))
                name += pointer[++i] == '0' ? '~' : '/';
            else name += pointer[i];
        }
        pointer.remove_prefix(end);
        if (at.is(JsonKind::object)) {
            const auto member = at.size() > kIndexed ? find_indexed(from.document, at, name) : at.find(name);
            if (!member) return std::nullopt;
            at = *member;
        } else if (at.is(JsonKind::array)) {
            const bool is_number = !name.empty() && name.size() < 7 &&
                                   std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
            const std::size_t wanted = is_number ? std::stoul(name) : SIZE_MAX;
            if (wanted >= at.size()) return std::nullopt;
            at = item_of(from.document, at, wanted);
        } else {
            return std::nullopt;
        }
    }
    return from.document + static_cast<std::uint32_t>(at.offset());
}

std::uint32_t References::resource_of(const std::string& uri, std::string_view reference, const SchemaPlace& from,
                                      std::string_view keyword) {
    if (uri.empty() || uri == resources_[from.resource].uri) return from.resource;
    if (const auto known = by_uri_.find(uri); known != by_uri_.end()) return known->second;
    const std::string where =
        cat("schema: ", escaped(from.pointer(), 160), "/", keyword, ": '", escaped(reference), "'");
    auto text = load_ ? load_(uri) : std::nullopt;
    if (!text)
        fail(ErrorCode::bad_schema,
             where + (load_ ? " is not known to the loader of documents" : " is not in this document"));
    if (loaded_.size() >= kMaxDocuments)
        fail(ErrorCode::limit_exceeded, cat(where, ": more than ", kMaxDocuments, " documents"));
    if (text->size() > kMaxLoadedBytes)
        fail(ErrorCode::limit_exceeded, cat(where, ": a document of more than ", kMaxLoadedBytes, " bytes"));
    loaded_.push_back(std::make_unique<JsonDocument>(
        JsonDocument::parse(*text, "schema: " + escaped(uri, 160), {.max_depth = 200, .code = ErrorCode::bad_schema})));
    const auto resource = static_cast<std::uint32_t>(resources_.size());
    add_document(loaded_.back()->root(), uri, uri + "#");
    by_uri_.try_emplace(uri, resource);  // if its own $id differs
    return resource;
}

std::uint32_t References::resolve(std::string_view reference, const SchemaPlace& from, std::string_view keyword) {
    const std::string uri = resolve_uri(resources_[from.resource].uri, reference);
    const Resource& resource = resources_[resource_of(uri, reference, from, keyword)];
    const std::string fragment = percent_decoded(fragment_of(reference));
    std::optional<std::uint32_t> found;
    if (fragment.empty() || fragment[0] == '/') {
        found = pointed(resource.root, fragment);
        // Lenient: pointers into a part with an $id are often written relative to the document.
        if (!found) found = pointed(resource.document_root, fragment);
    } else if (const auto anchor = resource.anchors.find(fragment); anchor != resource.anchors.end()) {
        found = anchor->second;
    }
    if (!found)
        fail(ErrorCode::bad_schema, cat("schema: ", escaped(from.pointer(), 160), "/", keyword,
                                        ": there is nothing at '", escaped(reference), "'"));
    return *found;
}

std::optional<std::uint32_t> References::resolve_dynamic(std::string_view reference, const SchemaPlace& from) {
    const std::uint32_t first = resolve(reference, from, "$dynamicRef");
    const std::string anchor = percent_decoded(fragment_of(reference));
    const auto& of_first = resources_[place(first).resource].dynamic_anchors;
    const auto at = of_first.find(anchor);
    if (at == of_first.end() || at->second != first) return first;  // same as $ref
    // The outermost in the dynamic scope: the document itself if it has the anchor, or else the only one that has it.
    if (const auto known = resources_[0].dynamic_anchors.find(anchor); known != resources_[0].dynamic_anchors.end())
        return known->second;
    return n_dynamic_.find(anchor)->second == 1 ? std::optional(first) : std::nullopt;
}

std::optional<std::uint32_t> References::resolve_recursive(const SchemaPlace& from) {
    const Resource& own = resources_[from.resource];
    if (!own.is_recursive) return own.root;
    if (resources_[0].is_recursive) return resources_[0].root;
    return n_recursive_ == 1 ? std::optional(own.root) : std::nullopt;
}

}  // namespace tinfer::grammar
