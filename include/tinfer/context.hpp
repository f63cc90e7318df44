// SPDX-License-Identifier: MIT
// Contexts run models. Chapters: batches, contexts, pipelines.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/model.hpp"
#include "tinfer/operations.hpp"

// ====================================================== batches ======================================================
// What one decode computes: tokens, each with its position, the sequences it belongs to, and whether its logits are
// wanted.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 2});
//     tinfer::Batch batch;
//     batch.add_sequence(model.vocab().encode("Once upon a time"), tinfer::SeqId{0});   // its last token is an output
//     batch.add_sequence(model.vocab().encode("The end"), tinfer::SeqId{1});
//     if (context.decode(batch) == tinfer::DecodeStatus::ok)
//         std::cout << context.n_outputs() << " rows of " << context.logits(0).size() << " logits\n";
namespace tinfer {

/// Tokens (or rows of embeddings, not both) with positions, sequences and output flags, in the order in which they are
/// computed. A value that owns its arrays; clear() keeps their memory for the next use. What it means is checked by the
/// context that decodes it; here only lack of memory throws (out_of_memory, limit_exceeded), and leaves the batch as it
/// was.
///
/// No position: after the last one of the token's sequence. No sequence: SeqId{0}. Several: one row of the cache that
/// all of them share. No output flag in the whole batch: its last token is the one output (every token with
/// ContextOptions::logits_all).
class TINFER_API Batch {
public:
    Batch() = default;
    /// batch.add(token), batch.add(token, SeqId{3}, true), batch.add(token, Pos{7}, SeqId{3}, true),
    /// batch.add(token, {}, {SeqId{0}, SeqId{1}}).
    void add(Token token, SeqId seq, bool output = false) {
        add(token, std::nullopt, std::span<const SeqId>(&seq, 1), output);
    }
    void add(Token token, std::optional<Pos> pos, SeqId seq, bool output = false) {
        add(token, pos, std::span<const SeqId>(&seq, 1), output);
    }
    void add(Token token, std::optional<Pos> pos, std::initializer_list<SeqId> seqs, bool output = false) {
        add(token, pos, std::span<const SeqId>(seqs.begin(), seqs.size()), output);
    }
    void add(Token token, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    /// Tokens that continue the sequence. With `output_last` the last of them is an output.
    void add_sequence(std::span<const Token> tokens, SeqId seq = SeqId{0}, bool output_last = true);

    /// A row of ModelInfo::n_embd floats instead of a token; the values are copied.
    void add_embedding(std::span<const float> row, SeqId seq, bool output = false) {
        add_embedding(row, std::nullopt, std::span<const SeqId>(&seq, 1), output);
    }
    void add_embedding(std::span<const float> row, std::optional<Pos> pos, SeqId seq, bool output = false) {
        add_embedding(row, pos, std::span<const SeqId>(&seq, 1), output);
    }
    void add_embedding(std::span<const float> row, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {},
                       bool output = false);

    void clear() noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }  ///< tokens
    [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

    /// One token as it was added.
    struct Row {
        std::int32_t token = -1;  ///< -1: the row is an embedding
        std::int32_t pos = -1;    ///< -1: automatic, see has_pos
        std::uint32_t first_seq = 0, n_seqs = 0;
        std::uint32_t first_value = 0, n_values = 0;  ///< of the embedding
        bool has_pos = false, output = false;
    };
    /// Views of the arrays, valid until the batch changes.
    [[nodiscard]] std::span<const Row> rows() const& noexcept { return rows_; }
    [[nodiscard]] std::span<const SeqId> seqs(const Row& row) const& noexcept {
        return std::span(seqs_).subspan(row.first_seq, row.n_seqs);
    }
    [[nodiscard]] std::span<const float> values(const Row& row) const& noexcept {
        return std::span(values_).subspan(row.first_value, row.n_values);
    }
    std::span<const Row> rows() const&& = delete;
    std::span<const SeqId> seqs(const Row& row) const&& = delete;
    std::span<const float> values(const Row& row) const&& = delete;

private:
    std::vector<Row> rows_;
    std::vector<SeqId> seqs_;
    std::vector<float> values_;
};

}  // namespace tinfer

// ===================================================== contexts ======================================================
// A context runs a model: batches in, logits and vectors out, with the cache in between.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 2});   // cache and scratch, allocated once, here
//     if (context.decode(model.vocab().encode("Once upon a time")) != tinfer::DecodeStatus::ok) return;
//     context.seq_cp(tinfer::SeqId{0}, tinfer::SeqId{1});               // a second sequence shares what is there
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0});
//     const tinfer::Token token = sampler.sample(context.logits());     // of the last token
//     if (context.decode({token}) == tinfer::DecodeStatus::ok)
//         std::cout << context.used() << " tokens, room for " << context.room(tinfer::SeqId{0}) << '\n';
//     if (context.seq_rm(tinfer::SeqId{0}, {tinfer::Pos{3}}) == tinfer::RemoveStatus::ok)   // all from position 3 on
//         std::cout << "and again from position 3\n";
namespace tinfer {

class DraftHead;
class Observer;

/// Element type of a cache. q8_0 and q4_0 are quantized, with one scale per 32 channels, and need a head size that is a
/// multiple of 32.
enum class KvType : std::uint8_t { f32, f16, bf16, q8_0, q4_0 };
[[nodiscard]] TINFER_API std::string_view to_string(KvType type) noexcept;
/// Whether heads are rotated by an orthogonal Hadamard matrix before a quantized cache stores them, which spreads
/// outliers over all channels. Float caches are never rotated.
enum class KvRotation : std::uint8_t { automatic, off, on };
[[nodiscard]] TINFER_API std::string_view to_string(KvRotation rotation) noexcept;
/// How rotary positions reach beyond the context that a model was trained with.
enum class RopeScaling : std::uint8_t { from_model, none, linear, yarn, longrope };
[[nodiscard]] TINFER_API std::string_view to_string(RopeScaling scaling) noexcept;

/// What a context is made for. Everything that is not given is the model's or a default that Context::options() shows.
struct ContextOptions {
    int n_ctx = 512;     ///< tokens the cache holds over all sequences; 0 = the model's; rounded up to 64
    int n_seq_max = 1;   ///< sequences 0 … n_seq_max-1; 1 … 256
    int n_batch = 0;     ///< most tokens of one decode call; 0 = n_ctx: a longer batch gets no_room
    int n_ubatch = 512;  ///< most tokens computed at once; 0 = n_batch. Models without experts: at most 256
    int n_outputs = 0;   ///< most output rows of one call; 0 = n_seq_max (n_batch with logits_all)
    int n_threads = 0;   ///< for one-token steps; 0 = min(physical cores, affinity, cgroup quota). No more run than
                         ///< the process has processors
    int n_threads_batch = 0;   ///< for larger steps; 0 = n_threads
    Isa isa = Isa::automatic;  ///< the table of kernels: the same bits with each
    bool fuse = true;          ///< false: one step per node; same bits
    KvType type_k = KvType::f16;
    KvType type_v = KvType::f16;
    KvRotation kv_rotation = KvRotation::automatic;  ///< automatic: on where a cache is quantized
    std::optional<float> rope_freq_base{};           ///< above 0; nullopt here and in the next: the model's
    std::optional<float> rope_freq_scale{};          ///< above 0: 0.25 reaches four times as far
    RopeScaling rope_scaling = RopeScaling::from_model;
    std::optional<float> yarn_ext_factor{};   ///< share of YaRN; nullopt with a rope_scaling: 1 for yarn, else 0
    std::optional<float> yarn_attn_factor{};  ///< above 0; multiplies the model's magnitude
    std::optional<float> yarn_beta_fast{}, yarn_beta_slow{};  ///< rotations that bound what is interpolated
    std::optional<int> yarn_orig_ctx{};                       ///< tokens of the training context
    bool embeddings = false;  ///< final hidden states of output rows (Context::embedding), pooled if the model pools.
                              ///< On where `pooling` asks for it and where a model has nothing else to give
    Pooling pooling = Pooling::from_model;  ///< other than none: vectors per sequence (Context::pooled) and no logits
    AttentionKind attention = AttentionKind::from_model;
    bool swa_full = false;    ///< layers with a window keep all slots too: more memory, and every seq_rm is possible
    bool logits_all = false;  ///< every row is an output when a batch gives no flags
    /// The last layer computes every token, not those of outputs alone, so that observers see all that is chosen for
    /// them. The same bits. No effect with a `pooling`.
    bool every_row = false;
    bool allow_position_gaps = false;  ///< positions need only increase
    bool check_finite = false;         ///< refuse embedding input that is not finite
    std::uint64_t memory_limit = 0;    ///< bytes the context may allocate; 0 = no limit
    std::vector<std::string> keep{};   ///< graph nodes for Context::result(): room for n_batch tokens each
    /// Drafts tokens from what the model computes (tinfer/speculation.hpp): it reads along from the first decode on, in
    /// memory of its own. Made for this model. Null: none.
    std::shared_ptr<const DraftHead> draft_head{};
    CancelFn cancel{};  ///< kept; see Context::set_cancel
    LogSink log{};      ///< for the constructor, on its thread
};

/// Bytes by class. Exact for what the library allocates from operator new while a context is made and used (callables
/// in the options, observers, threads and a batch that Context::begin copies are not the library's to count); the
/// mapping is resident only where touched.
struct MemoryPlan {
    std::uint64_t weights_mapped = 0, weights_copied = 0;
    std::uint64_t weights_paged = 0;  ///< room for experts that are read when needed (ModelOptions::memory_limit)
    std::uint64_t cache = 0, recurrent = 0;
    std::uint64_t compute = 0;  ///< arena, scratch and inputs of the largest micro-batch
    std::uint64_t outputs = 0;  ///< logits, embeddings and kept values
    std::uint64_t adapters = 0;
    std::uint64_t fixed = 0;  ///< graph, plans, batch and cache bookkeeping
    [[nodiscard]] std::uint64_t context_total() const noexcept {
        return cache + recurrent + compute + outputs + adapters + fixed;
    }
    [[nodiscard]] std::uint64_t total() const noexcept {
        return weights_mapped + weights_copied + weights_paged + context_total();
    }
};

/// What loading and a context would take, from header and options alone: no tensor data is touched. Throws as loading
/// and making a context do, memory aside.
[[nodiscard]] TINFER_API MemoryPlan plan(const std::filesystem::path& path, const ModelOptions& model_options = {},
                                         const ContextOptions& context_options = {});
[[nodiscard]] TINFER_API MemoryPlan plan(const Model& model, const ContextOptions& context_options = {});

/// Expected outcomes of a decode. After anything but `ok` the context is as before the call and has no outputs.
/// `no_room`: the batch has more tokens than Context::room(), because slots or learned positions run out. Fewer tokens
/// may fit, or these after others are removed, or in a larger context.
enum class [[nodiscard]] DecodeStatus : std::uint8_t{ok, cancelled, no_room};
[[nodiscard]] TINFER_API std::string_view to_string(DecodeStatus status) noexcept;
/// The same of a decode in slices of time (Context::step); `pending`: there is more to do.
enum class [[nodiscard]] StepStatus : std::uint8_t{ok, cancelled, no_room, pending};
[[nodiscard]] TINFER_API std::string_view to_string(StepStatus status) noexcept;
/// Outcomes of Context::seq_rm and seq_shift. After anything but `ok` nothing has changed: the range cuts a recurrent
/// state, or a window would reach back to slots that were released (ContextOptions::swa_full keeps them).
enum class [[nodiscard]] RemoveStatus : std::uint8_t{ok, partial_state, window_lost};
[[nodiscard]] TINFER_API std::string_view to_string(RemoveStatus status) noexcept;

/// Seconds and counts since construction or reset_timings(), of calls that ended in `ok`: one that was cancelled,
/// failed or had no room counts neither its tokens nor its time. A call is generation where it takes one token of each
/// of its sequences, and prompt otherwise; encode() and models without causal attention know prompts only.
struct Timings {
    double load_s = 0;                             ///< of the model
    double prompt_s = 0, generation_s = 0;         ///< inside the calls: time between two steps of one is not theirs
    std::uint64_t prompt_n = 0, generation_n = 0;  ///< tokens
    /// Of generation: drafted tokens that were verified, and those accepted (tinfer/speculation.hpp).
    std::uint64_t drafted_n = 0, accepted_n = 0;
    /// Experts of a model that is larger than its memory limit: those that a step found in memory, those that had to be
    /// read, with their bytes, and how long steps waited for them. Inside the calls too.
    std::uint64_t expert_hits = 0, expert_misses = 0, expert_bytes = 0;
    double expert_wait_s = 0;
    double plain_s = 0;  ///< what Generation would have taken without drafts, as estimated; 0: not known
    /// How many times as fast drafts made generation.
    [[nodiscard]] double gain() const noexcept { return plain_s > 0 && generation_s > 0 ? plain_s / generation_s : 1; }
};

class Attachment;

/// State of a decode: cache, scratch, outputs. Move-only; one thread at a time (a second one gets `busy`, and so does
/// an observer's callback that would change it); keeps its model alive. Allocates in its constructor and, for observers
/// and errors aside, nothing after the first decode.
class TINFER_API Context {
public:
    /// Throws bad_parameter, bad_cache_type, limit_exceeded, not_available or out_of_memory; nothing is kept then.
    explicit Context(Model model, ContextOptions options = {});
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();

