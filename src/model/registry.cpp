// SPDX-License-Identifier: MIT
// The row of the registry for a name, and what is said of a name that has none.
#include <algorithm>

#include "base/error.hpp"
#include "model/family.hpp"

namespace tinfer::model {

namespace {

// Names we know and do not run: the message then says so instead of "unknown".
constexpr std::string_view kKnown[] = {
    "clip", "gptj", "pockettts", "qwen3tts", "wavtokenizer-dec",
};

constexpr std::string_view kProjector = "clip";

// Names of heads that only guess tokens for another model (architectures §6.2).
bool is_draft_head(std::string_view name) {
    return name.ends_with("-draft") || name.ends_with("_mtp") || name.ends_with("-assistant") || name == "eagle3" ||
           name == "dflash";
}

// How many there are, and those whose names begin alike: all of them are more than an error holds.
std::string supported_names(std::string_view name) {
    constexpr std::size_t kAlike = 3;
    std::string near;
    for (const Architecture& row : registry())
        if (name.size() >= kAlike && row.info.name.starts_with(name.substr(0, kAlike)))
            near += cat(near.empty() ? ", among them " : ", ", row.info.name);
    return cat(registry().size(), " architectures", near, " (tinfer::architectures() lists them)");
}

}  // namespace

const Architecture& find_architecture(const gguf::File& file, std::string_view name) {
    for (const Architecture& row : registry())
        if (row.info.name == name) return row;
    for (const std::string_view known : kKnown)
        if (known == name)
            fail(ErrorCode::unsupported_arch,
                 cat(file.name(), ": architecture '", name, "' is known but not implemented",
                     name == kProjector ? ": a projector for images or sound, not a model" : "",
                     "; supported: ", supported_names(name)));
    if (is_draft_head(name))
        fail(ErrorCode::unsupported_arch,
             cat(file.name(), ": architecture '", escaped(name), "' is a draft head and cannot be loaded as a model"));
    fail(ErrorCode::unknown_arch,
         cat(file.name(), ": unknown architecture '", escaped(name), "'; supported: ", supported_names(name)));
}

}  // namespace tinfer::model
