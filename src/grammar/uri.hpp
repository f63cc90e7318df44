// SPDX-License-Identifier: MIT
// URI references between schemas: the part of RFC 3986 that they need.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::grammar {

/// Resolves a reference against the document's URI `base` (RFC 3986 §5.2) and drops the fragment. An empty base leaves
/// the rest as it is.
[[nodiscard]] std::string resolve_uri(std::string_view base, std::string_view reference);
/// The part after the first '#'; empty if there is none.
[[nodiscard]] std::string_view fragment_of(std::string_view reference) noexcept;
/// Decodes %XX.
[[nodiscard]] std::string percent_decoded(std::string_view text);

}  // namespace tinfer::grammar