    /// Appends tokens to sequence 0; the last one is the one output (every one with logits_all). One transaction of any
    /// length up to n_batch: all of it, or nothing; one that throws or is not `ok` leaves the sequences as they were,
    /// and no outputs. Throws invalid_batch, compute_failed, and io_error where a part of the mapped model file cannot
    /// be read any more (ModelOptions::guard_mapping). Where the model has an encoder, tokens attend to what encode()
    /// has kept for their sequence; encoder_missing where there is nothing.
    DecodeStatus decode(std::span<const Token> tokens);
    DecodeStatus decode(std::initializer_list<Token> tokens) {
        return decode(std::span<const Token>(tokens.begin(), tokens.size()));
    }
    /// The same for tokens of any sequences, with positions and outputs of their own.
    DecodeStatus decode(const Batch& batch);
    /// The same in a part of a model that begins behind the first layer (ModelOptions::layers). `hidden` is what the
    /// part before has left for the same batch (hidden()): ModelInfo::n_hidden_in floats for each token, in its order.
    /// Nothing else of a batch is different: tokens, positions, sequences and flags are those of the whole. Throws
    /// invalid_batch where the number of floats is another one, and where the model begins with the first layer.
    DecodeStatus decode(const Batch& batch, std::span<const float> hidden);
    /// A decode as the first half of a transaction over several contexts: computes all of the batch. After `ok`
    /// outputs and hidden() can be read, and the context is busy for everything else, until commit() keeps the tokens
    /// or abandon() leaves the context as before. After anything else, and where it throws, there is nothing to end.
    DecodeStatus compute(const Batch& batch, std::span<const float> hidden = {});
    /// Throws bad_parameter where no compute() has ended in `ok` before.
    void commit();

