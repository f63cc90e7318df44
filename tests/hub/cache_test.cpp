// SPDX-License-Identifier: MIT
// The cache of the hub's clients and Ollama's store, as other programs leave them.
#include "hub/cache.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <tinfer/base.hpp>

#include "hub/hub.hpp"

using namespace tinfer::hub;
namespace fs = std::filesystem;

namespace {

const std::string kNew(40, 'a'), kOld(40, 'b');

struct Folder {
    fs::path path = fs::temp_directory_path() / ("tinfer_hub_cache_" + std::to_string(::getpid()));
    Folder() { fs::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { fs::remove_all(path); }

    void write(const fs::path& name, const std::string& bytes) const {
        fs::create_directories((path / name).parent_path());
        std::ofstream(path / name, std::ios::binary) << bytes;
    }
    void link(const std::string& commit, const std::string& name, const std::string& hash) const {
        const fs::path repo = "models--o--r";
        if (!fs::exists(path / repo / "blobs" / hash)) write(repo / "blobs" / hash, "GGUF" + hash.substr(0, 6));
        const fs::path at = path / repo / "snapshots" / commit / name;
        fs::create_directories(at.parent_path());
        fs::create_symlink((path / repo / "blobs" / hash).lexically_relative(at.parent_path()), at);
    }
    [[nodiscard]] Settings settings() const {
        Settings out;
        out.cache = path;
        out.ollama_models = path / "ollama";
        out.offline = true;
        return out;
    }
};

std::string found(const std::string& name, const Folder& folder) {
    const auto files = find_cached(name, folder.settings());
    return files ? files->id + " " + files->commit.substr(0, 1) : "none";
}

}  // namespace

TEST_CASE("[V15] cache: main's snapshot counts, then older ones, and a revision alone") {
    const Folder folder;
    CHECK(found("o/r", folder) == "none");
    CHECK(list(folder.settings()).empty());
    folder.link(kOld, "M-Q8_0.gguf", std::string(64, '1'));
    folder.link(kOld, "M-Q6_K.gguf", std::string(64, '2'));
    folder.link(kNew, "M-Q8_0.gguf", std::string(64, '3'));
    folder.write("models--o--r/refs/main", kNew);
    CHECK(found("hf:o/r:q8_0", folder) == "o/r:Q8_0 a");
    CHECK(found("hf.co/o/r:Q6_K", folder) == "o/r:Q6_K b");
    CHECK(found("o/r@main:Q6_K", folder) == "none");
    CHECK(found("o/r@" + kOld + ":Q8_0", folder) == "o/r@" + kOld + ":Q8_0 b");
    CHECK(found("o/r:Q4_0", folder) == "none");
    CHECK(found("other/r", folder) == "none");

    std::vector<std::string> names;
    for (const auto& model : list(folder.settings())) {
        names.push_back(model.name);
        CHECK(model.complete);
        CHECK(model.bytes == 10);
        const auto files = find_cached(model.name, folder.settings());  // each row's name gives its files
        REQUIRE(files);
        CHECK(files->paths == model.paths);
        CHECK(files->commit == model.commit);
    }
    CHECK(names == std::vector<std::string>{"o/r:Q6_K", "o/r:Q8_0", "o/r@" + kOld + ":Q8_0"});
}

TEST_CASE("[V15] cache: sets with a part missing, broken links, partial downloads and plain files") {
    const Folder folder;
    folder.write("models--o--r/refs/main", kNew);
    folder.link(kNew, "S-Q8_0-00001-of-00002.gguf", std::string(64, '4'));
    CHECK(found("o/r:Q8_0", folder) == "none");
    CHECK_FALSE(list(folder.settings())[0].complete);
    folder.link(kNew, "S-Q8_0-00002-of-00002.gguf", std::string(64, '5'));
    CHECK(found("o/r", folder) == "o/r:Q8_0 a");
    CHECK(find_cached("o/r", folder.settings())->paths.size() == 2);
    fs::remove(folder.path / "models--o--r/blobs" / std::string(64, '5'));
    CHECK(found("o/r", folder) == "none");
    folder.write("models--o--r/snapshots/" + kNew + "/folder/plain-F16.gguf", "GGUF");
    CHECK(found("o/r:F16", folder) == "o/r:F16 a");
    folder.write("models--o--r/blobs/" + std::string(64, '6') + ".incomplete", "GG");
    const auto rows = list(folder.settings());
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].name == "o/r");
    CHECK(rows[0].bytes == 2);
    CHECK_FALSE(rows[0].complete);
}

