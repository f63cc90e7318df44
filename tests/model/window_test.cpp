// SPDX-License-Identifier: MIT
// Windows as a caller sees them: what lies outside has no influence at all, what lies inside has, and where the edges
// are.
#include <doctest/doctest.h>

#include <functional>
#include <utility>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr int kWindow = 9, kTokens = 40;

// One layer, so that a logit depends on what its own query sees and on nothing else.
Model one_layer(const std::function<void(GgufWriter&)>& add_keys) {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_layer = 1;
    GgufWriter w = tiny.writer();
    add_keys(w);
    w.save(folder.path() / "window.gguf");
    return Model::load(folder.path() / "window.gguf");
}

// Tokens whose change alters the logits of token `query`.
std::vector<int> seen_by(const Model& model, int query, ContextOptions options = {}) {
    const auto row = [&](std::span<const Token> tokens) {
        const auto all = logits_of(model, tokens, options);
        return bits_of(std::span(all).subspan(static_cast<std::size_t>(query) * 128, 128));
    };
    auto tokens = random_tokens(kTokens, 128, 21);
    const auto before = row(tokens);
    std::vector<int> seen;
    for (int i = 0; i < kTokens; ++i) {
        Token& token = tokens[static_cast<std::size_t>(i)];
        const Token own = std::exchange(token, Token{static_cast<int>(token) ^ 1});
        if (row(tokens) != before) seen.push_back(i);
        token = own;
    }
    return seen;
}

std::vector<int> range(int begin, int end) {
    std::vector<int> out;
    for (int i = begin; i < end; ++i) out.push_back(i);
    return out;
}

}  // namespace

TEST_CASE("[A12] model: tokens outside a sliding window have exactly no influence, those inside have") {
    const Model model =
        one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}); });
    for (const int n_ubatch : {1, 7, 64}) {
        CHECK(seen_by(model, kTokens - 1, {.n_ubatch = n_ubatch}) == range(kTokens - kWindow, kTokens));
        CHECK(seen_by(model, 20, {.n_ubatch = n_ubatch}) ==
              range(21 - kWindow, 21));  // the token itself is one of the window
        CHECK(seen_by(model, 4, {.n_ubatch = n_ubatch}) == range(0, 5));
    }
}

TEST_CASE("model: a window of 0, or a pattern without a sliding layer, is no window") {
    CHECK(seen_by(one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", 0u); }), 30) == range(0, 31));
    const auto with_pattern = [](bool slides) {
        return one_layer([&](GgufWriter& w) {
            w.kv("llama.attention.sliding_window", std::uint32_t{kWindow})
                .array("llama.attention.sliding_window_pattern", std::vector<bool>{slides});
        });
    };
    CHECK(seen_by(with_pattern(false), 30) == range(0, 31));
    CHECK(seen_by(with_pattern(true), 30) == range(31 - kWindow, 31));
    const Model period = one_layer([](GgufWriter& w) {
        w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}).kv("llama.attention.sliding_window_pattern", 1u);
    });
    CHECK(seen_by(period, 30) == range(0, 31));
}

TEST_CASE("[A12] model: a window counts positions, also where tokens between them were removed") {
    const Model model =
        one_layer([](GgufWriter& w) { w.kv("llama.attention.sliding_window", std::uint32_t{kWindow}); });
    const auto last_row = [&](Token changed) {
        Context context(model, {.n_ctx = 64});
        auto tokens = random_tokens(kTokens, 128, 22);
        tokens[32] = changed;  // sees and is seen by the window of position 40 alone if nothing was removed
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        REQUIRE(context.seq_rm(SeqId{0}, Pos{34}, Pos{39}) ==
                RemoveStatus::ok);  // five tokens nearer, the same positions
        std::vector<std::uint32_t> rows;
        for (const int id : {5, 6}) {
            REQUIRE(context.decode(std::vector{Token{id}}) == DecodeStatus::ok);
            const auto bits = bits_of(context.logits());
            rows.insert(rows.end(), bits.begin(), bits.end());
        }
        return rows;
    };
    const auto a = last_row(Token{7}), b = last_row(Token{8});
    CHECK(std::vector(a.begin(), a.begin() + 128) != std::vector(b.begin(), b.begin() + 128));  // position 40 sees 32
    CHECK(std::vector(a.begin() + 128, a.end()) == std::vector(b.begin() + 128, b.end()));      // position 41 does not
}

