// SPDX-License-Identifier: MIT
// No input ends the process: files with random damage are loaded and, where that works, run. Whatever comes out is an
// Error or a clean run, in a second of processor time and in memory that follows from the size of the file.
#include <doctest/doctest.h>

#include <time.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"
#include "support/random_blocks.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

struct Source {
    std::string name;
    std::vector<std::byte> bytes;
    std::size_t front = 0;          ///< what comes before tensor data
    bool vocabulary_only = false;
};

double processor_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Source read_source(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    Source source{path.parent_path().filename().string() + "/" + path.filename().string(), std::vector<std::byte>(text.size())};
    std::memcpy(source.bytes.data(), text.data(), text.size());
    std::uint64_t front = source.bytes.size();
    const auto opened = ModelFile::open(path);   // kept: the tensors are its own
    for (const TensorInfo& tensor : opened.tensors()) front = std::min(front, tensor.file_offset);
    source.front = static_cast<std::size_t>(front);
    source.vocabulary_only = opened.tensors().empty();
    return source;
}

/// Tiny models of every architecture, with and without a vocabulary.
std::vector<Source> tiny_sources(const TempFolder& folder) {
    std::vector<Source> sources;
    for (const char* arch : {"llama", "qwen2", "qwen3", "llama-moe", "qwen2moe", "qwen3moe"})
        for (const DType type : {DType::f32, DType::q8_0, DType::q4_k, DType::iq2_xs}) {
            TinyModel tiny = TinyModel::of(arch, type);
            tiny.n_layer = 1;
            sources.push_back(read_source(tiny.save(folder.path())));
        }
    for (const auto& vocab : {small_bpe("gpt-2"), small_bpe("llama-bpe"), small_spm()}) {
        TinyModel tiny = TinyModel::of("llama");
        tiny.n_layer = 1;
        tiny.n_vocab = 512;   // more rows than tokens
        GgufWriter w = tiny.writer();
        w.take(vocab).set("general.architecture", GgufValue{std::string("llama")});
        w.save(folder / "with-vocab.gguf");
        sources.push_back(read_source(folder / "with-vocab.gguf"));
    }
    return sources;
}

/// Vocabularies, and models of the architectures of this build: others end at their name.
std::vector<Source> golden_sources() {
    std::vector<Source> sources;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(*golden_folder())) {
        if (entry.path().extension() != ".gguf") continue;
        Source source = read_source(entry.path());
        const std::string architecture = ModelFile::open(entry.path()).metadata_value("general.architecture").value_or("");
        const bool is_ours = std::ranges::any_of(architectures(), [&](const ArchitectureInfo& row) { return row.name == architecture; });
        if (source.vocabulary_only || is_ours) sources.push_back(std::move(source));
    }
    std::ranges::sort(sources, {}, &Source::name);   // a folder's order is the file system's whim
    return sources;
}

// ---- damage ---------------------------------------------------------------------------------------------------------

/// An integer that parsers get wrong.
std::uint64_t edge(Random& random) {
    constexpr std::uint64_t edges[] = {0, 1, 2, 3, 8, 9, 12, 31, 32, 64, 127, 128, 255, 256, 1024, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                       0x100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x7FC00000, 0x7F800000, 0x3FFFFFFFFFFFFFFF};
    return edges[random.below(std::size(edges))] + random.below(3) - 1;
}

void damage_once(std::vector<std::byte>& bytes, std::size_t front, Random& random) {
    if (bytes.empty()) return;
    // Most damage goes where the structure is; weights may hold any bytes.
    const std::size_t limit = random.below(5) != 0 ? std::min(front, bytes.size()) : bytes.size();
    const std::size_t at = random.below(std::max<std::size_t>(limit, 1)), length = std::min<std::size_t>(random.below(64), bytes.size() - at);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(8)) {
        case 0: *place ^= static_cast<std::byte>(1u << random.below(8)); break;
        case 1: case 2: *place = static_cast<std::byte>(random.bits()); break;
        case 3: case 4: {
            const std::size_t width = std::min<std::size_t>(std::size_t{1} << random.below(4), bytes.size() - at);
            const std::uint64_t value = edge(random);
            std::memcpy(&*place, &value, width);
            break;
        }
        case 5: std::fill_n(place, length, static_cast<std::byte>(random.below(2) == 0 ? 0xFF : random.bits())); break;
        case 6:
            if (random.below(2) == 0) bytes.erase(place, place + static_cast<std::ptrdiff_t>(length));
            else bytes.insert(place, length, static_cast<std::byte>(random.bits()));
            break;
        default:
            if (random.below(4) == 0) bytes.resize(random.below(bytes.size() + 1));
            else for (std::size_t i = 0; i < length; ++i) bytes[at + i] = bytes[random.below(bytes.size())];
    }
}

std::vector<std::byte> damaged(const Source& source, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> bytes = source.bytes;
    for (std::uint64_t n = 1 + random.below(1 + random.below(6)); n > 0; --n) damage_once(bytes, source.front, random);
    return bytes;
}

// ---- what a program would do with a file ----------------------------------------------------------------------------

