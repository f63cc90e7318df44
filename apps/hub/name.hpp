// SPDX-License-Identifier: MIT
// The names of models: `OWNER/REPO[@REVISION][:QUANT]` or `OWNER/REPO[@REVISION]/PATH.gguf` of the hub, and
// `ollama:NAME[:TAG]`.
#pragma once

#include <string>
#include <string_view>

namespace tinfer::hub {

/// A model of the hub.
struct HubName {
    std::string owner, repo;
    std::string revision;  ///< empty: none was named, so main
    std::string quant;     ///< empty: none was named
    std::string path;      ///< of the file in the repository; empty: chosen by `quant`

    [[nodiscard]] std::string repository() const { return owner + "/" + repo; }
    [[nodiscard]] std::string revision_or_main() const { return revision.empty() ? "main" : revision; }
    /// As it was given, without "hf:".
    [[nodiscard]] std::string text() const;
};

/// Throws bad_parameter naming the text and what is wrong with it. "hf:", "hf.co/" and "huggingface.co/" in front are
/// left out.
[[nodiscard]] HubName parse_hub_name(std::string_view text);

/// A model of an Ollama store.
struct OllamaName {
    std::string space = "library", name, tag = "latest";
    [[nodiscard]] std::string text() const;
};
/// The text begins with "ollama:". Throws bad_parameter.
[[nodiscard]] OllamaName parse_ollama_name(std::string_view text);

/// Whether it can follow the colon of a name: letters, digits, '_', '.' and '-'.
[[nodiscard]] bool is_quant(std::string_view text) noexcept;
/// Whether a path of a repository stays inside it: relative, without empty, "." and ".." parts, backslashes and control
/// characters.
[[nodiscard]] bool is_inside(std::string_view path) noexcept;
/// Whether all of it are lower-case hexadecimal digits, and `n` of them.
[[nodiscard]] bool is_hex(std::string_view text, std::size_t n) noexcept;
/// ASCII letters made small.
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] bool is_commit(std::string_view text) noexcept;

}  // namespace tinfer::hub
