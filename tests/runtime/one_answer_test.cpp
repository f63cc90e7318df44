// SPDX-License-Identifier: MIT
// One answer: the rows of a conversation of several turns are the same to the bit however it is computed. Beside others
// or alone, from a store or from nothing, with guesses or without, begun here and gone on with in another process.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <stdexcept>

#include "base/error.hpp"
#include "generation/speculation_support.hpp"
#include "support/adapter_files.hpp"
#include "support/child_process.hpp"
#include "support/gguf_copy.hpp"
#include "support/sanitizers.hpp"

namespace tinfer::test {

namespace {

constexpr int kTurns = 4, kDrawn = 10, kSequences = 3;
constexpr std::size_t kFirstPrompt = 150, kPrefix = 128;  // tokens; of the first turn, and of it the whole pages

/// A way of computing that must not be seen in the result.
struct Machine {
    int n_ctx = 832, n_batch = 64, n_ubatch = 64, n_threads = 1;  ///< these: windows have a pool of their own
    Isa isa = Isa::automatic;

    [[nodiscard]] ContextOptions options() const {
        return {.n_ctx = n_ctx,
                .n_seq_max = kSequences,
                .n_batch = n_batch,
                .n_ubatch = std::min(n_ubatch, n_batch),
                .n_outputs = 24,
                .n_threads = n_threads,
                .isa = isa};
    }
};

enum class Prefix : std::uint8_t { computed, memory, disk, process };
enum class Speculate : std::uint8_t { none, ngram, draft };
enum class Move : std::uint8_t { none, sequence, whole };

struct Configuration {
    std::uint64_t seed = 0;
    Machine first{}, second{};  ///< the second after a move, and of who fills the store
    SeqId seq{0}, moved_seq{0};
    bool neighbours = false, adapter = false;
    bool by_hand = false;  ///< a batch made token by token, with neighbours in it; else a Generation
    bool shift = false;    ///< a part of the text is taken away after the second turn: another conversation
    Prefix prefix = Prefix::computed;
    Speculate speculate = Speculate::none;
    Move move = Move::none;
    int moved_after = 0;  ///< turn

    static Machine machine(std::mt19937_64& random) {
        // In the smallest one, and with the longest calls in the next, windows share the slots of other layers.
        constexpr int kContexts[] = {512, 832, 1024, 1472}, kBatches[] = {64, 64, 80, 200, 832},
                      kRuns[] = {5, 16, 33, 64, 150};
        const auto isas = available_isas();
        const int n_ctx = kContexts[random() % std::size(kContexts)];
        return {n_ctx, std::min(n_ctx, kBatches[random() % std::size(kBatches)]), kRuns[random() % std::size(kRuns)],
                static_cast<int>(1 + random() % 3), isas[random() % isas.size()]};
    }

    /// Twelve seeds in a row have every prefix with every way to draft.
    static Configuration draw(std::uint64_t seed) {
        std::mt19937_64 random(seed * 7919 + 1);
        Configuration c{.seed = seed, .first = machine(random), .second = machine(random)};
        c.prefix = static_cast<Prefix>(seed % 4);
        c.speculate = static_cast<Speculate>(seed % 3);
        c.move = static_cast<Move>(random() % 3);
        c.moved_after = static_cast<int>(random() % (kTurns - 1));
        c.seq = SeqId{static_cast<std::int32_t>(random() % kSequences)};
        c.moved_seq = c.move == Move::whole ? c.seq : SeqId{static_cast<std::int32_t>(random() % kSequences)};
        c.neighbours = random() % 3 != 0;
        c.adapter = c.neighbours && random() % 2 != 0;
        c.by_hand = c.speculate == Speculate::none && random() % 4 != 0;
        c.shift = random() % 4 == 0;
        return c;
    }

    [[nodiscard]] std::string text() const {
        const auto text_of = [](const Machine& m) {
            return cat("n_ctx ", m.n_ctx, " n_batch ", m.n_batch, " n_ubatch ", m.n_ubatch, " threads ", m.n_threads,
                       " ", to_string(m.isa));
        };
        return cat("seed ", seed, ": ", text_of(first), "; then ", text_of(second), "; sequence ",
                   static_cast<std::int32_t>(seq), " then ", static_cast<std::int32_t>(moved_seq), ", neighbours ",
                   static_cast<int>(neighbours), ", adapter ", static_cast<int>(adapter), ", by hand ",
                   static_cast<int>(by_hand), ", shift ", static_cast<int>(shift), ", prefix ",
                   static_cast<int>(prefix), ", speculate ", static_cast<int>(speculate), ", move ",
                   static_cast<int>(move), " after turn ", moved_after);
    }
};

/// A model of one kind, and what is said to it.
struct Kind {
    TempFolder folder;
    std::filesystem::path file;
    std::optional<Model> model;
    std::optional<Vocab> vocab;
    std::optional<Adapter> adapter;
    std::vector<std::vector<Token>> turns;

