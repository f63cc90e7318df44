// SPDX-License-Identifier: MIT
#include "manifest.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "common.hpp"
#include "hub/plain_text.hpp"

namespace tinfer::app {

namespace {

constexpr std::string_view kManifestFormat = "tinfer-manifest-1";

void check_interrupt(std::string_view what) {
    if (interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, std::string(what) + ": interrupted");
}

std::string tensor_sha256(const tinfer::ModelFile& file, const tinfer::TensorInfo& tensor) {
    std::vector<std::byte> piece(std::size_t{1} << 20);
    tinfer::Sha256 hash;
    for (std::uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
        check_interrupt(tensor.name);
        const auto part =
            std::span(piece).first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), tensor.bytes - at)));
        tinfer::read_tensor(file, tensor, at, part);
        hash.update(part);
    }
    return tinfer::to_hex(hash.finish());
}

/// Of metadata and directory: everything before the first byte of data.
std::string header_sha256(const tinfer::ModelFile& file, std::size_t shard, const std::string& path) {
    std::uint64_t bytes = std::filesystem::file_size(path);
    for (const auto& tensor : file.tensors())
        if (tensor.file_index == static_cast<int>(shard)) bytes = tensor.file_offset - tensor.data_offset;
    std::ifstream in(path, std::ios::binary);
    std::vector<char> piece(std::size_t{1} << 20);
    tinfer::Sha256 hash;
    for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), bytes - at));
        if (!in.read(piece.data(), static_cast<std::streamsize>(part)))
            throw tinfer::Error(tinfer::ErrorCode::io_error, path + ": cannot be read");
        hash.update(std::string_view(piece.data(), part));
    }
    return tinfer::to_hex(hash.finish());
}

tinfer::Json shape_of(const tinfer::TensorInfo& tensor) {
    tinfer::Json ne = tinfer::Json::array();
    for (int d = 0; d < tensor.n_dims; ++d) ne.push_back(tensor.ne[static_cast<std::size_t>(d)]);
    return ne;
}

/// Differences as lines and as a document.
class FileFindings {
public:
    void add(std::string_view kind, std::string_view name, std::string_view what) {
        list_.push_back(
            tinfer::Json{{"kind", std::string(kind)}, {"name", std::string(name)}, {"what", std::string(what)}});
    }
    int report(bool as_json, std::string_view equal) const {
        if (as_json) print(tinfer::Json{{"equal", list_.empty()}, {"differences", list_}}.dump() + "\n");
        else if (list_.empty()) print(std::string(equal) + "\n");
        else
            for (const auto& one : list_)
                print(std::string(one.text("kind")) + "  " + hub::spell_controls(one.text("name")) + "  " +
                      hub::spell_controls(one.text("what")) + "\n");
        return list_.empty() ? 0 : 1;
    }

private:
    tinfer::Json list_ = tinfer::Json::array();
};

std::string short_text(const tinfer::Json& value) {
    std::string text = value.is_string() ? value.string() : value.dump();
    constexpr std::size_t most = 60;
    if (text.size() > most) {
        std::size_t cut = most;
        while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
        text.resize(cut);
        text += "…";
    }
    return text;
}

/// The first element at which two arrays part.
std::string array_difference(const tinfer::Json& a, const tinfer::Json& b) {
    std::size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    std::string text = std::to_string(a.size()) + " elements, " + std::to_string(b.size()) + " there";
    if (i < a.size() && i < b.size())
        text += "; the first that differs is " + std::to_string(i) + ": " + short_text(a[i]) + ", " + short_text(b[i]) +
                " there";
    return text;
}

void compare_metadata(const tinfer::Json& a, const tinfer::Json& b, FileFindings& findings) {
    std::map<std::string_view, const tinfer::Json*> others;
    for (const auto& member : b.items()) others.emplace(member.key, &member.value);
    for (const auto& [key, ours] : a.items()) {
        const auto found = others.find(key);
        if (found == others.end()) {
            findings.add("metadata", key, "is missing there");
            continue;
        }
        const tinfer::Json &x = ours, &y = *found->second;
        others.erase(found);
        if (x.text("type") != y.text("type"))
            findings.add("metadata", key, std::string(x.text("type")) + ", " + std::string(y.text("type")) + " there");
        else if (!(x["value"] == y["value"]))
            findings.add("metadata", key,
                         x["value"].is_array() ? array_difference(x["value"], y["value"])
                                               : short_text(x["value"]) + ", " + short_text(y["value"]) + " there");
    }
    for (const auto& [key, value] : others) findings.add("metadata", key, "is there alone");
}

std::string layout_text(const tinfer::TensorInfo& tensor) {
    return std::string(tinfer::to_string(tensor.type)) + " " + shape_of(tensor).dump();
}

}  // namespace

