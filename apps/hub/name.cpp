// SPDX-License-Identifier: MIT
#include "name.hpp"

#include <algorithm>
#include <tinfer/base.hpp>

#include "hub.hpp"

namespace tinfer::hub {

namespace {

constexpr std::size_t kMaxPart = 96;  // of a repository's name, as the hub's clients check it

bool is_letter(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

/// One part of a name. The cache joins owner and repository by "--", so neither holds that.
bool is_part(std::string_view part) noexcept {
    return !part.empty() && part.size() <= kMaxPart && std::ranges::all_of(part, is_letter) &&
           part.find("--") == part.npos && part.find("..") == part.npos && part.front() != '.' && part.front() != '-' &&
           part.back() != '.' && part.back() != '-';
}

bool is_revision(std::string_view revision) noexcept {
    return revision.size() <= 255 && is_inside(revision) &&
           std::ranges::all_of(revision, [](char c) { return is_letter(c) || c == '/' || c == '+'; });
}

bool is_gguf(std::string_view path) { return lower(path).ends_with(".gguf"); }

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
    throw Error(ErrorCode::bad_parameter,
                "'" + std::string(text.substr(0, 300)) + "' is no name of a model: " + std::string(why));
}

constexpr std::string_view kForms = "OWNER/REPO[@REVISION][:QUANT] or OWNER/REPO[@REVISION]/PATH.gguf is expected";

/// Where a revision ends that a path follows. Those of pull requests have slashes: refs/pr/1.
std::size_t end_of_revision(std::string_view rest) {
    std::size_t end = rest.find('/');
    if (rest.starts_with("refs/"))
        for (int i = 0; i < 2 && end != rest.npos; ++i) end = rest.find('/', end + 1);
    return end;
}

/// What stands behind OWNER/REPO: "@REVISION", ":QUANT" or "/PATH.gguf".
void parse_rest(HubName& name, std::string_view rest, std::string_view text) {
    const bool has_revision = rest.starts_with('@');
    if (has_revision) rest.remove_prefix(1);
    const std::size_t colon = rest.find(':');
    if ((colon == rest.npos || rest.starts_with('/')) && is_gguf(rest)) {
        const std::size_t slash = has_revision ? end_of_revision(rest) : 0;
        if (slash == rest.npos) refuse(text, kForms);
        if (has_revision) name.revision = rest.substr(0, slash);
        name.path = rest.substr(slash + 1);
        if (!is_inside(name.path)) refuse(text, "its path leads out of the repository");
    } else {
        if (!has_revision && colon != 0 && !rest.empty()) refuse(text, kForms);
        if (has_revision) name.revision = rest.substr(0, colon);
        if (colon != rest.npos) {
            name.quant = rest.substr(colon + 1);
            if (!is_quant(name.quant)) refuse(text, "letters, digits, '_', '.' and '-' follow the colon");
        }
    }
    if (has_revision && !is_revision(name.revision)) refuse(text, "its revision is none");
}

}  // namespace

bool is_name(std::string_view text) noexcept { return text.starts_with("hf:") || text.starts_with("ollama:"); }

bool is_quant(std::string_view text) noexcept { return !text.empty() && std::ranges::all_of(text, is_letter); }

bool is_inside(std::string_view path) noexcept {
    if (path.empty() || path.size() > 1024) return false;
    if (std::ranges::any_of(path,
                            [](char c) { return c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }))
        return false;
    for (std::size_t at = 0; at <= path.size();) {
        const std::size_t end = std::min(path.find('/', at), path.size());
        const auto part = path.substr(at, end - at);
        if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
        at = end + 1;
    }
    return true;
}

bool is_hex(std::string_view text, std::size_t n) noexcept {
    return text.size() == n &&
           std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_commit(std::string_view text) noexcept { return is_hex(text, 40); }

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

std::string HubName::text() const {
    return repository() + (revision.empty() ? "" : "@" + revision) + (path.empty() ? "" : "/" + path) +
           (quant.empty() ? "" : ":" + quant);
}

HubName parse_hub_name(std::string_view text) {
    std::string_view rest = text;
    if (rest.starts_with("hf:")) rest.remove_prefix(3);
    for (const std::string_view host : {"https://", "hf.co/", "huggingface.co/"})
        if (rest.starts_with(host)) rest.remove_prefix(host.size());
    HubName name;
    const std::size_t slash = rest.find('/');
    if (slash == rest.npos) refuse(text, kForms);
    const std::size_t end = std::min(rest.find_first_of("@:/", slash + 1), rest.size());
    name.owner = rest.substr(0, slash);
    name.repo = rest.substr(slash + 1, end - slash - 1);
    if (!is_part(name.owner) || !is_part(name.repo))
        refuse(text, "owner and repository are letters, digits, '_', '.' and '-', with one slash between them");
    parse_rest(name, rest.substr(end), text);
    return name;
}

std::string OllamaName::text() const { return (space == "library" ? "" : space + "/") + name + ":" + tag; }

OllamaName parse_ollama_name(std::string_view text) {
    std::string_view rest = text;
    if (rest.starts_with("ollama:")) rest.remove_prefix(7);
    OllamaName name;
    if (const std::size_t colon = rest.rfind(':'); colon != rest.npos) {
        name.tag = rest.substr(colon + 1);
        rest = rest.substr(0, colon);
    }
    if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
        name.space = rest.substr(0, slash);
        rest = rest.substr(slash + 1);
    }
    name.name = rest;
    const auto is_word = [](std::string_view part) {
        return is_inside(part) && part.find_first_of("/:") == part.npos && std::ranges::all_of(part, is_letter);
    };
    if (!is_word(name.space) || !is_word(name.name) || !is_word(name.tag))
        refuse(text, "ollama:NAME[:TAG] is expected");
    return name;
}

}  // namespace tinfer::hub
