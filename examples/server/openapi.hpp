// SPDX-License-Identifier: MIT
// The description of this server in the form of OpenAPI 3.1: what its model can do, with the bounds that hold for it.
#pragma once

#include "service.hpp"

namespace server {

/// What GET /openapi.json answers.
[[nodiscard]] json openapi(const Service& service);

// What it is made of. Schemas of JSON Schema 2020-12; a field that may be left out may be null, too.
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

/// The bodies of requests by the name of their schema: those that this server takes.
[[nodiscard]] json requests(const Service& service);
/// The documents of answers.
[[nodiscard]] json answers();

}  // namespace schema

}  // namespace server