    explicit Kind(const std::filesystem::path& path) : file(path) {
        model = Model::load(file);
        const int n_vocab = model->info().n_vocab;
        vocab = letters_vocab(n_vocab);
        const GgufWriter writer = gguf_copy(file);
        std::vector<std::string> names;
        for (const std::string& name : adaptable(writer))
            for (const char* part : {"attn_output.", "ffn_down.", "ffn_down_shexp.", "ssm_out."})
                if (name.find(part) != std::string::npos) names.push_back(name);
        lora_for(writer, {.arch = model->info().architecture, .names = names, .rank = 3}).save(folder / "lora.gguf");
        adapter = Adapter::load(*model, folder / "lora.gguf");
        for (int turn = 0; turn < kTurns; ++turn)
            turns.push_back(random_tokens(turn == 0 ? static_cast<int>(kFirstPrompt) : 9 + 7 * turn, n_vocab,
                                          static_cast<std::uint64_t>(100 + turn)));
    }
};

void must(bool holds, std::string_view what) {
    if (!holds) throw std::runtime_error(std::string(what));
}

/// Rows that were seen, one behind the other.
using Rows = std::vector<Sha256::Digest>;

class RowList final : public SamplerLink {
public:
    explicit RowList(std::shared_ptr<Rows> rows) : rows_(std::move(rows)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "row_list"; }
    void apply(CandidateArray& candidates) override {
        std::vector<float> row;
        for (const Candidate& candidate : candidates.data) row.push_back(candidate.logit);
        rows_->push_back(sha256(std::as_bytes(std::span(row))));
    }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<RowList>(*this); }

private:
    std::shared_ptr<Rows> rows_;
};

/// In a process of its own, or in this one where a sanitizer does not survive a fork with threads. Throws what went
/// wrong there.
template <class Fn>
void elsewhere(const std::filesystem::path& folder, Fn&& fn) {
    if (kSanitized || forks_are_hidden()) return fn();
    const auto report = folder / "report.txt";
    const std::string ended = in_child(300, [&] {
        try {
            fn();
            return 0;
        } catch (const std::exception& error) {
            std::ofstream(report) << error.what();
            return 1;
        }
    });
    if (ended == "exit 0") return;
    std::ifstream in(report);
    throw std::runtime_error(ended + " of another process: " + std::string(std::istreambuf_iterator<char>(in), {}));
}

/// The conversation from some turn on, in one context.
class Conversation {
public:
    Conversation(const Kind& kind, const Model& model, const Configuration& configuration, const Machine& machine,
                 SeqId seq)
        : kind_(kind), model_(model), c_(configuration), seq_(seq), context_(model, machine.options()),
          random_(configuration.seed + 17) {
        if (c_.adapter)
            for (int s = 0; s < kSequences; ++s)
                if (SeqId{s} != seq_) attach(context_, *kind_.adapter, 0.7F, SeqId{s});
    }

    void take_prefix(PrefixStore& store) {
        must(store.restore(context_, seq_, kind_.turns[0]) == kPrefix, "the store has another prefix");
        history_.assign(kind_.turns[0].begin(), kind_.turns[0].begin() + kPrefix);
    }

    void run(int turn, const std::filesystem::path& folder) {
        for (; turn < kTurns; ++turn) {
            say(turn);
            if (c_.shift && turn == 1 && context_.can_shift()) take_away();
            if (c_.move != Move::none && turn == c_.moved_after && !has_moved_)
                return go_on_elsewhere(turn + 1, folder);
        }
        const int row = feed(pending_);
        rows_->push_back(sha256(std::as_bytes(context_.logits(row))));
    }

    [[nodiscard]] const Rows& rows() const { return *rows_; }

private:
    void say(int turn) {
        std::vector<Token> prompt = pending_;
        const auto& said = kind_.turns[static_cast<std::size_t>(turn)];
        const std::size_t n_known = turn == 0 ? history_.size() : 0;
        prompt.insert(prompt.end(), said.begin() + static_cast<std::ptrdiff_t>(n_known), said.end());
        Sampler sampler(*kind_.vocab, {.temp = turn % 2 == 0 ? 0.0F : 0.9F, .seed = static_cast<std::uint32_t>(turn)});
        sampler.insert(0, std::make_unique<RowList>(rows_));
        if (c_.by_hand) say_by_hand(prompt, sampler);
        else say_by_generation(prompt, sampler);
        must(context_.count(seq_) == static_cast<int>(history_.size()), "the sequence has another length");
    }

