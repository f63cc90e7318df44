// SPDX-License-Identifier: MIT
// No input ends the process: files with random damage are loaded and, where that works, run. Whatever comes out is an
// Error or a clean run, within a second and in memory that follows from the size of the file.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"
#include "support/random_blocks.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

/// What this build makes of a whole file.
enum class Kind : std::uint8_t {
    model,       ///< it runs
    vocabulary,  ///< no tensors: its text is used
    other,       ///< a model of an architecture that is not in the registry: refused, damaged or not
};

struct Source {
    std::string name;
    std::vector<std::byte> bytes;
    std::size_t front = 0;  ///< what comes before tensor data
    Kind kind = Kind::model;
};

Source read_source(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    Source source{path.parent_path().filename().string() + "/" + path.filename().string(),
                  std::vector<std::byte>(text.size())};
    std::memcpy(source.bytes.data(), text.data(), text.size());
    std::uint64_t front = source.bytes.size();
    const auto opened = ModelFile::open(path);  // kept: the tensors are its own
    for (const TensorInfo& tensor : opened.tensors()) front = std::min(front, tensor.file_offset);
    source.front = static_cast<std::size_t>(front);
    const std::string architecture = opened.metadata_value("general.architecture").value_or("");
    const bool registered =
        std::ranges::any_of(architectures(), [&](const ArchitectureInfo& row) { return row.name == architecture; });
    source.kind = opened.tensors().empty() ? Kind::vocabulary : registered ? Kind::model : Kind::other;
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
        tiny.n_vocab = 512;  // more rows than tokens
        GgufWriter w = tiny.writer();
        w.take(vocab).set("general.architecture", GgufValue{std::string("llama")});
        w.save(folder / "with-vocab.gguf");
        sources.push_back(read_source(folder / "with-vocab.gguf"));
    }
    return sources;
}

/// Every model and vocabulary of the golden data: models that run, models that do not, vocabularies.
std::vector<Source> golden_sources() {
    std::vector<Source> sources;
    for (const auto& folder : golden_entries("models"))
        if (std::filesystem::exists(folder / "model.gguf")) sources.push_back(read_source(folder / "model.gguf"));
    for (const auto& path : golden_entries("vocabs"))
        if (path.extension() == ".gguf") sources.push_back(read_source(path));
    std::ranges::sort(sources, {}, &Source::name);  // a folder's order is the file system's whim
    return sources;
}

// ---- damage ---------------------------------------------------------------------------------------------------------

/// An integer that parsers get wrong.
std::uint64_t edge(Random& random) {
    constexpr std::uint64_t edges[] = {0,
                                       1,
                                       2,
                                       3,
                                       8,
                                       9,
                                       12,
                                       31,
                                       32,
                                       64,
                                       127,
                                       128,
                                       255,
                                       256,
                                       1024,
                                       65535,
                                       65536,
                                       0x7FFFFFFF,
                                       0x80000000,
                                       0xFFFFFFFF,
                                       0x100000000,
                                       0x7FFFFFFFFFFFFFFF,
                                       0x8000000000000000,
                                       0xFFFFFFFFFFFFFFFF,
                                       0x7FC00000,
                                       0x7F800000,
                                       0x3FFFFFFFFFFFFFFF};
    return edges[random.below(std::size(edges))] + random.below(3) - 1;
}

void damage_once(std::vector<std::byte>& bytes, std::size_t front, Random& random) {
    if (bytes.empty()) return;
    // Most damage goes where the structure is; weights may hold any bytes.
    const std::size_t limit = random.below(5) != 0 ? std::min(front, bytes.size()) : bytes.size();
    const std::size_t at = random.below(std::max<std::size_t>(limit, 1)),
                      length = std::min<std::size_t>(random.below(64), bytes.size() - at);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(8)) {
        case 0: *place ^= static_cast<std::byte>(1u << random.below(8)); break;
        case 1:
        case 2: *place = static_cast<std::byte>(random.bits()); break;
        case 3:
        case 4: {
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
            else
                for (std::size_t i = 0; i < length; ++i) bytes[at + i] = bytes[random.below(bytes.size())];
    }
}