TEST_CASE("[V15] cache: a file of any name is listed, and hides no other") {
    const Folder folder;
    folder.link(kNew, "my model (1).gguf", std::string(64, '1'));
    folder.link(kNew, "q:script>.gguf", std::string(64, '2'));
    folder.link(kNew, "M-Q8_0.gguf", std::string(64, '3'));
    std::vector<std::string> names;
    for (const auto& model : list(folder.settings())) names.push_back(model.name);
    CHECK(names == std::vector<std::string>{"o/r/my model (1).gguf", "o/r/q:script>.gguf", "o/r:Q8_0"});
    for (const auto& name : names) CHECK(found(name, folder) == name + " a");
}

TEST_CASE("[V15] cache: a name that fits several is refused with the list") {
    const Folder folder;
    folder.write("models--o--r/refs/main", kNew + "\n");
    folder.link(kNew, "M-Q5_K.gguf", std::string(64, '1'));
    folder.link(kNew, "M-Q6_K.gguf", std::string(64, '2'));
    CHECK_THROWS_WITH_AS((void)found("o/r", folder), doctest::Contains("Q5_K (10 B), Q6_K (10 B)"), tinfer::Error);
    CHECK_THROWS_WITH_AS((void)resolve("hf:o/r:Q8_0", folder.settings()), doctest::Contains("and offline"),
                         tinfer::Error);
}

TEST_CASE("[V15] ollama: a manifest leads to its blob") {
    const Folder folder;
    const std::string hash(64, 'c'), at = "ollama/manifests/registry.ollama.ai/library/tiny/";
    const auto manifest = [](const std::string& kind, const std::string& digest) {
        return R"({"layers":[{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:x"},)"
               R"({"mediaType":"application/vnd.ollama.image.)" +
               kind + R"(","digest":")" + digest + R"("}]})";
    };
    folder.write(at + "latest", manifest("model", "sha256:" + hash));
    CHECK_THROWS_WITH_AS((void)resolve("ollama:tiny", folder.settings()), doctest::Contains("is missing"),
                         tinfer::Error);
    folder.write("ollama/blobs/sha256-" + hash, "GGUF");
    const auto files = resolve("ollama:tiny", folder.settings());
    CHECK(files.id == "tiny:latest");
    CHECK(files.paths[0].filename() == "sha256-" + hash);
    CHECK_THROWS_WITH_AS((void)resolve("ollama:tiny:8b", folder.settings()), doctest::Contains("not in Ollama's store"),
                         tinfer::Error);
    for (const char* kind : {"adapter", "projector"}) {
        folder.write(at + kind, manifest(kind, "sha256:" + hash));
        CHECK_THROWS_WITH_AS((void)resolve("ollama:tiny:" + std::string(kind), folder.settings()),
                             doctest::Contains("not supported"), tinfer::Error);
    }
    for (const auto& digest : {std::string("sha256:../../x"), "sha256:" + std::string(63, 'c'), std::string("md5:x")}) {
        folder.write(at + "bad", manifest("model", digest));
        CHECK_THROWS_WITH_AS((void)resolve("ollama:tiny:bad", folder.settings()), doctest::Contains("no sha256:HEX"),
                             tinfer::Error);
    }
    folder.write(at + "text", "no JSON");
    CHECK_THROWS_AS((void)resolve("ollama:tiny:text", folder.settings()), tinfer::Error);
}