    void say_by_hand(std::span<const Token> prompt, Sampler& sampler) {
        int row = feed(prompt);
        for (int n = 1;; ++n) {
            const Token token = sampler.sample(context_, row);
            pending_ = {token};
            if (n == kDrawn || kind_.vocab->is_eog(token)) return;
            row = feed(pending_);
        }
    }

    void say_by_generation(const std::vector<Token>& prompt, Sampler& sampler) {
        if (c_.neighbours) (void)feed({});
        GenerationOptions options{
            .n_predict = kDrawn, .seq = seq_, .prompt_piece = static_cast<int>(1 + random_() % 64)};
        options.speculation = {.forced = false, .n_max = 7, .adapt = false, .before = history_};
        if (c_.speculate == Speculate::ngram) options.speculation.drafter = ngram_drafter();
        if (c_.speculate == Speculate::draft)
            options.speculation.drafter =
                model_drafter(model_, model_, {.context = {.n_ctx = 512, .n_threads = 1}, .p_min = 0});
        Generation generation(*kind_.vocab, prompt, options);
        const StopReason stop = generation.run(context_, sampler);
        must(stop == StopReason::limit || stop == StopReason::eog, "the generation was ended by something else");
        pending_.assign(generation.pending().begin(), generation.pending().end());
        history_.insert(history_.end(), prompt.begin(), prompt.end());
        history_.insert(history_.end(), generation.tokens().begin(), generation.tokens().end());
        if (stop == StopReason::limit) history_.resize(history_.size() - pending_.size());
    }