/// One to six damages, which few files survive; for every fourth seed one byte anywhere, as memory and disks do it,
/// which many survive: what runs then are weights, tokens and hyper-parameters that nobody meant.
std::vector<std::byte> damaged(const Source& source, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> bytes = source.bytes;
    if (random.below(4) == 0) {
        bytes[random.below(bytes.size())] = static_cast<std::byte>(random.bits());
        return bytes;
    }
    for (std::uint64_t n = 1 + random.below(1 + random.below(6)); n > 0; --n) damage_once(bytes, source.front, random);
    return bytes;
}

// ---- what a program would do with a file ----------------------------------------------------------------------------

void use_text(const Vocab& vocab) {
    for (std::size_t id = 0; id < std::min<std::size_t>(vocab.size(), 500); ++id)
        (void)vocab.piece(Token{static_cast<std::int32_t>(id)}, true);
    try {
        (void)vocab.decode(vocab.encode("Hello <s> w\xC3\xB6rld\n\xFF 123", {.parse_special = true}),
                           {.render_special = true});
    } catch (const Error&) {  // no tokenizer; the model may run all the same
    }
}

void use_model(const std::filesystem::path& path, bool use_mmap, bool check) {
    const auto model = Model::load(path, {.use_mmap = use_mmap, .check_tensors = check});
    use_text(model.vocab());
    Context context(model, {.n_ctx = 64, .n_ubatch = 4, .n_threads = 1});
    const std::int32_t last = model.info().n_vocab - 1;
    (void)context.decode(std::vector{Token{0}, Token{std::min(1, last)}, Token{last}});
    if (!model.info().has_output_head) return;  // an encoder: embeddings and nothing to sample
    Sampler sampler(model.vocab(), {.seed = 1});
    const Token token = sampler.sample(context);  // NaN among the logits: an Error
    if (static_cast<std::size_t>(token) < model.vocab().size()) (void)model.vocab().piece(token);
    (void)context.decode(std::vector{token});
}

// ---- attempts and their tally ---------------------------------------------------------------------------------------

/// A user waits by the wall. Sanitizers slow everything by an order of magnitude, so there it is processor time.
double seconds_now() {
    if (kSanitized) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Attempt {
    bool clean = false;
    double seconds = 0;
    std::string wrong;
};

Attempt attempt_file(const std::filesystem::path& path, std::uint64_t seed, const Source& source) {
    Attempt attempt;
    const std::uint64_t size = std::filesystem::file_size(path);
    const AllocationScope scope;
    const double begin = seconds_now();
    try {
        if (source.kind == Kind::vocabulary) use_text(Vocab::load(path));
        else use_model(path, seed % 2 == 0, seed % 5 == 0);
        attempt.clean = true;
    } catch (const Error& error) {
        if (std::strlen(error.what()) == 0) attempt.wrong = "no message";
    } catch (const std::exception& error) {
        attempt.wrong = std::string("another exception: ") + error.what();
    }
    attempt.seconds = seconds_now() - begin;
    const auto peak = static_cast<std::uint64_t>(scope.peak());
    if (peak > 4 * size + (64u << 20))
        attempt.wrong = "held " + std::to_string(peak) + " bytes for a file of " + std::to_string(size);
    if (scope.live() > 4096 && attempt.wrong.empty())
        attempt.wrong = "left " + std::to_string(scope.live()) + " bytes behind";
    return attempt;
}

struct Tally {
    struct Count {
        int clean = 0, refused = 0;
    };
    std::array<Count, 3> counts{};  ///< by kind
    double slowest = 0;             ///< s, after a second try where there was one
    std::string wrong;

    [[nodiscard]] const Count& of(Kind kind) const { return counts[static_cast<std::size_t>(kind)]; }
};

/// A machine that is busy with other tests may stretch any attempt, so one that took over a second is made once more,
/// and is a finding when it takes that long again. A run that never ends is found by the timeout of the suite.
void try_file(const std::filesystem::path& path, std::uint64_t seed, const Source& source, Tally& tally) {
    constexpr double kLimit = 1.0;  // s
    Attempt attempt = attempt_file(path, seed, source);
    if (attempt.seconds > kLimit && attempt.wrong.empty()) attempt = attempt_file(path, seed, source);
    if (attempt.seconds > kLimit && attempt.wrong.empty())
        attempt.wrong = "took " + std::to_string(attempt.seconds) + " s, twice";
    Tally::Count& count = tally.counts[static_cast<std::size_t>(source.kind)];
    ++(attempt.clean ? count.clean : count.refused);
    tally.slowest = std::max(tally.slowest, attempt.seconds);
    if (!attempt.wrong.empty()) tally.wrong = source.name + ", seed " + std::to_string(seed) + ": " + attempt.wrong;
}

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Tally try_damages(const std::vector<Source>& sources, std::uint64_t first_seed, int count) {
    const TempFolder folder;
    const auto path = folder / "damaged.gguf";  // lies there still when the process is ended
    Tally tally;
    for (int i = 0; i < count && tally.wrong.empty(); ++i) {
        const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
        const Source& source = sources[seed % sources.size()];
        write_bytes(path, damaged(source, seed));
        try_file(path, seed, source, tally);
    }
    return tally;
}

/// Both ends must have been tried, on models and on vocabularies: damage that is refused and damage that is survived. A
/// hundred tries are the fewest that tell.
void check_tally(const Tally& tally, int count) {
    int tried = 0;
    for (const Kind kind : {Kind::model, Kind::vocabulary, Kind::other}) {
        const auto [clean, refused] = tally.of(kind);
        tried += clean + refused;
        CAPTURE(static_cast<int>(kind));
        CAPTURE(clean);
        CAPTURE(refused);
        if (kind == Kind::other) CHECK(clean == 0);
        else if (clean + refused >= 100) CHECK((clean > (clean + refused) / 50 && refused > (clean + refused) / 20));
    }
    CAPTURE(tally.slowest);
    CHECK(tally.wrong == "");
    CHECK(tried == count);
}

void check_golden_damages(std::uint64_t first_seed, int count) {
    const auto sources = golden_sources();
    if (!sources.empty())
        check_tally(try_damages(sources, first_seed, count), count);  // none: golden_entries has said so
}

}  // namespace