// ---- slots that windows no longer see are given back ----------------------------------------------------------------

namespace {

constexpr int kPoolWindow = 70;  // reaches over a page and into the next

// Two layers: one slides, one sees everything.
Model half_windowed(int window, bool all_slide = false) {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 8192;
    GgufWriter w = tiny.writer();
    w.kv("llama.attention.sliding_window", static_cast<std::uint32_t>(window));
    w.array("llama.attention.sliding_window_pattern", std::vector<bool>{true, all_slide});
    w.save(folder.path() / "half.gguf");
    return Model::load(folder.path() / "half.gguf");
}

// The same operations on a context that releases slots and on one that keeps them all.
class Twins {
public:
    Twins(const Model& model, ContextOptions options) : ring(model, options), full(model, keeping(options)) {}

    void decode(const Batch& batch) {
        REQUIRE(ring.decode(batch) == DecodeStatus::ok);
        REQUIRE(full.decode(batch) == DecodeStatus::ok);
        REQUIRE(bits_of(ring.result("result_output")) == bits_of(full.result("result_output")));
    }
    void append(int seq, int n, std::uint64_t seed) {
        Batch batch;
        const SeqId id{seq};
        for (const Token token : random_tokens(n, 128, seed)) batch.add(token, std::nullopt, std::span(&id, 1), true);
        decode(batch);
    }
    // Positions [p0, p1); -1 is an open end.
    static PosRange range(int p0, int p1) { return {Pos{std::max(p0, 0)}, p1 < 0 ? kPosEnd : Pos{p1}}; }
    // What the one refuses the other must not do either.
    bool remove(int seq, int p0, int p1) {
        if (ring.seq_rm(SeqId{seq}, range(p0, p1)) == RemoveStatus::window_lost) return false;
        REQUIRE(full.seq_rm(SeqId{seq}, range(p0, p1)) == RemoveStatus::ok);
        return true;
    }
    bool copy(int from, int to, int p1) {
        try {
            ring.seq_cp(SeqId{from}, SeqId{to}, range(0, p1));
        } catch (const Error& error) {
            REQUIRE(error.code() == ErrorCode::unsupported_operation);
            return false;
        }
        full.seq_cp(SeqId{from}, SeqId{to}, range(0, p1));
        return true;
    }

    Context ring, full;

private:
    static ContextOptions keeping(ContextOptions options) {
        options.swa_full = true;
        return options;
    }
};

}  // namespace

TEST_CASE("[M10] windows: layers with one hold what windows and a call need, not the context") {
    const Model model = half_windowed(kPoolWindow);
    const auto cache = [&](ContextOptions options) { return plan(model, options).cache; };
    // f16 rows of K and V, two heads of 16: 128 bytes per slot and layer
    const auto bound = [](std::uint64_t n_ctx, std::uint64_t n_seqs, std::uint64_t n_batch, std::uint64_t n_ubatch) {
        const std::uint64_t w = 128, slots = std::min(n_ctx, n_seqs * w + std::min(n_batch, n_seqs * w + n_ubatch));
        return 128 * 64 * (n_ctx / 64 + n_seqs - 1 + (slots + 63) / 64 + 3 * n_seqs);  // three ends of pages each
    };
    for (const int n_ctx : {2048, 8192}) {
        CHECK(cache({.n_ctx = n_ctx, .n_ubatch = 32}) <=
              bound(static_cast<std::uint64_t>(n_ctx), 1, static_cast<std::uint64_t>(n_ctx), 32));
        CHECK(cache({.n_ctx = n_ctx, .n_seq_max = 3, .n_batch = 100, .n_ubatch = 32}) <=
              bound(static_cast<std::uint64_t>(n_ctx), 3, 100, 32));
        CHECK(cache({.n_ctx = n_ctx, .n_ubatch = 32, .swa_full = true}) ==
              2ull * 128 * static_cast<std::uint64_t>(n_ctx));
        CHECK(Context(model, {.n_ctx = n_ctx, .n_ubatch = 32}).memory().cache ==
              cache({.n_ctx = n_ctx, .n_ubatch = 32}));
    }
    const Model all = half_windowed(kPoolWindow, true);  // nothing grows with the context but its bookkeeping
    CHECK(plan(all, {.n_ctx = 8192, .n_ubatch = 32}).cache == plan(all, {.n_ctx = 2048, .n_ubatch = 32}).cache);
}