    /// Runs what attends to a whole text at once: tokens of a text see each other, so a call has at most n_ubatch, and
    /// the cache stays as it is. Throws unsupported_operation where attention is causal. Which models:
    /// - A bidirectional one: the same as decode(). Outputs and pooled vectors are those of the call.
    /// - One with an encoder in front of a decoder (ModelInfo::has_encoder): runs the encoder, without outputs. Its
    ///   result is kept for the tokens that are decoded in the same sequences, in place of what all sequences had
    ///   before, until the next encode or clear(true). After a run that ended in anything but `ok` nothing is kept.
    DecodeStatus encode(std::span<const Token> tokens);
    DecodeStatus encode(std::initializer_list<Token> tokens) {
        return encode(std::span<const Token>(tokens.begin(), tokens.size()));
    }
    DecodeStatus encode(const Batch& batch);

    /// decode() in slices of time: begin(), then step() until it is not `pending`. One transaction, the same bits and
    /// the same events; in between the context is busy for everything that would change it, has no outputs, counts the
    /// tokens of the batch as its own (used(), room(), seq_pos_max()), and observers' clocks go on. The batch is
    /// copied, or taken. begin() throws invalid_batch, and busy where a decode is pending.
    void begin(std::span<const Token> tokens);
    void begin(std::initializer_list<Token> tokens) { begin(std::span<const Token>(tokens.begin(), tokens.size())); }
    void begin(const Batch& batch);
    void begin(Batch&& batch);
    /// Computes for about `budget` (0 or less: as little as it can) and returns between two pieces of work, of which
    /// each thread does at least one. With the vector tables they take a fraction of a millisecond (some milliseconds
    /// in attention over many thousands of positions), or up to a quarter of the budget where that is more: steps that
    /// are short beside the budget are not cut, so that threads meet less often. Throws bad_parameter when nothing has
    /// begun; an exception ends the decode as it does in decode().
    StepStatus step(std::chrono::nanoseconds budget);
    /// Ends a decode that is pending or computed; the context is as before begin() or compute(). Nothing happens when
    /// there is none.
    void abandon();

