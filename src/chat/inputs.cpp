// SPDX-License-Identifier: MIT
#include "chat/inputs.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace tinfer::chat {
namespace {

/// The standard roles. Any other role counts as text from outside, because templates build control tokens from roles
/// ("<|" + role + "|>").
constexpr std::array<std::string_view, 11> kRoles{"system",      "user",        "assistant",    "tool",
                                                  "developer",   "function",    "model",        "ipython",
                                                  "observation", "environment", "tool_response"};
constexpr std::array<std::string_view, 5> kTypes{"text", "function", "object", "string", "image"};

bool one_of(std::span<const std::string_view> words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
}

bool is_protocol(const std::vector<PathStep>& path, std::string_view value) {
    if (path.size() == 1) return path[0].name == "bos_token" || path[0].name == "eos_token";
    if (path[0].name != "messages" || path.size() < 3) return false;
    if (path.size() == 3 && path[2].name == "role") return one_of(kRoles, value);
    return path.back().name == "type" && one_of(kTypes, value);
}

std::string written(const std::vector<PathStep>& path) {
    std::string out;
    for (const PathStep& step : path) {
        if (step.name.empty()) out += cat('[', step.index, ']');
        else out += out.empty() ? escaped(step.name) : cat('.', escaped(step.name));
    }
    return out;
}

}  // namespace

Origin InputNames::origin(const std::vector<PathStep>& path) {
    heap_.work(path.size());
    std::string name = written(path);
    if (names_.back() != name) {
        heap_.charge(sizeof(std::string) + name.size());
        names_.push_back(std::move(name));
    }
    return static_cast<Origin>(names_.size() - 1);
}

Origin OriginOfPath::operator()(const std::vector<PathStep>& path, std::string_view value) const {
    if (names_ == nullptr) return constant_;
    return !path.empty() && is_protocol(path, value) ? kFromTemplate : names_->origin(path);
}

Origin OriginOfPath::of_key(const std::vector<PathStep>& path) const {
    return names_ == nullptr ? constant_ : names_->origin(path);
}

}  // namespace tinfer::chat
