// SPDX-License-Identifier: MIT
// References between schemas: RFC 3986 as far as they need it.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::grammar {

/// What a reference means where `base` is the URI of the document (RFC 3986 §5.2), without its fragment. An empty base
/// leaves it as it is.
[[nodiscard]] std::string resolve_uri(std::string_view base, std::string_view reference);
/// What stands behind the first '#'; empty without one.
[[nodiscard]] std::string_view fragment_of(std::string_view reference) noexcept;
/// %XX undone.
[[nodiscard]] std::string percent_decoded(std::string_view text);

}  // namespace tinfer::grammar
