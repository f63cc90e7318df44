// SPDX-License-Identifier: MIT
// The prefix store: warm prompts have the bits of cold ones, nothing that is damaged or foreign is believed, memory
// stays below its limit.
#include "tinfer/state.hpp"

#include <fstream>
#include <set>

#include "context_support.hpp"
#include "support/alloc_counter.hpp"
#include "support/file_twins.hpp"
#include "support/golden.hpp"

namespace tinfer {

namespace {

/// Decodes a prompt as a program with a store does; gives the bits behind it and how many tokens were computed.
std::pair<std::vector<std::uint32_t>, std::size_t> prompted(PrefixStore& store, Context& context, SeqId seq,
                                                            std::span<const Token> tokens) {
    const std::size_t matched = store.match(context, tokens);
    std::size_t n = store.restore(context, seq, tokens);
    CHECK(n == matched);
    CHECK(context.count(seq) == static_cast<int>(n));
    const std::size_t computed = tokens.size() - n;
    Batch batch;
    while (n < tokens.size()) {
        const std::size_t piece = store.piece(context, n, tokens.size());
        REQUIRE(piece > 0);
        batch.clear();
        for (std::size_t i = n; i < n + piece; ++i) batch.add(tokens[i], {}, seq, i + 1 == n + piece);
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        n += piece;
        store.keep(context, seq, tokens.first(n));
    }
    return {bits_of(context.logits()), computed};
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
}

std::vector<char> contents(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void overwrite(const std::filesystem::path& path, std::span<const char> bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("[V12][golden] prefix store: every architecture computes only what is new, with the same bits, from memory "
          "and from the folder") {
    if (skip_without_golden()) return;
    for (const test::GoldenModel& golden : test::golden_models()) {
        if (golden.encoder || test::is_deep(golden)) continue;
        CAPTURE(golden.name);
        const auto model = Model::load(golden.file);
        if (model.info().has_encoder || test::golden_key(golden.file, "context_length", 512) < 220) continue;
        const test::TempFolder folder;
        auto tokens = test::random_tokens(210, model.info().n_vocab, 21);
        const ContextOptions options{.n_ctx = 512, .n_seq_max = 2, .n_batch = 64, .n_ubatch = 64, .n_threads = 2};
        const auto cold = [&](std::span<const Token> list) {
            Context context(model, options);
            PrefixStore none(model, {.memory_limit = 0});
            return prompted(none, context, SeqId{0}, list).first;
        };
        const auto first = std::span<const Token>(tokens).first(200);
        const auto expected = cold(first);
        Context context(model, options);
        {
            PrefixStore store(model, {.folder = folder / "store", .checkpoint_every = 128});
            CHECK(prompted(store, context, SeqId{0}, first) == std::pair(expected, std::size_t{200}));
            CHECK(prompted(store, context, SeqId{1}, first) == std::pair(expected, std::size_t{8}));
            CHECK(store.stats().read_pages == 0);
            CHECK(store.stats().pages == 3);
        }
        PrefixStore store(model, {.folder = folder / "store", .checkpoint_every = 128});
        Context other(model, {.n_ctx = 1024, .n_batch = 50, .n_ubatch = 50, .n_threads = 1});
        CHECK(prompted(store, other, SeqId{0}, first) == std::pair(expected, std::size_t{8}));
        CHECK(store.stats().read_pages > 0);
        std::vector<Token> changed(first.begin(), first.end());
        changed[150] = tokens[205];
        const auto [bits, computed] = prompted(store, context, SeqId{1}, changed);
        CHECK(bits == cold(changed));
        CHECK(computed == 72);
    }
}

TEST_CASE("[V12] prefix store: windows go on from checkpoints") {
    const auto model = windowed_model(80);
    const auto tokens = test::random_tokens(900, 128, 31);
    const ContextOptions options{.n_ctx = 2048, .n_batch = 128, .n_ubatch = 64};
    PrefixStore store(model, {.checkpoint_every = 256}), none(model, {.memory_limit = 0});
    Context context(model, options), plain(model, options);
    CHECK(store.piece(context, 0, 900) == 128);
    CHECK(store.piece(context, 128, 900) == 128);
    CHECK(store.piece(context, 200, 900) == 56);
    CHECK(store.piece(context, 896, 900) == 4);
    const auto expected = prompted(none, plain, SeqId{0}, tokens).first;
    CHECK(prompted(store, context, SeqId{0}, tokens) == std::pair(expected, std::size_t{900}));
    CHECK(prompted(store, context, SeqId{0}, tokens) == std::pair(expected, std::size_t{4}));
    auto changed = tokens;
    changed[700] = Token{static_cast<std::int32_t>(tokens[700]) ^ 1};
    CHECK(store.match(context, changed) == 640);  // pieces of n_batch leave checkpoints, too
    const auto other = prompted(none, plain, SeqId{0}, changed).first;
    CHECK(prompted(store, context, SeqId{0}, changed) == std::pair(other, std::size_t{260}));
    CHECK(context.seq_rm(SeqId{0}, {Pos{300}}) == RemoveStatus::window_lost);
}

TEST_CASE("[V12][N20] prefix store: windows go on from checkpoints with a pool of their own or without, whoever wrote "
          "them") {
    const auto model = windowed_model(80);
    const auto tokens = test::random_tokens(900, 128, 31);
    const ContextOptions pooled{.n_ctx = 2048, .n_batch = 128, .n_ubatch = 64}, shared{.n_ctx = 1024, .n_ubatch = 1024};
    PrefixStore none(model, {.memory_limit = 0});
    Context plain(model, shared);
    const auto expected = prompted(none, plain, SeqId{0}, tokens).first;
    CHECK(plain.seq_rm(SeqId{0}, {Pos{300}}) == RemoveStatus::ok);
    for (const auto& [writes, reads] :
         {std::pair(shared, shared), std::pair(pooled, shared), std::pair(shared, pooled)}) {
        PrefixStore store(model, {.checkpoint_every = 256});
        Context first(model, writes), other(model, reads);
        CHECK(prompted(store, first, SeqId{0}, tokens) == std::pair(expected, std::size_t{900}));
        CHECK(prompted(store, other, SeqId{0}, tokens) == std::pair(expected, std::size_t{4}));
        CHECK(other.seq_rm(SeqId{0}, {Pos{300}}) == RemoveStatus::window_lost);
    }
}

TEST_CASE("[V12] prefix store: contexts whose results differ do not meet, and neither do sequences that are something "
          "else") {
    const Fixture f;
    const auto tokens = test::random_tokens(150, 128, 41);
    PrefixStore store(f.model);
    Context context(f.model, {.n_ctx = 256});
    (void)prompted(store, context, SeqId{0}, tokens);
    CHECK(store.match(context, tokens) == 128);
    CHECK(store.match(context, std::span(tokens).first(128)) == 64);  // one token is left to be computed
    CHECK(store.match(context, std::span(tokens).subspan(1)) == 0);
    CHECK(store.match(context, {}) == 0);
    const Context threads(f.model, {.n_ctx = 512, .n_threads = 1, .isa = Isa::reference});
    CHECK(store.match(threads, tokens) == 128);
    for (const ContextOptions& options :
         {ContextOptions{.type_k = KvType::f32}, ContextOptions{.rope_freq_base = 5000.0f}})
        CHECK(store.match(Context(f.model, options), tokens) == 0);
    TinyModel twin;
    twin.seed = 2;
    const auto other = Model::load(twin.save(f.folder.path()));
    Context foreign(other, {.n_ctx = 256});
    CHECK(code_of([&] { (void)store.match(foreign, tokens); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { store.keep(context, SeqId{1}, tokens); }) == ErrorCode::bad_sequence);
    REQUIRE(context.seq_rm(SeqId{0}, Pos{3}, Pos{5}) == RemoveStatus::ok);
    CHECK(code_of([&] { store.keep(context, SeqId{0}, std::span(tokens).first(64)); }) == ErrorCode::bad_parameter);
    Context small(f.model, {.n_ctx = 64});
    CHECK(code_of([&] { (void)store.restore(small, SeqId{0}, tokens); }) == ErrorCode::no_room);
    CHECK(small.used() == 0);
    CHECK(code_of([&] { PrefixStore(f.model, {.checkpoint_every = 100}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { PrefixStore(f.model, {.folder = f.model.file().paths()[0]}); }) == ErrorCode::io_error);
}

TEST_CASE(
    "[V12] prefix store: pages of a file that is known to differ are computed anew, though its sample is the same") {
    const test::TempFolder folder;
    const auto path = test::TinyModel{}.save(folder.path());
    const auto a = Model::load(test::twin_of(path, folder / "a.gguf", 'a')),
               b = Model::load(test::twin_of(path, folder / "b.gguf", 'b'));
    REQUIRE(a.file().fingerprint() == b.file().fingerprint());
    const auto tokens = test::random_tokens(130, 128, 5);
    const auto computed = [&](const Model& model) {  // by a store that has nothing in memory
        PrefixStore store(model, {.folder = folder / "pages"});
        Context context(model, {.n_ctx = 256});
        const std::size_t n = prompted(store, context, SeqId{0}, tokens).second;
        return std::pair(n, store.stats().refused_files);
    };
    CHECK(computed(a) == std::pair(std::size_t{130}, std::uint64_t{0}));
    CHECK(computed(a) == std::pair(std::size_t{2}, std::uint64_t{0}));
    const auto [n_b, refused_b] = computed(b);
    CHECK(n_b == 130);
    CHECK(refused_b > 0);
    CHECK(computed(b) == std::pair(std::size_t{2}, std::uint64_t{0}));  // written over
    const auto [n_a, refused_a] = computed(a);
    CHECK(n_a == 130);
    CHECK(refused_a > 0);
    PrefixStore store(a);
    Context context(b, {.n_ctx = 256});
    CHECK(code_of([&] { (void)store.restore(context, SeqId{0}, tokens); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[V12] prefix store: below its limit of memory, the ends of texts that were not used for longest go first") {
    const Fixture f;
    Context context(f.model, {.n_ctx = 256});
    const auto shared = test::random_tokens(64, 128, 51);
    const auto text = [&](std::uint64_t seed) {
        auto all = shared;
        const auto rest = test::random_tokens(65, 128, seed);
        all.insert(all.end(), rest.begin(), rest.end());
        return all;
    };
    PrefixStore large(f.model);
    (void)prompted(large, context, SeqId{0}, text(1));
    const std::uint64_t page = large.stats().bytes / 2;
    PrefixStore store(f.model, {.memory_limit = 3 * page});
    for (const std::uint64_t seed : {1, 2}) (void)prompted(store, context, SeqId{0}, text(seed));
    CHECK(store.stats().pages == 3);
    CHECK(store.match(context, text(1)) == 128);
    (void)prompted(store, context, SeqId{0}, text(3));
    CHECK(store.stats().bytes <= 3 * page);
    CHECK(store.stats().dropped_pages == 1);
    CHECK(store.match(context, text(2)) == 64);  // its end went; its beginning is that of others
    CHECK(store.match(context, text(1)) == 128);
    CHECK(store.match(context, text(3)) == 128);
}

TEST_CASE(
    "[V12][N9] prefix store: a block of which any byte is damaged, that is cut short or another's is computed anew "
    "and written again") {
    const test::TempFolder folder;
    TinyModel tiny;
    tiny.n_layer = 1;
    tiny.n_head_kv = 1;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto tokens = test::random_tokens(130, 128, 61);
    const auto place = folder / "store";
    Context context(model, {.n_ctx = 192});
    std::vector<std::uint32_t> expected;
    {
        PrefixStore store(model, {.folder = place});
        expected = prompted(store, context, SeqId{0}, tokens).first;
    }
    const auto files = files_of(place);
    REQUIRE(files.size() == 2);
    const auto pristine = contents(files[0]), second = contents(files[1]);
    std::size_t n_believed = 0;
    auto bytes = pristine;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
        overwrite(files[0], bytes);
        bytes[i] = pristine[i];
        PrefixStore store(model, {.folder = place});
        n_believed += store.match(context, tokens) == 128 ? 1 : 0;
        if (i % 1009 != 0) continue;
        CHECK(prompted(store, context, SeqId{0}, tokens).first == expected);
        CHECK(store.stats().refused_files >= 1);
        CHECK(contents(files[0]) == pristine);  // written over
    }
    CHECK(n_believed == 0);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{24}, std::size_t{300}, pristine.size() - 1}) {
        overwrite(files[0], std::span(pristine).first(size));
        PrefixStore store(model, {.folder = place});
        CHECK(store.match(context, tokens) < 128);
        CHECK(prompted(store, context, SeqId{0}, tokens).first == expected);
    }
    overwrite(files[0], second);
    overwrite(files[1], pristine);
    {  // one that is refused does not hide the one behind it: both are written anew at once
        PrefixStore store(model, {.folder = place});
        CHECK(store.match(context, tokens) == 0);
        CHECK(prompted(store, context, SeqId{0}, tokens).first == expected);
    }
    CHECK(contents(files[0]) == pristine);
    CHECK(contents(files[1]) == second);
    CHECK(PrefixStore(model, {.folder = place}).match(context, tokens) == 128);
}

TEST_CASE("[V12] prefix store: wherever memory runs out, context and store stay as they were") {
    const Fixture f;
    const auto tokens = test::random_tokens(150, 128, 71);
    Context context(f.model, {.n_ctx = 256}), target(f.model, {.n_ctx = 256});
    PrefixStore store(f.model);
    const auto expected = prompted(store, context, SeqId{0}, tokens).first;
    REQUIRE(target.decode(std::span(f.tokens).first(5)) == DecodeStatus::ok);
    std::uint64_t n = 1;
    for (bool met = true; met && n < 2000; ++n) {
        test::fail_allocation_at(n);
        bool failed = false;
        try {
            (void)store.restore(target, SeqId{0}, tokens);
        } catch (const Error& error) {
            failed = error.code() == ErrorCode::out_of_memory;
            CHECK(failed);
        }
        met = test::allocation_failed();
        test::fail_allocation_at(0);
        CHECK(failed == met);
        CHECK(target.count(SeqId{0}) == (met ? 5 : 128));
    }
    CHECK(n > 10);
    REQUIRE(target.decode(std::span(tokens).subspan(128)) == DecodeStatus::ok);
    CHECK(bits_of(target.logits()) == expected);
}

TEST_CASE("[V12] prefix store: wherever memory runs out while it keeps a text, what it has is right") {
    const Fixture f;
    const auto tokens = test::random_tokens(150, 128, 71);
    Context context(f.model, {.n_ctx = 256}), target(f.model, {.n_ctx = 256});
    PrefixStore none(f.model, {.memory_limit = 0});
    const auto expected = prompted(none, context, SeqId{0}, tokens).first;
    for (const bool in_folder : {false, true}) {
        CAPTURE(in_folder);
        int n_failed = 0;
        for (std::uint64_t n = 1; n < 3000; ++n) {
            const test::TempFolder folder;
            PrefixStoreOptions options;
            if (in_folder) options = {.memory_limit = 0, .folder = folder / "store"};
            PrefixStore store(f.model, options);
            test::fail_allocation_at(n);
            ErrorCode code{};
            bool thrown = false;
            try {
                store.keep(context, SeqId{0}, tokens);
            } catch (const Error& error) {
                thrown = true;
                code = error.code();
            }
            const bool failed = test::allocation_failed();
            test::fail_allocation_at(0);
            CHECK((!thrown || (failed && code == ErrorCode::out_of_memory)));
            n_failed += failed ? 1 : 0;
            const auto [bits, computed] = prompted(store, target, SeqId{0}, tokens);
            CHECK(bits == expected);
            if (!failed) {
                CHECK(computed == 22);
                break;
            }
            CHECK(prompted(store, target, SeqId{0}, tokens) == std::pair(expected, std::size_t{22}));
        }
        CHECK(n_failed > 10);
    }
}

}  // namespace tinfer