TEST_CASE("undamaged files pass the same treatment") {
    const TempFolder folder;
    for (const Source& source : tiny_sources(folder)) {
        Tally tally;
        const auto path = folder / "whole.gguf";
        write_bytes(path, source.bytes);
        for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) try_file(path, seed, source, tally);
        CHECK(tally.wrong == "");
        CHECK(tally.of(Kind::model).clean == 4);
    }
}

TEST_CASE("[golden] undamaged golden files run, or are refused for their architecture") {
    if (skip_without_golden()) return;
    const TempFolder folder;
    const auto path = folder / "whole.gguf";
    for (const Source& source : golden_sources()) {
        CAPTURE(source.name);
        write_bytes(path, source.bytes);
        Tally tally;
        try_file(path, 0, source, tally);
        CHECK(tally.wrong == "");
        CHECK(tally.of(source.kind).clean == (source.kind == Kind::other ? 0 : 1));
        if (source.kind != Kind::other) continue;
        try {
            (void)Model::load(path);
            FAIL_CHECK("loaded");
        } catch (const Error& error) {
            CHECK((error.code() == ErrorCode::unsupported_arch || error.code() == ErrorCode::unknown_arch));
        }
    }
}

TEST_CASE("[N3] 300 random damages of tiny models give an error or a clean run") {
    const TempFolder folder;
    check_tally(try_damages(tiny_sources(folder), 1, 300), 300);
}

TEST_CASE("[N3][golden] 400 random damages of all golden models and vocabularies give an error or a clean run") {
    if (skip_without_golden()) return;
    check_golden_damages(1, 400);
}

TEST_CASE("[N3][slow] 5,000 random damages of tiny models give an error or a clean run") {
    const TempFolder folder;
    check_tally(try_damages(tiny_sources(folder), 1'000'000, 5000), 5000);
}

TEST_CASE(
    "[N3][slow][golden] 10,000 random damages of all golden models and vocabularies give an error or a clean run") {
    if (skip_without_golden()) return;
    check_golden_damages(2'000'000, 10'000);
}

TEST_CASE("every truncation of a small file is refused") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama");
    tiny.n_layer = 1;
    tiny.n_vocab = 8;
    const Source source = read_source(tiny.save(folder.path()));
    const auto path = folder / "cut.gguf";
    const std::size_t step = std::max<std::size_t>(1, source.front / 400);
    for (std::size_t size = 0; size < source.bytes.size(); size += size < source.front ? step : 997) {
        write_bytes(path, std::span(source.bytes).first(size));
        CAPTURE(size);
        CHECK_THROWS_AS((void)Model::load(path), Error);
    }
}

}  // namespace tinfer::test
