// SPDX-License-Identifier: MIT
// The OpenAPI 3.1 description of this server, with the features and limits of its model.
#pragma once

#include "service.hpp"

namespace tinfer::server {

/// The document of GET /openapi.json.
[[nodiscard]] json openapi(const Service& service);

// Building blocks: JSON Schema 2020-12. Optional fields may also be null.
namespace schema {

[[nodiscard]] json text(std::string_view what);
[[nodiscard]] json flag(std::string_view what);
[[nodiscard]] json number(std::string_view what, double least, double most);
[[nodiscard]] json whole(std::string_view what, std::int64_t least, std::int64_t most);
[[nodiscard]] json word(std::string_view what, const std::vector<std::string>& words);
[[nodiscard]] json object(json properties, const std::vector<std::string>& required = {});
[[nodiscard]] json list_of(json items);
[[nodiscard]] json any_of(std::vector<json> schemas);
/// The same, or null.
[[nodiscard]] json or_null(json schema);
[[nodiscard]] json is(std::string_view constant);
[[nodiscard]] json reference(std::string_view name);

/// Schemas of the request bodies that this server accepts, by name.
[[nodiscard]] json requests(const Service& service);
/// Schemas of responses.
[[nodiscard]] json answers();

}  // namespace schema

}  // namespace tinfer::server
