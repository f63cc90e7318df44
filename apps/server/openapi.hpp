// SPDX-License-Identifier: MIT
// The OpenAPI 3.1 description of this server, with the features and limits of its model.
#pragma once

#include "service.hpp"

namespace tinfer::server {

/// The document of GET /openapi.json.
[[nodiscard]] Json openapi(const Service& service);

// Building blocks: JSON Schema 2020-12. Optional fields may also be null.
namespace schema {

[[nodiscard]] Json text(std::string_view what);
[[nodiscard]] Json flag(std::string_view what);
[[nodiscard]] Json number(std::string_view what, double least, double most);
[[nodiscard]] Json whole(std::string_view what, std::int64_t least, std::int64_t most);
[[nodiscard]] Json word(std::string_view what, const std::vector<std::string>& words);
[[nodiscard]] Json object(Json properties, const std::vector<std::string>& required = {});
[[nodiscard]] Json list_of(Json items);
[[nodiscard]] Json any_of(std::vector<Json> schemas);
/// The same, or null.
[[nodiscard]] Json or_null(Json schema);
[[nodiscard]] Json is(std::string_view constant);
[[nodiscard]] Json reference(std::string_view name);

/// Schemas of the request bodies that this server accepts, by name.
[[nodiscard]] Json requests(const Service& service);
/// Schemas of responses.
[[nodiscard]] Json answers();
/// The same of Ollama's interface and of /infill, as far as the model can answer them.
[[nodiscard]] Json ollama_requests(const Service& service);
[[nodiscard]] Json ollama_answers();

/// Fields of the sampler, and of what read_sampling() reads beside it.
void add_sampling(Json& fields, const Service& service);
/// A list of tools, each with its function inside.
[[nodiscard]] Json tools();

}  // namespace schema

}  // namespace tinfer::server