tinfer::Json manifest_of(const tinfer::ModelFile& file) {
    tinfer::Json files = tinfer::Json::array(), tensors = tinfer::Json::array();
    const auto paths = file.paths();
    for (std::size_t i = 0; i < paths.size(); ++i)
        files.push_back(tinfer::Json{{"name", paths[i].filename().string()},
                                     {"bytes", std::filesystem::file_size(paths[i])},
                                     {"sha256", tinfer::to_hex(tinfer::sha256_file(paths[i]))},
                                     {"header_sha256", header_sha256(file, i, paths[i].string())}});
    for (const auto& tensor : file.tensors())
        tensors.push_back(tinfer::Json{{"name", std::string(tensor.name)},
                                       {"type", std::string(tinfer::to_string(tensor.type))},
                                       {"ne", shape_of(tensor)},
                                       {"bytes", tensor.bytes},
                                       {"sha256", tensor_sha256(file, tensor)}});
    return {{"format", std::string(kManifestFormat)}, {"files", std::move(files)}, {"tensors", std::move(tensors)}};
}

namespace {

void compare_with_manifest(const tinfer::ModelFile& file, const tinfer::Json& manifest, FileFindings& findings) {
    std::map<std::string, const tinfer::Json*, std::less<>> expected;
    for (const auto& tensor : manifest["tensors"]) expected.emplace(tensor.text("name"), &tensor);
    for (const auto& tensor : file.tensors()) {
        const auto found = expected.find(tensor.name);
        if (found == expected.end()) {
            findings.add("tensor", tensor.name, "is not in the manifest");
            continue;
        }
        const tinfer::Json& theirs = *found->second;
        expected.erase(found);
        if (theirs.text("type") != tinfer::to_string(tensor.type) || !(theirs["ne"] == shape_of(tensor)))
            findings.add("tensor", tensor.name,
                         layout_text(tensor) + ", expected " + std::string(theirs.text("type")) + " " +
                             theirs["ne"].dump());
        else if (const auto hash = tensor_sha256(file, tensor); theirs.text("sha256") != hash)
            findings.add("data", tensor.name, "sha256 " + hash + ", expected " + std::string(theirs.text("sha256")));
    }
    for (const auto& [name, tensor] : expected) findings.add("tensor", name, "is missing");
    const auto paths = file.paths();
    const tinfer::Json& files = manifest["files"];
    if (files.size() != paths.size()) {
        findings.add("file", paths[0].filename().string(),
                     counted(paths.size(), "file") + ", expected " + std::to_string(files.size()));
        return;
    }
    for (std::size_t i = 0; i < paths.size(); ++i)
        if (header_sha256(file, i, paths[i].string()) != files[i].text("header_sha256"))
            findings.add("metadata", paths[i].filename().string(), "metadata or directory are other bytes");
        else if (tinfer::to_hex(tinfer::sha256_file(paths[i])) != files[i].text("sha256"))
            findings.add("file", paths[i].filename().string(), "is other bytes");
}

bool is_sha256(std::string_view text) {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

}  // namespace

int check_expectation(const tinfer::ModelFile& file, const std::string& expected, bool as_json) {
    FileFindings findings;
    if (is_sha256(expected)) {
        std::string wanted = expected;
        for (char& c : wanted) c = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
        for (const auto& path : file.paths())
            if (const auto hash = tinfer::to_hex(tinfer::sha256_file(path)); hash != wanted)
                findings.add("file", path.filename().string(), "sha256 " + hash + ", expected " + wanted);
    } else {
        const auto manifest = tinfer::Json::parse(read_document(expected, "--expect"), expected);
        if (manifest.text("format") != kManifestFormat)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                "--expect " + expected + ": neither 64 hexadecimal digits nor a manifest (" +
                                    std::string(kManifestFormat) + ")");
        compare_with_manifest(file, manifest, findings);
    }
    return findings.report(as_json, "as expected");
}

int compare_files(const tinfer::ModelFile& a, const tinfer::ModelFile& b, bool as_json) {
    FileFindings findings;
    const auto ours = tinfer::Json::parse(a.json()), theirs = tinfer::Json::parse(b.json());
    compare_metadata(ours["metadata"], theirs["metadata"], findings);
    for (const auto& tensor : a.tensors()) {
        const auto* other = b.find(tensor.name);
        if (other == nullptr) {
            findings.add("tensor", tensor.name, "is missing there");
            continue;
        }
        if (tensor.type != other->type || tensor.ne != other->ne)
            findings.add("tensor", tensor.name, layout_text(tensor) + ", " + layout_text(*other) + " there");
        else if (tensor_sha256(a, tensor) != tensor_sha256(b, *other))
            findings.add("data", tensor.name, size_text(tensor.bytes) + " of " + layout_text(tensor) + " differ");
    }
    for (const auto& tensor : b.tensors())
        if (a.find(tensor.name) == nullptr) findings.add("tensor", tensor.name, "is there alone");
    return findings.report(as_json, "equal: metadata, tensors, data");
}

}  // namespace tinfer::app
