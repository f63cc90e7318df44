// SPDX-License-Identifier: MIT
#include "choice.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace tinfer::hub {

namespace {

struct Part {
    std::string stem;  ///< of the path, without "-00001-of-00003"
    int number = 1, of = 1;
};

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_model(std::string_view path) {
    if (!path.ends_with(".gguf")) return false;
    const std::string name = lower(file_name(path));
    if (name.find("mmproj") != name.npos || name.find("imatrix") != name.npos) return false;
    constexpr std::array<std::string_view, 4> kHeads{"mtp-", "eagle3-", "dflash-", "dspark-"};
    return std::ranges::none_of(kHeads, [&](std::string_view head) { return name.starts_with(head); });
}

int five_digits(std::string_view text) {
    int value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return -1;
        value = value * 10 + (c - '0');
    }
    return value;
}

/// "NAME-00002-of-00003.gguf" is part 2 of 3; every other file is a part of its own.
Part part_of(std::string_view path) {
    const auto stem = path.substr(0, path.size() - 5);
    if (stem.size() > 15) {
        const auto tail = stem.substr(stem.size() - 15);
        const int number = five_digits(tail.substr(1, 5)), of = five_digits(tail.substr(10));
        if (tail[0] == '-' && tail.substr(6, 4) == "-of-" && number >= 1 && of >= number)
            return {std::string(stem.substr(0, stem.size() - 15)), number, of};
    }
    return {std::string(stem)};
}

/// What follows the last '-' or '.' of the name, together with "UD-" in front of it.
std::string label_of(std::string_view stem) {
    const auto name = file_name(stem);
    const std::size_t cut = name.find_last_of("-.");
    if (cut == name.npos) return std::string(name);
    const bool has_ud = cut >= 2 && lower(name.substr(cut - 2, 3)) == "ud-" &&
                        (cut == 2 || name[cut - 3] == '-' || name[cut - 3] == '.');
    return std::string(name.substr(has_ud ? cut - 2 : cut + 1));
}

std::string folder_of(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? std::string() : std::string(file_name(path.substr(0, slash)));
}

}  // namespace

std::uint64_t Candidate::bytes() const {
    std::uint64_t sum = 0;
    for (const auto& file : files) sum = std::max(sum, sum + file.size);  // what wraps stays large
    return sum;
}

bool Candidate::fits(std::string_view quant) const {
    return lower(label) == lower(quant) || lower(folder) == lower(quant);
}

std::vector<Candidate> candidates(std::vector<RepoFile> files) {
    std::ranges::sort(files, {}, &RepoFile::path);
    std::map<std::pair<std::string, int>, Candidate> found;  // by stem and number of parts
    for (auto& file : files) {
        if (!is_model(file.path)) continue;
        const Part part = part_of(file.path);
        Candidate& one = found[{part.stem, part.of}];
        one.label = label_of(part.stem);
        one.folder = folder_of(file.path);
        one.parts = part.of;
        one.files.push_back(std::move(file));
    }
    std::vector<Candidate> out;
    for (auto& [stem, one] : found) out.push_back(std::move(one));
    return out;
}

std::vector<const Candidate*> choose(const HubName& name, const std::vector<Candidate>& all) {
    const auto those = [&](const auto& is_meant) {
        std::vector<const Candidate*> out;
        for (const auto& one : all)
            if (is_meant(one)) out.push_back(&one);
        return out;
    };
    if (!name.path.empty())
        return those([&](const Candidate& one) {
            return std::ranges::any_of(one.files, [&](const RepoFile& file) { return file.path == name.path; });
        });
    const auto fitting = [&](std::string_view quant) {
        return those([&](const Candidate& one) { return one.fits(quant); });
    };
    if (!name.quant.empty()) return fitting(name.quant);
    for (const std::string_view usual : {"Q4_K_M", "Q8_0"})
        if (auto found = fitting(usual); !found.empty()) return found;
    return those([](const Candidate&) { return true; });
}

ShortNames::ShortNames(const std::vector<Candidate>& all) {
    for (const Candidate& one : all) {
        const std::string label = lower(one.label), folder = lower(one.folder);
        ++fitting_[label];
        if (folder != label) ++fitting_[folder];
    }
}

bool ShortNames::has_label(const Candidate& one) const {
    const auto fitting = fitting_.find(lower(one.label));
    return is_quant(one.label) && fitting != fitting_.end() && fitting->second == 1;
}

std::string ShortNames::text(const Candidate& one) const { return has_label(one) ? one.label : one.files.front().path; }

HubName ShortNames::name(const HubName& repository, const Candidate& one) const {
    HubName name = repository;
    name.quant = has_label(one) ? one.label : "";
    name.path = has_label(one) ? "" : one.files.front().path;
    return name;
}

std::string list_text(const std::vector<Candidate>& all) {
    constexpr std::size_t kMost = 40;
    const ShortNames names(all);
    std::string text;
    for (const Candidate& one : std::span(all).first(std::min(all.size(), kMost)))
        text += (text.empty() ? "" : ", ") + names.text(one) + " (" + size_text(one.bytes()) + ")";
    return all.size() > kMost ? text + " and " + std::to_string(all.size() - kMost) + " more" : text;
}

std::string missing_parts(const Candidate& one) {
    std::string text;
    std::size_t next = 0;
    for (int number = 1; number <= one.parts && text.size() < 200; ++number) {
        if (next < one.files.size() && part_of(one.files[next].path).number == number) ++next;
        else text += (text.empty() ? "" : ", ") + std::to_string(number);
    }
    return text;
}

std::string size_text(std::uint64_t bytes) {
    constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB"};
    std::size_t unit = 0;
    double value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
    const auto tenths = static_cast<std::uint64_t>(value * 10 + 0.5);
    return std::to_string(tenths / 10) + (unit == 0 ? "" : "." + std::to_string(tenths % 10)) + kUnits[unit];
}

}  // namespace tinfer::hub