    /// Rows of the last decode in batch order; negative indices count from the end. The spans are valid until the next
    /// decode, encode, begin or clear; a decode that fails, and clear(), leave nothing to read. Throws no_output,
    /// index_out_of_range.
    [[nodiscard]] int n_outputs() const noexcept;
    [[nodiscard]] std::span<const float> logits(int index = -1) const&;  ///< n_vocab floats
    /// n_embd floats, after the final norm. Throws non_finite where one of them is not a number or infinite.
    [[nodiscard]] std::span<const float> embedding(int index = -1) const&;
    /// The vector of a sequence (the first one of its tokens counts) from its tokens of the last decode: n_embd floats,
    /// with Pooling::rank one per class. All tokens take part, whatever their flags. Throws no_output, bad_sequence,
    /// non_finite naming sequence and value.
    [[nodiscard]] std::span<const float> pooled(SeqId seq = SeqId{0}) const&;
    /// What the last decode has left for the layers behind a part of a model: ModelInfo::n_hidden_out floats for each
    /// token of the batch, whatever its flag; such a part has no other outputs. Throws no_output.
    [[nodiscard]] std::span<const float> hidden() const&;
    /// Output index of the batch's token i; throws no_output when it was not flagged, index_out_of_range.
    [[nodiscard]] int output_index(int token_index) const;
    /// A named result of the last decode: "result_output" and "result_norm" (a row for each output), or a name of
    /// ContextOptions::keep (a row for each token of the call; after the attention of the last layer for each output).
    /// Values are not checked for NaN. Throws no_output, never gives an empty span.
    [[nodiscard]] std::span<const float> result(std::string_view name) const&;