TEST_CASE("windows: released slots change no bit, however a long text is cut") {
    for (const int window : {1, 20, 64, 70, 128}) {
        CAPTURE(window);
        Twins twins(half_windowed(window), {.n_ctx = 1024, .n_ubatch = 48, .n_outputs = 1024});
        CHECK(twins.ring.memory().cache < twins.full.memory().cache);
        std::uint64_t seed = 1;
        for (const int n : {300, 1, 1, 64, 129, 7, 1, 250, 63, 65, 100}) twins.append(0, n, ++seed);
        CHECK(twins.ring.seq_pos_max(SeqId{0}) == Pos{980});
        CHECK(twins.ring.seq_pos_min(SeqId{0}).value() <= Pos{981 - window});
        CHECK(twins.ring.seq_pos_min(SeqId{0}).value() > Pos{981 - window - 64});
        CHECK(twins.full.seq_pos_min(SeqId{0}) == Pos{0});
    }
}

TEST_CASE("windows: a small pool far from the start holds what every thread works with") {
    for (const int n_threads : {1, 2, 4})
        for (const int n :
             {1, 15, 16}) {  // 256 tokens are a chunk of attention: windows end at its border and reach over it
            CAPTURE(n_threads);
            CAPTURE(n);
            Twins twins(half_windowed(6, true),
                        {.n_ctx = 4096, .n_batch = 16, .n_outputs = 16, .n_threads = n_threads});
            std::uint64_t seed = 1;
            for (int i = 0; i < 2100 / n; ++i) twins.append(0, n, ++seed);
        }
}

TEST_CASE("windows: going back into what was released is refused and changes nothing") {
    Twins twins(half_windowed(kPoolWindow), {.n_ctx = 1024, .n_ubatch = 48, .n_outputs = 1024});
    twins.append(0, 400, 1);
    CHECK(twins.ring.seq_rm(SeqId{0}, Pos{200}, kPosEnd) == RemoveStatus::window_lost);
    CHECK(twins.ring.rm_all_seqs(Pos{200}, kPosEnd) == RemoveStatus::window_lost);
    CHECK(twins.ring.count(SeqId{0}) == 400);
    CHECK(twins.remove(0, 399, -1));   // the window of position 399 is still there
    CHECK(twins.remove(0, 100, 150));  // far behind the window: nothing that anybody will see
    twins.append(0, 30, 2);
    CHECK(twins.remove(0, -1, -1));
    twins.append(0, 100, 3);
    CHECK(twins.remove(0, 10, 60));  // all of it is there
    twins.append(0, 200, 4);
    CHECK_FALSE(twins.remove(0, 80, -1));
    CHECK(twins.remove(0, 0, 5));
    twins.append(0, 5, 5);
}