    /// Decodes tokens in pieces, with neighbours around them; the row behind the last one.
    int feed(std::span<const Token> tokens) {
        int row = -1;
        do {
            const std::size_t n = std::min<std::size_t>(tokens.size(), 1 + random_() % 40);
            Batch batch;
            int n_outputs = 0;
            add_neighbours(batch, n_outputs);
            const bool is_last = n == tokens.size();
            for (std::size_t i = 0; i < n; ++i) batch.add(tokens[i], seq_, is_last && i + 1 == n);
            if (is_last) row = n_outputs++;
            add_neighbours(batch, n_outputs);
            if (batch.size() > 0) must(context_.decode(batch) == DecodeStatus::ok, "a decode found no room");
            history_.insert(history_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
            tokens = tokens.subspan(n);
        } while (!tokens.empty());
        return row;
    }

    void add_neighbours(Batch& batch, int& n_outputs) {
        if (!c_.neighbours) return;
        for (int s = 0; s < kSequences; ++s) {
            const SeqId other{s};
            if (other == seq_) continue;
            if (batch.size() == 0 && context_.count(other) > 50)
                must(context_.seq_rm(other) == RemoveStatus::ok, "a neighbour stays");
            for (std::uint64_t n = random_() % 4; n > 0; --n) {
                const bool output = random_() % 4 == 0;
                batch.add(Token{static_cast<std::int32_t>(random_() % 200)}, other, output);
                n_outputs += output ? 1 : 0;
            }
        }
    }

    void take_away() {
        must(context_.seq_rm(seq_, {Pos{8}, Pos{24}}) == RemoveStatus::ok, "a part of the text stays");
        context_.seq_add(seq_, {Pos{24}}, -16);
        history_.erase(history_.begin() + 8, history_.begin() + 24);
    }

    void go_on_elsewhere(int turn, const std::filesystem::path& folder) {
        const bool whole = c_.move == Move::whole;
        const auto state = folder / "state", digests = folder / "rows";
        save_state_file(context_, state, {.seq = whole ? std::nullopt : std::optional(seq_)});
        elsewhere(folder, [&] {
            const Kind there(kind_.file);
            Conversation rest(there, *there.model, c_, c_.second, c_.moved_seq);
            rest.has_moved_ = true;
            rest.history_ = history_;
            rest.pending_ = pending_;
            (void)load_state_file(rest.context_, state, whole ? std::nullopt : std::optional(c_.moved_seq));
            rest.run(turn, folder);
            std::ofstream out(digests, std::ios::binary);
            for (const auto& digest : rest.rows())
                out.write(reinterpret_cast<const char*>(digest.data()), static_cast<std::streamsize>(digest.size()));
        });
        std::ifstream in(digests, std::ios::binary);
        for (Sha256::Digest digest{};
             in.read(reinterpret_cast<char*>(digest.data()), static_cast<std::streamsize>(digest.size()));)
            rows_->push_back(digest);
    }

    const Kind& kind_;
    const Model& model_;
    const Configuration& c_;
    SeqId seq_;
    Context context_;
    std::mt19937_64 random_;
    std::shared_ptr<Rows> rows_ = std::make_shared<Rows>();
    std::vector<Token> history_, pending_;  // what the sequence holds; what it is to be given first
    bool has_moved_ = false;
};

/// Someone else has computed the same prompt.
void fill(const Kind& kind, PrefixStore& store, const Machine& machine) {
    Context context(*kind.model, machine.options());
    const auto& prompt = kind.turns[0];
    for (std::size_t n = 0, piece = 0; n < prompt.size(); n += piece) {
        piece = store.piece(context, n, prompt.size());
        Batch batch;
        for (std::size_t i = n; i < n + piece; ++i) batch.add(prompt[i], SeqId{1}, i + 1 == n + piece);
        must(context.decode(batch) == DecodeStatus::ok, "no room for the prefix");
        store.keep(context, SeqId{1}, std::span(prompt).first(n + piece));
    }
}

Rows rows_of(const Kind& kind, const Configuration& c) {
    const TempFolder folder;
    PrefixStoreOptions options{.checkpoint_every = 128};
    if (c.prefix != Prefix::memory) options.folder = folder / "prefixes";
    if (c.prefix == Prefix::disk) {
        PrefixStore store(*kind.model, options);
        fill(kind, store, c.second);
    } else if (c.prefix == Prefix::process) {
        elsewhere(folder.path(), [&] {
            PrefixStore store(*kind.model, options);
            fill(kind, store, c.second);
        });
    }
    PrefixStore store(*kind.model, options);
    if (c.prefix == Prefix::memory) fill(kind, store, c.second);
    Conversation conversation(kind, *kind.model, c, c.first, c.seq);
    if (c.prefix != Prefix::computed) conversation.take_prefix(store);
    conversation.run(0, folder.path());
    return conversation.rows();
}

std::string hash_of(const Rows& rows) {
    Sha256 hash;
    for (const auto& digest : rows) hash.update(std::as_bytes(std::span(digest)));
    return to_hex(hash.finish());
}

void check_configurations(std::uint64_t n) {
    constexpr std::pair<const char*, const char*> kKinds[] = {
        {"dense", "llama"},          {"windows", "gemma3"},   {"experts", "qwen3moe"},
        {"latent", "deepseek2-mla"}, {"recurrent", "mamba2"}, {"hybrid", "qwen3next"},
    };
    for (const auto& item : kKinds) {
        const std::string_view name = item.first, golden = item.second;
        CAPTURE(name);
        const auto file = golden_model_file(std::string(golden), golden.substr(0, golden.find('-')));
        if (!file) continue;
        const Kind kind(*file);
        Rows plain[2];
        for (const bool shift : {false, true}) plain[shift ? 1 : 0] = rows_of(kind, {.shift = shift});
        REQUIRE(plain[0].size() > 4);
        MESSAGE(name << ": " << hash_of(plain[0]) << " of " << plain[0].size() << " rows");
        for (std::uint64_t seed = 0; seed < n; ++seed) {
            const Configuration c = Configuration::draw(seed);
            CAPTURE(c.text());
            Rows rows;
            std::string refusal;
            try {
                rows = rows_of(kind, c);
            } catch (const std::exception& error) {
                refusal = error.what();
            }
            CHECK(refusal == "");
            const Rows& expected = plain[c.shift ? 1 : 0];
            CHECK(rows.size() == expected.size());
            const auto parted = std::ranges::mismatch(rows, expected);
            CAPTURE(parted.in1 - rows.begin());
            CHECK(hash_of(rows) == hash_of(expected));
        }
    }
}

}  // namespace

TEST_CASE("[N20][golden] one answer: a conversation has one hash of logits with every kind of memory, whatever it is "
          "computed beside, from and on") {
    if (skip_without_golden()) return;
    check_configurations(12);
}

TEST_CASE("[N20][slow][golden] one answer: 200 configurations of each kind of memory") {
    if (skip_without_golden()) return;
    check_configurations(200);
}

}  // namespace tinfer::test
