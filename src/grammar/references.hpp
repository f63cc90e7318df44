// SPDX-License-Identifier: MIT
// The documents of a schema, with a number for every value in them, and the resolution of references.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.hpp"

namespace tinfer::grammar {

/// Loads another document by its URI without fragment; nullopt if it is unknown.
using SchemaLoader = std::function<std::optional<std::string>(std::string_view uri)>;

/// A value of a document, with its context.
struct SchemaPlace {
    JsonValue value;
    std::uint32_t number = 0;             ///< the document's base plus the value's offset
    const SchemaPlace* parent = nullptr;  ///< the array or object around it; null for a document
    std::string_view name{};              ///< in an object; of a document: what pointers into it begin with
    std::uint32_t index = 0;              ///< in an array
    std::uint32_t document = 0;           ///< base of the document's numbers: a value's number is this plus its offset
    std::uint32_t resource = 0;           ///< the enclosing schema with an $id
    int draft = 0;                        ///< 3, 4, 6, 7, 9 for 2019-09, 10 for 2020-12; 0: unknown

    /// JSON Pointer, after the document's URI unless it is the first document. Made for messages: a pointer for each
    /// value would take the names around it as often as they have values in them. A long one has its end cut off.
    [[nodiscard]] std::string pointer() const;
};

class References {
public:
    References(JsonValue root, SchemaLoader load);

    [[nodiscard]] const SchemaPlace& place(std::uint32_t number) const;
    /// Whether any object has this key.
    [[nodiscard]] bool has_keyword(std::string_view keyword) const;
    /// The number of the value that a reference names. Throws bad_schema if there is none.
    [[nodiscard]] std::uint32_t resolve(std::string_view reference, const SchemaPlace& from,
                                        std::string_view keyword = "$ref");
    /// The same for $dynamicRef and $recursiveRef; nullopt if the target depends on the dynamic scope.
    [[nodiscard]] std::optional<std::uint32_t> resolve_dynamic(std::string_view reference, const SchemaPlace& from);
    [[nodiscard]] std::optional<std::uint32_t> resolve_recursive(const SchemaPlace& from);

    /// Bytes, about, with those of the parsed documents.
    [[nodiscard]] std::size_t memory() const noexcept {
        constexpr std::size_t kOfDocument =
            32;  // bytes of a value in the parsed text, its key and its share of the text
        return places_.size() * (sizeof(SchemaPlace) + kOfDocument) + resources_.size() * sizeof(Resource);
    }
    /// From now on no document is loaded: references to unknown documents throw bad_schema.
    void close() noexcept { load_ = nullptr; }

private:
    struct Resource {
        std::string uri;
        std::uint32_t root, document_root;
        std::map<std::string, std::uint32_t, std::less<>> anchors{}, dynamic_anchors{};
        bool is_recursive = false;  // $recursiveAnchor
    };
    enum class Role : std::uint8_t { schema, schemas, data };  // `schemas`: object of named schemas

    void add_document(JsonValue root, const std::string& uri, std::string pointer);
    void index(const SchemaPlace& root);
    [[nodiscard]] const SchemaPlace& add(SchemaPlace place, Role role);
    [[nodiscard]] static Role role_of(std::string_view key, Role around) noexcept;
    void identify(JsonValue value, SchemaPlace& place, std::uint32_t number);
    [[nodiscard]] std::optional<std::uint32_t> pointed(std::uint32_t root, std::string_view pointer) const;
    [[nodiscard]] std::optional<JsonValue> find_indexed(std::uint32_t document, JsonValue object,
                                                        std::string_view name) const;
    [[nodiscard]] JsonValue item_of(std::uint32_t document, JsonValue array, std::size_t wanted) const;
    [[nodiscard]] std::uint32_t resource_of(const std::string& uri, std::string_view reference, const SchemaPlace& from,
                                            std::string_view keyword);

    SchemaLoader load_;
    std::deque<SchemaPlace> places_;  // by number; they keep their addresses
    std::deque<std::string> bases_;   // of pointers into documents
    std::vector<Resource> resources_;
    std::map<std::string, std::uint32_t, std::less<>> n_dynamic_;  // resources with a dynamic anchor of this name
    std::uint32_t n_recursive_ = 0;
    std::map<std::string, std::uint32_t, std::less<>> by_uri_;  // indices into resources_
    std::vector<std::unique_ptr<JsonDocument>> loaded_;
    std::uint32_t next_document_ = 0;
    // Indices of large objects and of arrays that references pass through, since a schema may have as many references
    // as definitions.
    mutable std::map<std::uint32_t, std::unordered_map<std::string_view, JsonValue>> members_;
    mutable std::map<std::uint32_t, std::vector<JsonValue>> items_;
};

}  // namespace tinfer::grammar
