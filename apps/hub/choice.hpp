// SPDX-License-Identifier: MIT
// Which file of a repository a name means. A split model, `-00001-of-00003.gguf` and so on, is one choice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "name.hpp"

namespace tinfer::hub {

/// A file in a repository, in the hub's tree or in a snapshot.
struct RepoFile {
    std::string path;
    std::uint64_t size = 0;
    std::string hash;  ///< its blob's name: 64 digits (SHA-256) or 40 (git's SHA-1); empty in a plain snapshot
};

/// Files that are one model.
struct Candidate {
    std::string label;            ///< "Q4_K_M", "UD-Q4_K_XL"; as it is written in the file's name
    std::string folder;           ///< the file's own folder, which may be named like the label
    std::vector<RepoFile> files;  ///< in their order
    int parts = 1;                ///< that a split model should have; `files` may be fewer

    [[nodiscard]] bool is_complete() const { return static_cast<int>(files.size()) == parts; }
    [[nodiscard]] std::uint64_t bytes() const;
    [[nodiscard]] bool fits(std::string_view quant) const;
};

/// The models among these files, in the order of their paths; projectors, importance matrices and draft heads are none.
[[nodiscard]] std::vector<Candidate> candidates(std::vector<RepoFile> files);
/// Those of them that the name means: by its path or quantization; without them Q4_K_M, else Q8_0, else the only one.
/// Not exactly one: it is not clear what is meant.
[[nodiscard]] std::vector<const Candidate*> choose(const HubName& name, const std::vector<Candidate>& all);
/// What tells the models of a repository from each other.
class ShortNames {
public:
    explicit ShortNames(const std::vector<Candidate>& all);
    /// Whether the label means this one of them and nothing else, and can stand in a name.
    [[nodiscard]] bool has_label(const Candidate& one) const;
    /// Its label, or the path of its first file.
    [[nodiscard]] std::string text(const Candidate& one) const;
    /// OWNER/REPO:QUANT, or OWNER/REPO/PATH; with the revision of `repository`.
    [[nodiscard]] HubName name(const HubName& repository, const Candidate& one) const;

private:
    std::map<std::string, int> fitting_;  // how many a quantization fits
};
/// "Q4_K_M (1.1 GiB), Q8_0 (2.0 GiB)"; of more than forty the first ones, and how many follow.
[[nodiscard]] std::string list_text(const std::vector<Candidate>& all);
/// "98.4 MiB"
[[nodiscard]] std::string size_text(std::uint64_t bytes);
/// The parts that a split model lacks, as "2, 3".
[[nodiscard]] std::string missing_parts(const Candidate& one);

}  // namespace tinfer::hub