TEST_CASE("windows: a call that is cancelled anywhere leaves the window as it was") {
    const Model model = half_windowed(kPoolWindow);
    int countdown = -1;
    ContextOptions options{.n_ctx = 1024, .n_ubatch = 40, .n_threads = 1};
    Context undisturbed(model, options);
    options.cancel = [&] { return countdown >= 0 && countdown-- == 0; };
    Context context(model, options);
    const auto first = random_tokens(333, 128, 1), prompt = random_tokens(250, 128, 2), last = random_tokens(3, 128, 3);
    for (Context* c : {&context, &undisturbed}) REQUIRE(c->decode(first) == DecodeStatus::ok);
    const auto pos_min = context.seq_pos_min(SeqId{0});
    int cancelled = 0;
    for (int at = 0; at < 160; at += 3) {  // micro-batches of the call had released what the state before needs
        countdown = at;
        const auto status = context.decode(prompt);
        if (status == DecodeStatus::ok) break;
        REQUIRE(status == DecodeStatus::cancelled);
        REQUIRE(context.seq_pos_min(SeqId{0}) == pos_min);
        ++cancelled;
    }
    CHECK(cancelled > 30);
    countdown = -1;
    if (context.count(SeqId{0}) == 333) REQUIRE(context.decode(prompt) == DecodeStatus::ok);
    REQUIRE(undisturbed.decode(prompt) == DecodeStatus::ok);
    CHECK(bits_of(context.logits()) == bits_of(undisturbed.logits()));
    for (Context* c : {&context, &undisturbed}) REQUIRE(c->decode(last) == DecodeStatus::ok);
    CHECK(bits_of(context.logits()) == bits_of(undisturbed.logits()));
}

TEST_CASE("[M4] windows: random operations on several sequences give the bits of a cache that keeps everything") {
    for (const std::uint32_t round : {1u, 2u, 3u}) {
        Twins twins(half_windowed(round == 2 ? 130 : 30),
                    {.n_ctx = 2048, .n_seq_max = 3, .n_ubatch = round == 3 ? 7 : 48, .n_outputs = 512});
        REQUIRE(twins.ring.memory().cache < twins.full.memory().cache);
        std::uint64_t state = round;
        const auto below = [&](int n) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(n));
        };
        int refused = 0, copied = 0;
        for (int step = 0; step < 120; ++step) {
            const int seq = below(3);
            const int length =
                twins.ring.seq_pos_max(SeqId{seq}) ? static_cast<int>(*twins.ring.seq_pos_max(SeqId{seq})) + 1 : 0;
            switch (below(8)) {
                case 0: refused += !twins.remove(seq, below(length + 1), below(2) == 0 ? -1 : length + below(5)); break;
                case 1: refused += !twins.remove(seq, std::max(0, length - below(20)), -1); break;
                case 2: {
                    const bool done =
                        twins.copy(seq, (seq + 1) % 3, below(2) == 0 ? -1 : std::max(0, length - below(40)));
                    copied += done;
                    refused += !done;
                    break;
                }
                case 3:
                    if (below(4) == 0) (void)twins.remove(seq, -1, -1);
                    break;
                default: {
                    const int n = std::min({1 + below(120), twins.ring.room(SeqId{seq}), twins.full.room(SeqId{seq})});
                    if (n > 0) twins.append(seq, n, state);
                }
            }
        }
        CHECK(refused > 3);
        CHECK(copied > 3);
    }
}

TEST_CASE("windows: moved positions rotate keys of the pool too, and may not reach back to what was released") {
    Twins twins(half_windowed(kPoolWindow), {.n_ctx = 1024, .n_ubatch = 48, .n_outputs = 1024});
    const auto move = [&](int p0, int delta) {
        twins.ring.seq_add(SeqId{0}, Pos{p0}, kPosEnd, delta);
        twins.full.seq_add(SeqId{0}, Pos{p0}, kPosEnd, delta);
    };
    twins.append(0, 300, 1);
    REQUIRE(twins.remove(0, 100, 150));  // a context shift: the window lies behind what moves
    move(150, -50);
    twins.append(0, 100, 2);
    move(0, 7);
    twins.append(0, 60, 3);
    REQUIRE(twins.remove(0, 60, 400));  // a few tokens are left behind the gap; closing it would bring back older ones
    try {
        twins.ring.seq_add(SeqId{0}, Pos{400}, kPosEnd, -340);
        FAIL("nothing was refused");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::unsupported_operation);
        CHECK(std::string(error.what()).find("seq_add: sequence 0 would go on without slots of its window") == 0);
    }
    twins.append(0, 20, 4);
}
