// SPDX-License-Identifier: MIT
// A file of every architecture, wrong in thousands of ways that understand the format: it is refused with an Error, or
// it runs. Damage that understands nothing is in api/damage_test.cpp, mistakes one by one in
// model/family_damage_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "model/model.hpp"
#include "runtime/context.hpp"
#include "support/alloc_counter.hpp"
#include "support/gguf_mutator.hpp"
#include "support/golden.hpp"
#include "support/sanitizers.hpp"
#include "support/sound_files.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::test {

namespace {

// As Model::load and a context of a caller who is lenient about what is unknown, or not.
void load_and_run(std::span<const std::byte> bytes, std::uint64_t seed) {
    const ModelOptions options{
        .check_tensors = seed % 16 == 0, .allow_unused_tensors = seed % 3 == 0, .allow_unknown_keys = seed % 5 == 0};
    const auto file = gguf::File::open_memory(bytes, "mutated.gguf", options);
    const auto bound = model::bind_model(file, options);
    const auto vocab = detail::Access::make<Vocab>(tokenizer::load_vocab(*file, {}));
    file->load_data(options);
    constexpr KvType kTypes[] = {KvType::f32, KvType::f16, KvType::bf16};
    const KvType type = kTypes[seed % 3];
    Context::Impl context(detail::Access::make<Model>(nullptr), bound,
                          {.n_ctx = 64,
                           .n_ubatch = 4,
                           .n_threads = 1,
                           .type_k = type,
                           .type_v = type,
                           .embeddings = seed % 2 == 0,
                           .swa_full = seed % 7 == 0});
    const std::int32_t last = bound.hp.n_vocab - 1;
    const std::vector tokens{Token{0}, Token{std::min(1, last)}, Token{last}};
    if (context.encoder) (void)context.encode(std::span<const Token>(tokens));
    (void)context.decode(std::span<const Token>(tokens));
    (void)context.decode(std::span<const Token>(tokens).first(1));
}

struct Tally {
    int clean = 0, refused = 0;
    double slowest = 0;
    std::string wrong;
};

void attempt(std::span<const std::byte> bytes, std::uint64_t seed, Tally& tally) {
    const AllocationScope scope;
    const std::clock_t begin = std::clock();  // processor time: a busy machine is no finding
    std::string wrong;
    try {
        load_and_run(bytes, seed);
        ++tally.clean;
    } catch (const Error& error) {
        ++tally.refused;
        if (std::strlen(error.what()) == 0) wrong = "no message";
    } catch (const std::exception& error) {
        wrong = std::string("another exception: ") + error.what();
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    tally.slowest = std::max(tally.slowest, seconds);
    if (seconds > 1) wrong = "took " + std::to_string(seconds) + " s";
    if (const auto peak = scope.peak(); peak > static_cast<std::int64_t>(4 * bytes.size() + (64u << 20)))
        wrong = "held " + std::to_string(peak) + " bytes";
    if (!wrong.empty()) tally.wrong = "seed " + std::to_string(seed) + ": " + wrong;
}

// `n` mutations of each file, of which some run and many do not.
void check_mutated(const std::vector<SoundFile>& files, std::uint64_t n, bool report) {
    GgufWords words;
    for (const auto& list : {small_files(), golden_files()})
        for (const SoundFile& sound : list) words.add(sound.file);
    for (const SoundFile& sound : files) {
        CAPTURE(sound.architecture);
        CHECK_NOTHROW(load_and_run(sound.file.bytes(), 1));
        GgufMutator mutator(sound.file, words);
        Tally tally;
        for (std::uint64_t seed = 1; seed <= n; ++seed) {
            CAPTURE(seed);
            attempt(mutator.file(seed), seed, tally);
        }
        if (report)
            MESSAGE(sound.architecture << ": " << tally.clean << " ran, " << tally.refused << " refused, slowest "
                                       << tally.slowest << " s");
        CHECK(tally.wrong == "");
        CHECK(tally.clean > static_cast<int>(n / 50));
        CHECK(tally.refused > static_cast<int>(n / 4));
    }
}

}  // namespace

TEST_CASE("[N3] mutated files: 200 of every architecture without golden data give an error or a clean run") {
    check_mutated(small_files(), 200, false);
}

TEST_CASE("[N3][golden] mutated files: 200 of every architecture with golden data give an error or a clean run") {
    if (skip_without_golden()) return;
    check_mutated(golden_files(), 200, false);
}

constexpr std::uint64_t kMany =
    kSanitized ? 2'000 : 100'000;  // a sanitizer is slow, and finds a kind of mistake at its first

TEST_CASE("[N3][slow] mutated files: 100,000 of every architecture without golden data give an error or a clean run") {
    check_mutated(small_files(), kMany, true);
}

TEST_CASE(
    "[N3][slow][golden] mutated files: 100,000 of every architecture with golden data give an error or a clean run") {
    if (skip_without_golden()) return;
    check_mutated(golden_files(), kMany, true);
}

TEST_CASE("[A5][golden] mutated files: there is a sound file of every architecture of the registry") {
    if (skip_without_golden()) return;
    auto files = small_files();
    for (SoundFile& file : golden_files()) files.push_back(std::move(file));
    for (const ArchitectureInfo& row : architectures()) {
        const auto n = std::ranges::count(files, row.name, &SoundFile::architecture);
        if (n == 0 && row.tested_by.starts_with("golden"))
            MESSAGE("skipped: no case of ", std::string(row.name), " in the golden data that is here");
        else CHECK_MESSAGE(n == 1, row.name);
    }
}

}  // namespace tinfer::test