    /// Sequence operations act at once. A range is all of the sequence by default: seq_rm(seq), seq_rm(seq, {Pos{3},
    /// Pos{7}}), seq_rm(seq, {Pos{3}}) from there on. They throw bad_parameter for a bound below 0, bad_sequence for an
    /// id outside 0 … n_seq_max-1, unsupported_operation where the memory of the model cannot do it; nothing has
    /// changed then.
    RemoveStatus seq_rm(SeqId seq, PosRange range = {});
    RemoveStatus seq_rm(SeqId seq, Pos begin, Pos end) { return seq_rm(seq, PosRange{begin, end}); }
    RemoveStatus rm_all_seqs(PosRange range);  ///< seq_rm for every sequence
    RemoveStatus rm_all_seqs(Pos begin, Pos end) { return rm_all_seqs(PosRange{begin, end}); }
    /// Tokens of `from` belong to `to`, too, in place of what it had in the range: shares pages, copies nothing.
    void seq_cp(SeqId from, SeqId to, PosRange range = {});
    void seq_cp(SeqId from, SeqId to, Pos begin, Pos end) { seq_cp(from, to, PosRange{begin, end}); }
    void seq_keep(SeqId seq);  ///< removes all other sequences
    /// Moves tokens by `delta` positions, or to their position divided by `divisor`, rounded down; those that would
    /// stand before 0 are removed. Keys are rotated by the difference before the next decode. Throws bad_sequence where
    /// tokens would pass or meet others of the sequence (in a division they may meet each other), shared_cell where
    /// another sequence shares one, and unsupported_operation where positions cannot move: learned positions, part of a
    /// recurrent state.
    void seq_add(SeqId seq, PosRange range, int delta);
    void seq_add(SeqId seq, Pos begin, Pos end, int delta) { seq_add(seq, PosRange{begin, end}, delta); }
    void seq_div(SeqId seq, PosRange range, int divisor);
    void seq_div(SeqId seq, Pos begin, Pos end, int divisor) { seq_div(seq, PosRange{begin, end}, divisor); }
    /// Forgets the n positions from `keep` on, and what follows takes their place: a sequence goes on in a full context
    /// without its oldest tokens behind the first `keep`. One step: all of it, or, where it is not `ok` or throws as
    /// seq_add does, nothing. Throws bad_parameter for `keep` or n below 0.
    RemoveStatus seq_shift(SeqId seq, Pos keep, int n);
    /// Positions of any range can move: the model knows them by rotation or by biases alone and has no recurrent
    /// layers.
    [[nodiscard]] bool can_shift() const noexcept;
    /// Empties all sequences and discards the outputs; with `zero_data` also discards the encoder's result and fills
    /// the cache with zeros.
    void clear(bool zero_data = false);
    /// nullopt when empty. With windows or recurrent layers: from where on every layer still has everything.
    [[nodiscard]] std::optional<Pos> seq_pos_min(SeqId seq) const;
    [[nodiscard]] std::optional<Pos> seq_pos_max(SeqId seq) const;
    [[nodiscard]] int count(SeqId seq) const;  ///< tokens of a sequence
    [[nodiscard]] int used() const noexcept;   ///< tokens in the cache, or states where there is none
    /// Tokens that decode() will take of this sequence now, in calls of at most n_batch, and not one more: n_ctx −
    /// used(), however fragmented the cache is (it is compacted when needed, in a maintenance run that observers see;
    /// no bit changes), or fewer where the model has a table of learned positions and that ends.
    [[nodiscard]] int room(SeqId seq) const;