void use_text(const Vocab& vocab) {
    for (std::size_t id = 0; id < std::min<std::size_t>(vocab.size(), 500); ++id) (void)vocab.piece(Token{static_cast<std::int32_t>(id)}, true);
    try {
        (void)vocab.decode(vocab.encode("Hello <s> w\xC3\xB6rld\n\xFF 123", {.parse_special = true}), {.render_special = true});
    } catch (const Error&) {   // no tokenizer; the model may run all the same
    }
}

void use_model(const std::filesystem::path& path, bool use_mmap, bool check) {
    const auto model = Model::load(path, {.use_mmap = use_mmap, .check_tensors = check});
    use_text(model.vocab());
    Context context(model, {.n_ctx = 64, .n_ubatch = 4, .n_threads = 1});
    const std::int32_t last = model.info().n_vocab - 1;
    (void)context.decode(std::vector{Token{0}, Token{std::min(1, last)}, Token{last}});
    Sampler sampler(model.vocab(), {.seed = 1});
    const Token token = sampler.sample(context);   // NaN among the logits: an Error
    if (static_cast<std::size_t>(token) < model.vocab().size()) (void)model.vocab().piece(token);
    (void)context.decode(std::vector{token});
}

struct Tally { int clean = 0, refused = 0; double slowest = 0; std::string wrong; };

void try_file(const std::filesystem::path& path, std::size_t size, std::uint64_t seed, const Source& source, Tally& tally) {
    const std::string where = source.name + ", seed " + std::to_string(seed) + ": ";
    const AllocationScope scope;
    const double begin = processor_seconds();
    try {
        if (source.vocabulary_only) use_text(Vocab::load(path));
        else use_model(path, seed % 2 == 0, seed % 5 == 0);
        ++tally.clean;
    } catch (const Error& error) {
        ++tally.refused;
        if (std::strlen(error.what()) == 0) tally.wrong = where + "no message";
    } catch (const std::exception& error) {
        tally.wrong = where + "another exception: " + error.what();
    }
    const double seconds = processor_seconds() - begin;
    const auto peak = static_cast<std::uint64_t>(scope.peak());
    tally.slowest = std::max(tally.slowest, seconds);
    if (seconds > 1.0) tally.wrong = where + "took " + std::to_string(seconds) + " s";
    if (peak > 4 * size + (64u << 20)) tally.wrong = where + "held " + std::to_string(peak) + " bytes for a file of " + std::to_string(size);
    if (scope.live() != 0 && tally.wrong.empty() && scope.live() > 4096) tally.wrong = where + "left " + std::to_string(scope.live()) + " bytes behind";
}

Tally try_damages(const std::vector<Source>& sources, std::uint64_t first_seed, int count) {
    const TempFolder folder;
    const auto path = folder / "damaged.gguf";   // lies there still when the process is ended
    Tally tally;
    for (int i = 0; i < count && tally.wrong.empty(); ++i) {
        const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
        const Source& source = sources[seed % sources.size()];
        const auto bytes = damaged(source, seed);
        std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        try_file(path, bytes.size(), seed, source, tally);
    }
    return tally;
}

void check_tally(const Tally& tally, int count) {
    CAPTURE(tally.slowest);
    CHECK(tally.wrong == "");
    CHECK(tally.clean + tally.refused == count);
    CHECK(tally.refused > count / 20);   // the damage does damage …
    CHECK(tally.clean > count / 100);    // … and some of it is survived: both ends were tried
}

}  // namespace

TEST_CASE("[N3] undamaged files pass the same treatment") {
    const TempFolder folder;
    for (const Source& source : tiny_sources(folder)) {
        Tally tally;
        const auto path = folder / "whole.gguf";
        std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(source.bytes.data()), static_cast<std::streamsize>(source.bytes.size()));
        for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) try_file(path, source.bytes.size(), seed, source, tally);
        CHECK(tally.wrong == "");
        CHECK(tally.clean == 4);
    }
}

TEST_CASE("[N3] 300 random damages of tiny models give an error or a clean run") {
    const TempFolder folder;
    check_tally(try_damages(tiny_sources(folder), 1, 300), 300);
}

TEST_CASE("[N3][golden] 100 random damages of models and vocabularies of all kinds give an error or a clean run") {
    if (skip_without_golden()) return;
    check_tally(try_damages(golden_sources(), 1, 100), 100);
}

TEST_CASE("[N3][slow] 5,000 random damages of tiny models give an error or a clean run") {
    const TempFolder folder;
    check_tally(try_damages(tiny_sources(folder), 1'000'000, 5000), 5000);
}

TEST_CASE("[N3][slow][golden] 5,000 random damages of models and vocabularies of all kinds give an error or a clean run") {
    if (skip_without_golden()) return;
    check_tally(try_damages(golden_sources(), 2'000'000, 5000), 5000);
}

TEST_CASE("[N3] every truncation of a small file is refused") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama");
    tiny.n_layer = 1;
    tiny.n_vocab = 8;
    const Source source = read_source(tiny.save(folder.path()));
    const auto path = folder / "cut.gguf";
    const std::size_t step = std::max<std::size_t>(1, source.front / 400);
    for (std::size_t size = 0; size < source.bytes.size(); size += size < source.front ? step : 997) {
        std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(source.bytes.data()), static_cast<std::streamsize>(size));
        CAPTURE(size);
        CHECK_THROWS_AS((void)Model::load(path), Error);
    }
}

}  // namespace tinfer::test