    /// Observers see every kernel call of this context until the handle is destroyed. Throws busy inside a callback,
    /// and not_available in builds without tracing.
    [[nodiscard]] Attachment attach(std::shared_ptr<Observer> observer);
    /// An annotation into the trace of every attached observer.
    void mark(std::string_view text);

    [[nodiscard]] const Model& model() const& noexcept;
    [[nodiscard]] const ContextOptions& options() const& noexcept;  ///< effective values, nothing left to the model
    [[nodiscard]] std::string_view isa() const noexcept;            ///< name of the kernel table in use
    [[nodiscard]] MemoryPlan memory() const noexcept;               ///< counted, not planned: equals plan()
    [[nodiscard]] Timings timings() const noexcept;
    void reset_timings() noexcept;
    /// Threads of the next runs: at most as many as the context was made for. Throws bad_parameter.
    void set_threads(int n_threads, int n_threads_batch);
    /// What is polled from the next decode on.
    void set_cancel(CancelFn cancel);

    // Deleted for temporaries: the views would dangle.
    std::span<const float> logits(int index = -1) const&& = delete;
    std::span<const float> embedding(int index = -1) const&& = delete;
    std::span<const float> pooled(SeqId seq = SeqId{0}) const&& = delete;
    std::span<const float> result(std::string_view name) const&& = delete;
    std::span<const float> hidden() const&& = delete;
    const Model& model() const&& = delete;
    const ContextOptions& options() const&& = delete;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    std::unique_ptr<Impl> impl_;
};

/// Divides x by its p-norm, p ≥ 1 (2: Euclidean); 0: by max |x| / 32760; -1: not at all. Zeros stay zeros. Throws
/// bad_parameter, and non_finite, with x as it was, where a value is not a number or infinite.
TINFER_API void normalize(std::span<float> x, double p = 2);

/// What export_graph draws.
struct GraphRequest {
    int n_tokens = 1;
    int n_outputs = 1;
    enum class Format : std::uint8_t { dot, text } format = Format::dot;
    enum class View : std::uint8_t { graph, plan } view = View::graph;  ///< nodes, or steps with kernels and offsets
};
[[nodiscard]] TINFER_API std::string_view to_string(GraphRequest::Format format) noexcept;
[[nodiscard]] TINFER_API std::string_view to_string(GraphRequest::View view) noexcept;
/// The graph or plan of one micro-batch, without running it and without touching weights. Throws bad_parameter for
/// numbers that the options do not allow, and what making a context throws.
[[nodiscard]] TINFER_API std::string export_graph(const Model& model, const ContextOptions& options,
                                                  const GraphRequest& request);

}  // namespace tinfer

// ===================================================== pipelines =====================================================
// One model in several parts, each with some of its layers (ModelOptions::layers), that compute a batch one after the
// other. A pipeline here has all parts in one process; what runs them in several does the same with the hidden states
// in between (Context::compute, Context::hidden).
//
//     const auto lower = tinfer::Model::load("model.gguf", {.layers = {0, 0}});     // the embeddings and layer 0
//     const auto upper = tinfer::Model::load("model.gguf", {.layers = {1, -1}});    // all others and the head
//     tinfer::Pipeline pipeline({lower, upper}, {.n_ctx = 256});
//     tinfer::Batch batch;
//     batch.add_sequence(lower.vocab().encode("Once upon a time"));
//     if (pipeline.decode(batch) == tinfer::DecodeStatus::ok)
//         std::cout << pipeline.last().logits().size() << " logits, those of the whole model\n";
namespace tinfer {

/// `n` parts of a model of n_layer layers, as even as they can be; the first ones have one more. Throws bad_parameter
/// unless n lies in 1 to n_layer.
[[nodiscard]] TINFER_API std::vector<ModelPart> even_parts(int n_layer, int n);

/// Contexts of the parts of one model that decode together: a decode is one transaction over all of them, and so is
/// each operation on sequences. Results are those of the whole model, to the bit. Move-only; one thread at a time.
class TINFER_API Pipeline {
public:
    /// Parts in order, the first with the first layer, the last with the last one, none missing between them. Every
    /// part gets a context of its own with these options. Throws bad_parameter for parts that do not follow each other,
    /// model_mismatch for those of another file, and what a context throws.
    explicit Pipeline(std::span<const Model> parts, const ContextOptions& options = {});
    Pipeline(std::initializer_list<Model> parts, const ContextOptions& options = {})
        : Pipeline(std::span(parts.begin(), parts.size()), options) {}

    /// Part after part computes the batch. Where one has no room, is cancelled or throws, none keeps anything: all are
    /// as before, and without outputs.
    DecodeStatus decode(const Batch& batch);
    DecodeStatus decode(std::span<const Token> tokens);

    /// Context::seq_rm and the others, in every part: what one refuses, none does.
    RemoveStatus seq_rm(SeqId seq, PosRange range = {});
    void seq_cp(SeqId from, SeqId to, PosRange range = {});
    void seq_keep(SeqId seq);
    void seq_add(SeqId seq, PosRange range, int delta);
    void clear(bool zero_data = false);

    [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }  ///< parts
    /// For observers, states, numbers: whoever decodes with one of them takes it out of step with the others.
    [[nodiscard]] Context& part(std::size_t i) & { return parts_.at(i); }
    [[nodiscard]] Context& last() & noexcept { return parts_.back(); }  ///< whose outputs are those of the model

private:
    std::vector<Context> parts_;
};

}  // namespace tinfer
